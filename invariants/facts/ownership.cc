#include "invariants/facts/ownership.h"

#include <algorithm>

namespace traincheck {

void Ownership::Refresh() const {
  if (!stale_) return;
  stale_ = false;
  // All is built anew when it is asked for next, so that the many definitions
  // of a new model cost one pass.
  optimizers_.clear();
  holders_.clear();
  group_of_.clear();
  in_storage_.clear();
  replicated_models_.clear();
  // Groups come before the optimizers' state, which is found by the names of
  // replicas, and both before the optimizers, which take the wrappers of their
  // variables' groups.
  for (const auto& [id, info] : definitions_->variables()) {
    if (info.alias_group != 0) ++in_storage_[info.alias_group];
  }
  for (const auto& [id, group] : definitions_->groups()) {
    for (uint32_t variable : group.variables) group_of_[variable] = id;
    const ObjectInfo* wrapper = definitions_->Object(group.wrapper);
    if (wrapper && wrapper->wrapped != 0) {
      replicated_models_.insert(wrapper->wrapped);
    }
  }
  AddOptimizerState();
  for (const auto& [key, variables] : definitions_->holds()) {
    // One entry for each parameter group of an optimizer.
    Optimizer& optimizer = optimizers_[key.first];
    optimizer.object = key.first;
    for (uint32_t variable : variables) {
      optimizer.held.push_back({variable, key.second});
      std::vector<uint32_t>& holders = holders_[variable];
      // The groups of an optimizer come one after the other.
      if (holders.empty() || holders.back() != key.first) {
        holders.push_back(key.first);
      }
    }
  }
  CountOptimizers();
  AddModules();
}

// What an optimizer keeps of a replicated parameter (moments) is equal on all
// ranks as well. No wrapper names these variables, so they are found by their
// names.
void Ownership::AddOptimizerState() const {
  std::unordered_map<std::string, uint32_t> group_of_name;
  for (const auto& [variable, group] : group_of_) {
    const VariableInfo* info = definitions_->Variable(variable);
    if (info) group_of_name[info->FullName()] = group;
  }
  if (group_of_name.empty()) return;
  for (const auto& [id, info] : definitions_->variables()) {
    if (info.kind != VariableKind::kOptimizerState) continue;
    const std::string name = info.FullName();
    // "fc.weight/exp_avg": the parameter's name stands before the last slash.
    const auto found = group_of_name.find(name.substr(0, name.rfind('/')));
    if (found != group_of_name.end()) group_of_[id] = found->second;
  }
}

// Objects are numbered as they are defined, so that one that comes later
// leaves the ordinals before it as they were.
void Ownership::CountOptimizers() const {
  std::vector<uint32_t> all;
  for (const auto& [id, object] : definitions_->objects()) {
    if (object.kind == ObjectKind::kOptimizer) all.push_back(id);
  }
  std::sort(all.begin(), all.end());
  for (auto& [id, optimizer] : optimizers_) {
    optimizer.ordinal = static_cast<uint32_t>(
        std::lower_bound(all.begin(), all.end(), id) - all.begin());
  }
}

void Ownership::AddModules() const {
  std::unordered_map<uint32_t, std::vector<uint32_t>> wrappers_of;
  for (const auto& [id, object] : definitions_->objects()) {
    if (object.wrapped != 0) wrappers_of[object.wrapped].push_back(id);
  }
  for (auto& [id, optimizer] : optimizers_) {
    AddHeldModules(&optimizer);
    for (const uint32_t module : optimizer.modules) {
      const auto found = wrappers_of.find(module);
      if (found == wrappers_of.end()) continue;
      optimizer.wrappers.insert(found->second.begin(), found->second.end());
    }
    // zero_grad may be called on the wrapper as well as on the model in it.
    optimizer.modules.insert(optimizer.wrappers.begin(),
                             optimizer.wrappers.end());
  }
}

void Ownership::AddHeldModules(Optimizer* optimizer) const {
  for (const HeldVariable& held : optimizer->held) {
    const VariableInfo* variable = definitions_->Variable(held.variable);
    // A tensor in no model has its optimizer as root.
    const ObjectInfo* root =
        variable ? definitions_->Object(variable->root) : nullptr;
    if (root && root->kind == ObjectKind::kModule) {
      optimizer->modules.insert(variable->root);
    }
    const auto group = group_of_.find(held.variable);
    if (group == group_of_.end()) continue;
    const uint32_t wrapper = definitions_->groups().at(group->second).wrapper;
    if (wrapper != 0) optimizer->wrappers.insert(wrapper);
  }
}

const Optimizer* Ownership::Find(uint32_t optimizer) const {
  Refresh();
  const auto found = optimizers_.find(optimizer);
  return found == optimizers_.end() ? nullptr : &found->second;
}

bool Ownership::HasSeveralOptimizers() const {
  Refresh();
  return optimizers_.size() > 1;
}

bool Ownership::IsTied(uint32_t variable) const {
  Refresh();
  const VariableInfo* info = definitions_->Variable(variable);
  if (!info || info->alias_group == 0) return false;
  const auto found = in_storage_.find(info->alias_group);
  return found != in_storage_.end() && found->second > 1;
}

bool Ownership::IsHeld(uint32_t variable) const {
  return !HoldersOf(variable).empty();
}

const std::vector<uint32_t>& Ownership::HoldersOf(uint32_t variable) const {
  static const auto* const kNobody = new std::vector<uint32_t>();
  Refresh();
  const auto found = holders_.find(variable);
  return found == holders_.end() ? *kNobody : found->second;
}

bool Ownership::Clears(uint32_t object, uint32_t optimizer) const {
  if (object == optimizer) return true;
  const Optimizer* found = Find(optimizer);
  return found && found->modules.count(object) != 0;
}

const ReplicaGroupInfo* Ownership::GroupOf(uint32_t variable) const {
  Refresh();
  const auto found = group_of_.find(variable);
  if (found == group_of_.end()) return nullptr;
  return &definitions_->groups().at(found->second);
}

bool Ownership::IsReplicatedModel(uint32_t module) const {
  Refresh();
  return replicated_models_.count(module) != 0;
}

bool Ownership::IsInstance(uint32_t object,
                           const std::string& class_name) const {
  const ObjectInfo* info = definitions_->Object(object);
  if (!info) return false;
  return info->class_name == class_name ||
         // The definition has all classes that its class derives from.
         std::find(info->bases.begin(), info->bases.end(), class_name) !=
             info->bases.end();
}

}  // namespace traincheck
