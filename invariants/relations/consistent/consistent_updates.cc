#include "invariants/relations/consistent/consistent_updates.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json_reader.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/relations/consistent/update_comparison.h"
#include "invariants/rules/rank_groups.h"
#include "invariants/rules/rank_relation.h"
#include "invariants/rules/state_block.h"

namespace traincheck {

namespace {

nlohmann::json Parameters() {
  return {{"across", "ranks"},
          {"of", "parameter.data"},
          {"point", "post_step"},
          {"given", "equal gradients"}};
}

struct UpdatesSpec {
  static absl::StatusOr<UpdatesSpec> Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
    JsonReader reader(parameters, path);
    for (const char* key : {"across", "of", "point", "given"}) {
      const auto only = Parameters()[key].get<std::string>();
      if (reader.String(key) != only) reader.Fail(key, "not \"" + only + "\"");
    }
    return reader.Finish(UpdatesSpec());
  }
  static std::string Describe() {
    return "Parameters that are equal on all ranks of a process group, and get "
           "equal gradients, are equal when the optimizer step ends.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  static void AddNeeds(CaptureNeeds* needs) {
    needs->Gradients();
    for (const char* point : {"pre_step", "post_step"}) {
      needs->State("parameter.data", point);
    }
  }
};

// The number as it lies in memory. It goes into a hash that is only compared
// within one check, so the order of the bytes does not matter.
std::string Bytes(uint64_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

class UpdatesOfProcess : public StateBlocks {
 public:
  explicit UpdatesOfProcess(RankRules<UpdatesSpec, UpdateComparison>* judged)
      : judged_(judged) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    groups_.OnDefinition(type);
  }
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    StateBlocks::OnState(facts, event);
    // The gradient as the backward left it. At pre_step it may have been
    // clipped by each rank, which is what this rule is to find.
    if (event.point != StatePoint::kBackwardEnd) return;
    const bool given = event.Has(kHasGrad) && !event.Has(kGradIsZero) &&
                       !event.Has(kUnreadable);
    if (given) {
      // Each backward replaces it: the last one before the step leaves what the
      // step takes.
      gradients_[event.variable_id] = {event.grad, facts.gaps()};
    } else {
      gradients_.erase(event.variable_id);
    }
  }

  void Fields(Archive& archive) override {
    StateBlocks::Fields(archive);
    archive(gradients_);
  }

 private:
  // As the last backward left it.
  struct Gradient {
    uint64_t digest = 0;
    uint64_t gaps = 0;

    void Fields(Archive& archive) { archive(digest, gaps); }
  };

  using Entries = std::unordered_map<uint32_t, const BlockEntry*>;

  // Of one step, by variable, of those that got a gradient.
  struct Updates {
    std::map<uint32_t, Update> known;
    std::map<uint32_t, std::string> unread;  // why
  };

  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    // The two blocks of a step come in this order with nothing between them, so
    // `before_` is not saved.
    if (block.point == StatePoint::kPreStep) before_ = block;
    if (block.point != StatePoint::kPostStep) return;
    const Optimizer* optimizer = facts.ownership().Find(block.object);
    if (!optimizer) return;
    // A block without a count cannot be aligned with other ranks. Workers of
    // loaders train nothing.
    if (facts.rank() && !facts.is_worker() && block.index) {
      Judge(facts, *optimizer, block);
    }
    for (const HeldVariable& held : optimizer->held) {
      // The next step needs gradients of its own: an old one is no evidence.
      gradients_.erase(held.variable);
    }
  }

  void Judge(const ProcessFacts& facts, const Optimizer& optimizer,
             const StateBlock& after);
  static void AddUpdates(const std::vector<HeldVariable>& held,
                         const Updates& all, UpdateWindow* window);
  Updates UpdatesOf(const ProcessFacts& facts,
                    const std::vector<HeldVariable>& held,
                    const StateBlock& after) const;
  // What all that makes a parameter's new data comes from; nullopt: it got no
  // gradient, or not all is known.
  std::optional<uint64_t> Given(const ProcessFacts& facts,
                                const Entries& before, uint32_t variable,
                                std::optional<double> rate) const;

  RankRules<UpdatesSpec, UpdateComparison>* const judged_;
  KnownGroups groups_;
  std::map<uint32_t, Gradient> gradients_;  // by variable
  StateBlock before_;
};

void UpdatesOfProcess::Judge(const ProcessFacts& facts,
                             const Optimizer& optimizer,
                             const StateBlock& after) {
  UpdateWindow window;
  window.ordinal = after.ordinal;
  window.index = *after.index;
  if (after.step) window.step = static_cast<int64_t>(*after.step);
  // A backward whose gradients were not recorded may have given other ones than
  // those that are kept.
  window.unknown = facts.optimizer_books().MissedBackwardSince(after.object)
                       ? facts.not_sampled()
                       : after.broken;
  std::optional<Updates> all;  // made where some group wants them
  for (const RankGroup& group : groups_.Of(facts)) {
    std::vector<HeldVariable> held = optimizer.held;
    // Replicas of a wrapper are judged by consistent_ranks.h.
    std::erase_if(held, [&](const HeldVariable& one) {
      return AreReplicas(facts, one.variable, group.ranks);
    });
    if (held.empty()) continue;
    // Once for all groups, which hash the same values.
    if (!all && window.unknown.empty()) {
      all = UpdatesOf(facts, optimizer.held, after);
    }
    UpdateWindow of_group = window;
    of_group.ranks = group.ranks;
    if (all) AddUpdates(held, *all, &of_group);
    for (const auto& rule : judged_->rules) {
      judged_->comparison.Add(facts, rule.index, of_group);
    }
  }
}

void UpdatesOfProcess::AddUpdates(const std::vector<HeldVariable>& held,
                                  const Updates& all, UpdateWindow* window) {
  for (const HeldVariable& one : held) {
    const auto update = all.known.find(one.variable);
    if (update != all.known.end()) window->updates.push_back(update->second);
    const auto unread = all.unread.find(one.variable);
    if (unread != all.unread.end()) window->unknown = unread->second;
  }
}

UpdatesOfProcess::Updates UpdatesOfProcess::UpdatesOf(
    const ProcessFacts& facts, const std::vector<HeldVariable>& held,
    const StateBlock& after) const {
  Updates updates;
  Entries before, now;
  for (const BlockEntry& entry : before_.entries) {
    before[entry.variable] = &entry;
  }
  for (const BlockEntry& entry : after.entries) now[entry.variable] = &entry;
  for (const HeldVariable& one : held) {
    const auto given =
        Given(facts, before, one.variable,
              facts.optimizer_books().LearningRate(after.object, one.group));
    // The parameter got no gradient that is known. Whatever became of its data,
    // the rule does not ask about it.
    if (!given) continue;
    const std::string name =
        facts.definitions().Variable(one.variable)->FullName();
    const auto entry = now.find(one.variable);
    if (entry == now.end() || !entry->second->data) {
      updates.unread[one.variable] =
          name + " could not be read on " + facts.Name();
      continue;
    }
    updates.known[one.variable] = {
        .name = name,
        .given = *given,
        .after = *entry->second->data,
        .grad_at_step = before.at(one.variable)->grad,
        .writer = entry->second->data_writer};
  }
  return updates;
}

std::optional<uint64_t> UpdatesOfProcess::Given(
    const ProcessFacts& facts, const Entries& before, uint32_t variable,
    std::optional<double> rate) const {
  // A gradient that was seen before records went missing may have been replaced
  // unseen.
  const auto gradient = gradients_.find(variable);
  const auto entry = before.find(variable);
  const VariableInfo* info = facts.definitions().Variable(variable);
  if (gradient == gradients_.end() || entry == before.end() ||
      !entry->second->data || !info || gradient->second.gaps != facts.gaps()) {
    return std::nullopt;
  }
  // One hash of everything that the update is computed from, so that ranks are
  // compared by a single value.
  std::string parts =
      Bytes(*entry->second->data) + Bytes(gradient->second.digest);
  for (const uint64_t size : info->shape) parts += Bytes(size);
  // An optimizer may have no rate.
  uint64_t bits = 0;
  if (rate) std::memcpy(&bits, &*rate, sizeof bits);
  return StableHash(parts + Bytes(bits));
}

// The rule follows from what an optimizer is: it is built in, and no run
// teaches it.
class UpdatesSeen : public ProcessObserver {
 public:
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {}
};

}  // namespace

const Relation* ConsistentUpdates() {
  static const auto* const kForm =
      new RankRelation<UpdatesSpec, UpdatesOfProcess, UpdateComparison>(
          "Consistent", NewSeenGenerator<UpdatesSeen>);
  return kForm;
}

}  // namespace traincheck
