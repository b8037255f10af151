// Who holds what: facts var.held_by, var.replica_group, var.alias_group and the
// modules and wrappers that belong to an optimizer, from HoldDef, ObjectDef,
// VariableDef and ReplicaGroupDef.
//
// Known as soon as the definitions are; rebuilt when one of them changes.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_OWNERSHIP_H_
#define TRAINCHECK_INVARIANTS_FACTS_OWNERSHIP_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "invariants/trace/definitions.h"

namespace traincheck {

struct HeldVariable {
  uint32_t variable = 0;
  uint32_t group = 0;  // parameter group
};

// One optimizer and what belongs to it.
struct Optimizer {
  uint32_t object = 0;
  uint32_t ordinal = 0;  // among the optimizers of the process, as constructed
  std::vector<HeldVariable> held;
  // Modules of whose variables it holds some: their roots, the wrappers of
  // these, and the wrappers of replica groups with a held variable.
  std::set<uint32_t> modules;
  std::set<uint32_t> wrappers;  // the wrappers alone
};

class Ownership {
 public:
  explicit Ownership(const ProcessDefinitions* definitions)
      : definitions_(definitions) {}

  void OnDefinition(RecordType type) {
    stale_ |= type == RecordType::kHoldDef || type == RecordType::kObjectDef ||
              type == RecordType::kVariableDef ||
              type == RecordType::kReplicaGroupDef;
  }

  // The definitions are others than before.
  void OnRestored() { stale_ = true; }

  // Null: holds nothing that is known.
  const Optimizer* Find(uint32_t optimizer) const;
  bool HasSeveralOptimizers() const;
  bool IsHeld(uint32_t variable) const;
  // The optimizers that hold it, by their numbers. Until the next definition.
  const std::vector<uint32_t>& HoldersOf(uint32_t variable) const;
  // Does zero_grad of this object clear the gradients of the optimizer?
  bool Clears(uint32_t object, uint32_t optimizer) const;
  // Null: no evidence that the variable has replicas.
  const ReplicaGroupInfo* GroupOf(uint32_t variable) const;
  // Has this module, as a whole, a wrapper that keeps replicas of it?
  bool IsReplicatedModel(uint32_t module) const;
  // Does another variable lie in the same storage?
  bool IsTied(uint32_t variable) const;
  // Is the object of this class, or of a subclass?
  bool IsInstance(uint32_t object, const std::string& class_name) const;

 private:
  void Refresh() const;
  void CountOptimizers() const;
  void AddModules() const;
  void AddHeldModules(Optimizer* optimizer) const;
  void AddOptimizerState() const;

  const ProcessDefinitions* const definitions_;
  mutable bool stale_ = true;
  mutable std::map<uint32_t, Optimizer> optimizers_;
  mutable std::unordered_map<uint32_t, std::vector<uint32_t>> holders_;
  mutable std::unordered_map<uint32_t, uint32_t> group_of_;
  mutable std::set<uint32_t> replicated_models_;
  mutable std::unordered_map<uint64_t, size_t> in_storage_;  // variables
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_OWNERSHIP_H_
