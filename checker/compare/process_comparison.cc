#include "checker/compare/process_comparison.h"

#include <algorithm>
#include <string>
#include <utility>

#include "checker/compare/call_comparison.h"

namespace traincheck {
namespace {

const char* EndWords(ProcessEnd end) {
  switch (end) {
    case ProcessEnd::kClean:
      return "ended in order";
    case ProcessEnd::kDied:
      return "was killed";
    case ProcessEnd::kLost:
      return "was lost";
    case ProcessEnd::kRaised:
      return "ended by an exception";
    case ProcessEnd::kInterrupted:
      return "was interrupted";
  }
  return "ended";
}

// Did the program itself decide to end here?
bool IsOwnEnd(ProcessEnd end) {
  return end == ProcessEnd::kClean || end == ProcessEnd::kRaised;
}

std::string TotalWords(uint64_t steps, ProcessEnd end) {
  return std::to_string(steps) + " steps, then it " + EndWords(end);
}

}  // namespace

ProcessComparison::ProcessComparison(const Options& options)
    : options_(options),
      a_(&names_, {.calls = !options.is_worker}),
      b_(&names_, {.calls = !options.is_worker}) {}

bool ProcessComparison::Wants(RunSide side) const {
  const Side& one = side == RunSide::kA ? a_ : b_;
  // Not while a step waits for its counterpart: a run that is read ahead of the
  // other one would pile up steps.
  return !one.end && !one.next;
}

void ProcessComparison::Consume(RunSide side, const StoredBatch& batch) {
  Side& one = Of(side);
  // Said as the process begins; the definitions of later batches are not
  // searched.
  if (one.versions.torch.empty()) ReadVersions(batch, &one.versions);
  one.reader.Consume(batch);
  Advance();
}

void ProcessComparison::End(RunSide side, ProcessEnd end) {
  Side& one = Of(side);
  one.end = end;
  one.reader.End();
  Advance();
}

void ProcessComparison::Advance() {
  // One batch may close several steps, and a step that is dropped makes room
  // for the next one.
  while (true) {
    for (Side* side : {&a_, &b_}) {
      if (!side->next && side->reader.HasStep()) {
        side->next = side->reader.Take();
      }
    }
    if (a_.next && b_.next) {
      Compare();
    } else if (a_.next && b_.end) {
      Drop(RunSide::kA);
    } else if (b_.next && a_.end) {
      Drop(RunSide::kB);
    } else {
      return;
    }
  }
}

void ProcessComparison::Drop(RunSide side) {
  Side& one = Of(side);
  const Side& other = Of(side == RunSide::kA ? RunSide::kB : RunSide::kA);
  const std::string name = side == RunSide::kA ? "B" : "A";
  const StepContent step = *std::exchange(one.next, std::nullopt);
  // What comes after the last step is no step that the other run lacks.
  if (step.is_rest) return;
  // After a gap at the end of the other run, it is not known whether it made
  // the step.
  const bool is_over = other.end && other.reader.knows_steps() &&
                       step.step >= other.reader.steps();
  result_.coverage.Miss("steps",
                        is_over ? "run " + name + " had ended"
                                : "records of run " + name + " are missing",
                        1, "step " + std::to_string(step.step));
}

void ProcessComparison::Compare() {
  if (a_.next->step != b_.next->step) {
    // Both go upwards, so that the lesser one will not come in the other run
    // any more.
    return Drop(a_.next->step < b_.next->step ? RunSide::kA : RunSide::kB);
  }
  // One of them ended in the step: of the other there is all of it.
  if (a_.next->is_rest != b_.next->is_rest) {
    return Drop(a_.next->is_rest ? RunSide::kA : RunSide::kB);
  }
  const StepContent a = *std::exchange(a_.next, std::nullopt);
  const StepContent b = *std::exchange(b_.next, std::nullopt);
  // Before anything returns: numbers hold until they are written anew, and what
  // is missing may have written them.
  if (!a.missing.empty()) scalars_.ForgetA();
  if (!b.missing.empty()) scalars_.ForgetB();
  for (const auto& [content, name] : {std::pair(&a, "A"), std::pair(&b, "B")}) {
    if (content->missing.empty()) continue;
    result_.coverage.Miss("steps",
                          std::string("records of run ") + name +
                              " are missing (" + content->missing + ")",
                          1, "step " + std::to_string(content->step));
    return;
  }
  if (a.is_rest && !options_.is_worker &&
      (a_.end != ProcessEnd::kClean || b_.end != ProcessEnd::kClean)) {
    return;  // it was broken off somewhere
  }
  ComparePair(a, b);
}

void ProcessComparison::ComparePair(const StepContent& a,
                                    const StepContent& b) {
  // Behind the first step that differs, steps are only counted: most differ
  // because that one did.
  const bool is_first = result_.first.empty();
  DifferenceList differences(is_first ? kMaxKept : 0);
  const StepPair pair = {
      .a = a,
      .b = b,
      .names = names_,
      .definitions = {a_.reader.definitions(), b_.reader.definitions()},
      .differences = &differences,
      .coverage = &result_.coverage};
  CompareNotes(pair);
  scalars_.Compare(pair);
  CompareCalls(pair);
  // Those of workers are seeded by their loader.
  const VariableCounts variables =
      CompareStates(pair, options_.is_worker ? nullptr : &generators_);
  if (!a.is_rest) {
    ++(pair.both_whole() ? result_.coverage.whole_steps
                         : result_.coverage.skeleton_steps);
  }
  if (is_first) {
    if (differences.empty()) return;
    Keep(differences, a);
    if (variables.compared > 0) result_.variables_first = {a.step, variables};
  } else {
    if (!a.is_rest) ++result_.steps_behind;
    if (!a.is_rest && !differences.empty()) ++result_.steps_behind_different;
  }
  if (variables.compared > 0) result_.variables_last = {a.step, variables};
}

void ProcessComparison::Keep(const DifferenceList& differences,
                             const StepContent& step) {
  result_.counts = differences.counts();
  result_.first = differences.first();
  for (Difference& difference : result_.first) {
    difference.step = step.step;
    // A worker makes no steps: its states count to the step in which its owner
    // forked it.
    if (options_.is_worker) {
      difference.step =
          a_.reader.definitions().process().owner_step.value_or(0);
    } else if (step.is_rest && step.step > 0) {
      // The rest has the number of a step that was not made.
      difference.step = step.step - 1;
      difference.after_last_step = true;
    }
  }
}

void ProcessComparison::CompareEnds() {
  if (!a_.reader.knows_steps() || !b_.reader.knows_steps()) return;
  const uint64_t steps_a = result_.steps_a;
  const uint64_t steps_b = result_.steps_b;
  // An end that the program did not choose is as good as any other.
  const bool same_end =
      !IsOwnEnd(*a_.end) || !IsOwnEnd(*b_.end) || *a_.end == *b_.end;
  if (steps_a == steps_b && same_end) return;
  const ProcessEnd shorter = steps_a < steps_b ? *a_.end : *b_.end;
  // A process that was killed made fewer steps for a reason outside of its
  // program.
  if (steps_a != steps_b && !IsOwnEnd(shorter)) return;
  // Programs that differ in an earlier step may well end in another way because
  // of that.
  if (!result_.first.empty()) return;
  DifferenceList differences(1);
  differences.Add({.rung = StepRung::kTotals}, [&] {
    Difference difference;
    difference.what = "how many steps are made";
    difference.a = TotalWords(steps_a, *a_.end);
    difference.b = TotalWords(steps_b, *b_.end);
    return difference;
  });
  StepContent at;
  at.step = std::min(steps_a, steps_b);
  Keep(differences, at);
}

ProcessResult ProcessComparison::Finish() {
  result_.steps_a = a_.reader.steps();
  result_.steps_b = b_.reader.steps();
  result_.versions_a = a_.versions;
  result_.versions_b = b_.versions;
  if (!options_.is_worker) CompareEnds();
  return std::move(result_);
}

}  // namespace traincheck
