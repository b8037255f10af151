#include "checker/checker.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "checker/coverage.h"
#include "checker/snapshot.h"
#include "checker/violation_book.h"
#include "invariants/relations/registry.h"
#include "invariants/rules/rule_needs.h"
#include "invariants/rules/run_reader.h"
#include "invariants/rules/unseen_in_run.h"

namespace traincheck {

namespace {

// Rules that are not general know how the programs are written that they were
// learned from: in other experiments they would report what is meant.
bool Applies(const Invariant& invariant, const std::string& experiment) {
  if (invariant.scope == Scope::kGeneral) return true;
  return std::find(invariant.experiments.begin(), invariant.experiments.end(),
                   experiment) != invariant.experiments.end();
}

std::string Fingerprint(const std::string& run, const std::string& experiment,
                        const InvariantSet& set) {
  // What a state depends on besides its bytes. The ids stand for the rules:
  // they are hashes of what the rules say. The order counts, because saved
  // evaluators and coverage know rules by position.
  std::string text = run + "\n" + experiment + "\n" + set.name + "\n" +
                     std::to_string(set.version);
  for (const Invariant& invariant : set.invariants) {
    text += "\n" + invariant.id;
  }
  return HashText(text);
}

// The rules of one relation, judged.
class RelationCheck : private RuleSink {
 public:
  RelationCheck(const Relation& relation,
                std::vector<const Invariant*> invariants, Coverage* coverage,
                std::vector<CaptureNeeds>* needs, ViolationBook* book)
      : invariants_(std::move(invariants)), coverage_(coverage), book_(book) {
    std::vector<JudgedRule> rules;
    for (const Invariant* invariant : invariants_) {
      rules.push_back({rules.size(), invariant->rule, invariant->precondition});
      numbers_.push_back(coverage_->AddRule());
      needs->emplace_back();
      // A rule of which no verdict comes is asked what it would have needed to
      // see.
      AddNeeds(*invariant->rule, invariant->precondition, &needs->back());
    }
    // One evaluator for all rules of the relation: it shares the work on each
    // event.
    evaluator_ = relation.NewEvaluator(rules, this);
  }

  RunObserver* evaluator() { return evaluator_.get(); }

  void AddVerdicts(uint32_t newest_attempt,
                   const Coverage::WhyUnseen& why_unseen,
                   std::vector<InvariantVerdict>* verdicts) const {
    for (size_t i = 0; i < invariants_.size(); ++i) {
      const size_t number = numbers_[i];
      InvariantVerdict verdict{invariants_[i],
                               coverage_->OutcomeOf(number, newest_attempt),
                               coverage_->ReasonOf(number, newest_attempt),
                               coverage_->WindowsOf(number)};
      if (coverage_->IsSilent(number)) {
        verdict.reason = why_unseen(number);
        verdict.no_occasion = verdict.reason.empty();
      }
      verdicts->push_back(std::move(verdict));
    }
  }

 private:
  void OnVerdict(const Verdict& verdict) override {
    coverage_->Add(numbers_[verdict.rule], verdict);
    book_->Add(*invariants_[verdict.rule], verdict);
  }

  const std::vector<const Invariant*> invariants_;
  std::vector<size_t> numbers_;  // in coverage_
  Coverage* const coverage_;
  ViolationBook* const book_;
  std::unique_ptr<RunObserver> evaluator_;
};

// Is the rule one of the relation's, or of one of its forms?
bool IsOf(const Relation& relation, const Invariant& invariant) {
  return std::string_view(invariant.rule->relation_name()) == relation.name();
}

}  // namespace

class Checker::Impl {
 public:
  Impl(const std::string& run, const std::string& experiment,
       const InvariantSet& set, EndedProcesses ended)
      : invariants_(set.invariants),
        ended_(ended),
        fingerprint_(Fingerprint(run, experiment, set)),
        book_(run, [this](uint32_t process) {
          // The reader is made last, of the evaluators. The book asks for names
          // only when it renders violations, and by then the reader is there.
          return reader_->NameIfShared(process);
        }) {
    std::vector<RunObserver*> observers;
    for (const Relation* relation : Relations()) {
      std::vector<const Invariant*> mine;
      for (const Invariant& invariant : invariants_) {
        if (!IsOf(*relation, invariant)) continue;
        if (Applies(invariant, experiment)) {
          mine.push_back(&invariant);
        } else {
          ++not_applied_;
        }
      }
      // It would look at every call for nothing.
      if (mine.empty()) continue;
      checks_.push_back(std::make_unique<RelationCheck>(
          *relation, std::move(mine), &coverage_, &needs_, &book_));
      observers.push_back(checks_.back()->evaluator());
    }
    reader_ = std::make_unique<RunReader>(std::move(observers));
  }

  // Which check a saved state is of.
  const std::string& fingerprint() const { return fingerprint_; }

  void Fields(Archive& archive) {
    archive(*reader_, group_ranks_, coverage_);
    // Entries point to their rules, which a restored state knows by id only.
    ViolationBook::Rules rules;
    for (const Invariant& invariant : invariants_) {
      rules[invariant.id] = &invariant;
    }
    book_.Fields(rules, archive);
  }

  void Consume(uint32_t process, const StoredBatch& batch) {
    reader_->Consume(process, batch);
    const ProcessFacts* facts = reader_->Find(process);
    // After the batch: verdicts of the same batch may have come before the
    // record that says the rank.
    if (!facts || !facts->rank()) return;
    book_.Place(process, *facts->rank());
    coverage_.Place(process, *facts->rank());
  }

  void EndProcess(uint32_t process, ProcessEnd end) {
    reader_->EndProcess(process, end);
    const ProcessFacts* facts = reader_->Find(process);
    if (facts == nullptr) return;  // it was let go before
    // One that was lost may come back.
    if (end != ProcessEnd::kLost) coverage_.LeaveUnplaced(process);
    // After the reader, which judges the last windows of the process now. Only
    // a process that ended in order has closed all of its steps: another one
    // may have been in a step when it died, and what it did there stays in that
    // step.
    const auto steps = facts->clock().steps_made();
    if (end == ProcessEnd::kClean && steps.value_or(0) > 0) {
      book_.EndProcess(process, facts->attempt(), facts->rank(), *steps);
    }
    if (ended_ == EndedProcesses::kKept) return;
    // Ranks that never came are looked for in the groups of all processes, also
    // of those that have ended.
    group_ranks_.LetGo(process, facts->definitions());
    reader_->LetGo(process);
  }

  SharedRanks GroupRanksOf(uint32_t process) {
    const ProcessFacts* facts = reader_->Find(process);
    return facts ? group_ranks_.Of(process, facts->definitions())
                 : group_ranks_.LastOf(process);
  }

  RunReader& reader() { return *reader_; }
  ViolationBook& book() { return book_; }

  CheckSummary Summary() const {
    CheckSummary summary;
    const UnseenInRun unseen = reader_->Unseen();
    coverage_.Summarize(reader_->newest_attempt(), WhyUnseen(unseen), &summary);
    summary.not_applied = not_applied_;
    // A verdict on one rank says nothing of the others. Processes in which
    // nothing was decided are named, so that a gate does not take the run for
    // checked.
    for (const ProcessBrief& process : unseen.trainings()) {
      if (coverage_.IsJudged(process.number, process.place.attempt)) continue;
      summary.unchecked_processes.push_back(process.Name());
    }
    return summary;
  }

  std::vector<InvariantVerdict> Verdicts() const {
    std::vector<InvariantVerdict> verdicts;
    const UnseenInRun unseen = reader_->Unseen();
    for (const auto& check : checks_) {
      check->AddVerdicts(reader_->newest_attempt(), WhyUnseen(unseen),
                         &verdicts);
    }
    std::sort(verdicts.begin(), verdicts.end(),
              [](const InvariantVerdict& a, const InvariantVerdict& b) {
                return a.invariant->id < b.invariant->id;
              });
    return verdicts;
  }

 private:
  // `unseen` must outlive it.
  Coverage::WhyUnseen WhyUnseen(const UnseenInRun& unseen) const {
    return [this, &unseen](size_t rule) { return unseen.Why(needs_[rule]); };
  }

  // A copy: checks_ and the entries of book_ point to these rules, whatever the
  // caller does with the set.
  const std::vector<Invariant> invariants_;
  const EndedProcesses ended_;
  const std::string fingerprint_;
  Coverage coverage_;
  std::vector<CaptureNeeds> needs_;  // of the rules, as coverage_ counts them
  ViolationBook book_;
  std::vector<std::unique_ptr<RelationCheck>> checks_;
  // Behind checks_, whose evaluators it calls, so that it goes before them.
  std::unique_ptr<RunReader> reader_;
  uint32_t not_applied_ = 0;
  GroupRanks group_ranks_;
};

Checker::Checker(const std::string& run, const std::string& experiment,
                 const InvariantSet& set, EndedProcesses ended)
    : impl_(std::make_unique<Impl>(run, experiment, set, ended)) {}

Checker::~Checker() = default;

void Checker::Consume(uint32_t process, const StoredBatch& batch) {
  impl_->Consume(process, batch);
}

void Checker::SetAttempt(uint32_t process, uint32_t attempt) {
  impl_->reader().SetAttempt(process, attempt);
}

void Checker::EndProcess(uint32_t process, ProcessEnd end) {
  impl_->EndProcess(process, end);
}

void Checker::EndRun() {
  // The reader first: it judges or gives up the windows that are still open,
  // and what these violate has to be in the book when that closes.
  impl_->reader().EndRun();
  impl_->book().EndRun();
}

void Checker::GiveUpRank(uint32_t attempt, int32_t rank,
                         const std::string& reason) {
  impl_->reader().GiveUpRank(attempt, rank, reason);
}

uint64_t Checker::StepOf(uint32_t process) const {
  return impl_->reader().StepOf(process);
}

SharedRanks Checker::GroupRanksOf(uint32_t process) {
  return impl_->GroupRanksOf(process);
}

std::vector<Violation> Checker::Violations() const {
  return impl_->book().All();
}

std::string Checker::Save() const {
  Archive archive;
  impl_->Fields(archive);
  return Seal(impl_->fingerprint(), archive.TakeBytes());
}

absl::Status Checker::RestoreUntrusted(std::string_view bytes) {
  const absl::StatusOr<std::string_view> state =
      Unseal(impl_->fingerprint(), bytes);
  if (!state.ok()) return state.status();
  Archive archive(*state);
  impl_->Fields(archive);
  if (!archive.ok()) return absl::DataLossError(archive.error());
  // Fields that were read at wrong places fit by chance at most.
  if (!archive.at_end()) return absl::DataLossError("bytes are left over");
  return absl::OkStatus();
}

std::vector<Violation> Checker::TakeChanges() {
  return impl_->book().TakeChanges();
}

CheckSummary Checker::Summary() const { return impl_->Summary(); }

std::vector<InvariantVerdict> Checker::Verdicts() const {
  return impl_->Verdicts();
}

}  // namespace traincheck
