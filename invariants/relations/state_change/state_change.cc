#include "invariants/relations/state_change/state_change.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "invariants/facts/variable_state.h"
#include "invariants/relations/state_change/change_spec.h"
#include "invariants/relations/state_change/step_end_changes.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

constexpr char kByFrozen[] = "a role says it of all frozen parameters";
constexpr char kByRole[] = "a role says it of all modules of its class";
// Fewer periods could agree by chance.
constexpr size_t kLeastPeriods = 3;

// Steps in which one variable was asked to change, and those in which it did.
class Rhythm {
 public:
  void Add(const StepChange& change) {
    // A step that was not seen may have held a change, so no period can be told
    // from here on.
    if (change.changed == Tri::kUnknown || change.due == Tri::kUnknown ||
        change.steps != 1) {
      broken_ = true;
      return;
    }
    const bool changed = change.changed == Tri::kYes;
    // A variable that changes without being asked to has no rhythm. One that is
    // not asked to change and stands still says nothing.
    if (change.due == Tri::kNo) {
      stray_ |= changed;
      return;
    }
    if (changed && last_) {
      // In steps that asked for a change: a period goes on where it was behind
      // a pause without learning rate.
      const uint64_t distance = due_ - *last_;
      if (period_ && *period_ != distance) stray_ = true;
      period_ = distance;
      ++periods_;
    }
    if (changed) last_ = due_;
    changed_ += changed;
    ++due_;
  }

  // In how many steps it changes once; 0: never. nullopt: no rule.
  std::optional<uint64_t> Period() const {
    if (broken_ || stray_ || due_ == 0) return std::nullopt;
    if (changed_ == 0) return 0;
    if (changed_ == due_) return 1;
    const bool steady = periods_ >= kLeastPeriods && period_ && *period_ > 1 &&
                        *period_ <= kLongestPeriod;
    return steady ? period_ : std::nullopt;
  }

 private:
  uint64_t due_ = 0;
  uint64_t changed_ = 0;
  std::optional<uint64_t> last_;  // in which it changed
  std::optional<uint64_t> period_;
  size_t periods_ = 0;
  // A change that no period explains, and a step that was not seen. Either
  // leaves the variable without a rule for the whole run.
  bool stray_ = false;
  bool broken_ = false;
};

class ChangesSeen : public ProcessObserver {
 public:
  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    changes_.OnDefinition(type);
  }
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    const auto change = changes_.OnState(facts, event);
    if (!change) return;
    rhythms_[event.variable_id].Add(*change);
    if (IsFrozen(facts, event.variable_id)) frozen_.insert(event.variable_id);
    if (facts.ownership().IsHeld(event.variable_id)) {
      held_.insert(event.variable_id);
    }
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    // Of the experiment: in other programs a frozen encoder follows another one
    // within the model.
    if (!frozen_.empty()) {
      out->Add({Frozen().ToJson(), Scope::kExperiment, {}});
    }
    // Roles first: a rule on a role is named as the broader one by the rule on
    // each of its variables.
    const Roles roles = CollectRoles(definitions);
    for (const auto& [key, period] : roles) {
      if (period) CollectRole(OfRole(key, *period), out);
    }
    for (const auto& [variable, rhythm] : rhythms_) {
      const VariableInfo* info = definitions.Variable(variable);
      const auto period = Period(variable, rhythm);
      if (!IsModelState(info) || !period) continue;
      Hypothesis hypothesis;
      hypothesis.parameters = ChangeSpec{.kind = info->kind,
                                         .variable = info->FullName(),
                                         .steps = *period}
                                  .ToJson();
      const auto role = roles.find({info->kind, info->ClassRole()});
      if (*period == 0 && frozen_.count(variable)) {
        hypothesis.broader.push_back({Frozen().ToJson(), kByFrozen});
      } else if (role != roles.end() && role->second) {
        hypothesis.broader.push_back(
            {OfRole(role->first, *period).ToJson(), kByRole});
      }
      out->Add(std::move(hypothesis));
    }
  }

 private:
  using RoleKey = std::pair<VariableKind, std::string>;
  // The period of all variables of a role; nullopt: they have none in common.
  using Roles = std::map<RoleKey, std::optional<uint64_t>>;

  static ChangeSpec Frozen() {
    return {.kind = VariableKind::kParameter, .role = kFrozen};
  }
  static ChangeSpec OfRole(const RoleKey& key, uint64_t period) {
    return {.kind = key.first, .role = key.second, .steps = period};
  }
  // How often something changes is a matter of the program: others freeze such
  // a module for a while.
  static void CollectRole(const ChangeSpec& spec, HypothesisSet* out) {
    out->Add({spec.ToJson(), Scope::kExperiment, {}});
  }
  static bool IsModelState(const VariableInfo* info) {
    return info && (info->kind == VariableKind::kParameter ||
                    info->kind == VariableKind::kBuffer);
  }

  std::optional<uint64_t> Period(uint32_t variable,
                                 const Rhythm& rhythm) const {
    const auto period = rhythm.Period();
    // What is trained and stood still did so by chance: its gradients were
    // zero, or too small.
    if (period == 0 && held_.count(variable)) return std::nullopt;
    return period;
  }

  Roles CollectRoles(const ProcessDefinitions& definitions) const {
    Roles roles;
    for (const auto& [variable, rhythm] : rhythms_) {
      const VariableInfo* info = definitions.Variable(variable);
      if (!IsModelState(info) || info->owner_class.empty()) continue;
      auto period = Period(variable, rhythm);
      if (frozen_.count(variable)) period.reset();  // has a role of its own
      const auto [found, first] =
          roles.try_emplace({info->kind, info->ClassRole()}, period);
      // One with another period, or none, takes the rule from the whole role.
      if (!first && found->second != period) found->second.reset();
    }
    return roles;
  }

  StepEndChanges changes_;
  std::map<uint32_t, Rhythm> rhythms_;  // by variable
  std::set<uint32_t> frozen_;
  std::set<uint32_t> held_;
};

using ChangeRule = SpecRule<ChangeSpec>;
using Judged = JudgedRules<ChangeRule>;

class ChangesOfProcess : public ProcessObserver {
 public:
  explicit ChangesOfProcess(const Judged* judged) : judged_(judged) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    changes_.OnDefinition(type);
    if (type == RecordType::kVariableDef) named_.erase(id);
  }

  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    const auto change = changes_.OnState(facts, event);
    if (!change) return;
    for (const size_t place : Named(facts, event.variable_id)) {
      Judge(facts, event, *change, place);
    }
    // Asked at each record, while names are matched once: programs freeze and
    // unfreeze as they train.
    if (!IsFrozen(facts, event.variable_id)) return;
    for (size_t place = 0; place < judged_->rules.size(); ++place) {
      if (judged_->rules[place].spec.role == kFrozen) {
        Judge(facts, event, *change, place);
      }
    }
  }

  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    if (event.kind != MarkKind::kStepClosed || facts.recorded().whole()) return;
    // Their variables have no record at the end of such a step, so one verdict
    // a rule says that it was not judged.
    for (const size_t place : asked_) {
      Verdict verdict =
          NewVerdict(facts, judged_->rules[place].index, /*object=*/0);
      MarkUnknown(facts.not_sampled(), &verdict);
      judged_->sink->OnVerdict(verdict);
    }
  }

  void Fields(Archive& archive) override {
    archive(changes_, asked_, since_change_);
  }

 private:
  const std::vector<size_t>& Named(const ProcessFacts& facts,
                                   uint32_t variable) {
    const auto [found, added] = named_.try_emplace(variable);
    if (!added) return found->second;
    for (size_t place = 0; place < judged_->rules.size(); ++place) {
      const ChangeSpec& spec = judged_->rules[place].spec;
      if (spec.role != kFrozen && spec.Matches(facts, variable)) {
        found->second.push_back(place);
      }
    }
    return found->second;
  }

  static bool IsAsked(const ProcessFacts& facts, const ChangeSpec& spec,
                      uint32_t variable, const StepChange& change) {
    if (spec.steps == 0) return true;
    if (change.due == Tri::kNo) return false;
    return !spec.after_forward || facts.IsWrittenByForwards(variable);
  }

  // Was it to change, this many steps after its last change? nullopt: nobody
  // can tell.
  std::optional<bool> IsWanted(const ChangeSpec& spec, const StepChange& change,
                               uint64_t* since) {
    if (spec.steps <= 1) return spec.steps == 1;
    const bool known = *since > 0 && change.steps == 1;
    const bool wanted = *since == spec.steps;
    const bool changed = change.changed == Tri::kYes;
    // An unknown number of steps ends the count until the next change.
    *since = changed ? 1 : (known ? *since + 1 : 0);
    if (!known) return std::nullopt;
    return wanted;
  }

  void Judge(const ProcessFacts& facts, const StateEvent& event,
             const StepChange& change, size_t place) {
    const ChangeRule& rule = judged_->rules[place];
    // Also where the step asks for nothing: a step that is not sampled is then
    // unknown for this rule (OnMark).
    asked_.insert(place);
    uint64_t& since = since_change_[{place, event.variable_id}];
    // Before steps are counted: a period goes on behind a pause where it was,
    // as in Rhythm.
    if (!IsAsked(facts, rule.spec, event.variable_id, change)) return;
    Verdict verdict = NewVerdict(facts, rule.index, event.variable_id);
    verdict.step = static_cast<int64_t>(change.step);
    if (change.changed == Tri::kUnknown) {
      // The change may have been in this step: the count begins anew with the
      // next one that is seen.
      since = 0;
      MarkUnknown(change.reason, &verdict);
      return judged_->sink->OnVerdict(verdict);
    }
    const auto wanted = IsWanted(rule.spec, change, &since);
    if (!wanted) return;
    const bool changed = change.changed == Tri::kYes;
    // A variable that stands still is evidence only if something else of the
    // process changed in this step or the one before.
    verdict.varied = rule.spec.steps > 0 || change.others_changed;
    if (changed != *wanted) {
      // The learning rate was not seen. With a rate of 0 the variable would not
      // be asked to change.
      if (!changed && change.due == Tri::kUnknown) {
        MarkUnknown("the learning rate was not recorded", &verdict);
      } else {
        Violate(facts, event, changed, rule.spec, &verdict);
      }
    }
    judged_->sink->OnVerdict(verdict);
  }

  static void Violate(const ProcessFacts& facts, const StateEvent& event,
                      bool changed, const ChangeSpec& spec, Verdict* verdict) {
    // The call of the finding is the last writer, if that is known. Nobody
    // wrote a variable that did not change.
    Call writer;
    if (changed) {
      const Writer written = facts.Variable(event.variable_id)->data_writer();
      writer.function_id = written.function;
      writer.site = written.site;
    }
    MarkViolated(facts, writer, verdict);
    verdict->finding.variables = {event.variable->FullName()};
    verdict->finding.expected = spec.Describe();
    verdict->finding.seen = event.variable->FullName() +
                            (changed ? " changed" : " did not change") +
                            " in " + StepLabel(facts, *verdict);
  }

  const Judged* const judged_;
  std::unordered_map<uint32_t, std::vector<size_t>> named_;  // by variable
  StepEndChanges changes_;
  std::set<size_t> asked_;  // places of rules that had a variable
  // Steps since the last change, 0: none was seen; by place and variable.
  std::map<std::pair<size_t, uint32_t>, uint64_t> since_change_;
};

}  // namespace

const Relation* StateChange() {
  static const auto* const kRelation =
      new ProcessRelation<ChangeSpec, ChangesOfProcess>(
          "StateChange", NewSeenGenerator<ChangesSeen>);
  return kRelation;
}

}  // namespace traincheck
