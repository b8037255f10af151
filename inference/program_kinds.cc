#include "inference/program_kinds.h"

#include <algorithm>

#include "base/hash.h"
#include "invariants/facts/process_facts.h"

namespace traincheck {

namespace {

bool Share(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&b](const std::string& one) { return b.count(one) > 0; });
}

}  // namespace

std::unique_ptr<ProcessObserver> ModelCollector::AddProcess(
    const ProcessFacts& facts) {
  processes_.push_back(&facts);
  return std::make_unique<ProcessObserver>();  // keeps nothing
}

void ModelCollector::EndRun() {
  // All processes together: a rank may hold a part of the model only.
  std::map<std::string, std::set<std::string>> names;  // by root class
  for (const ProcessFacts* facts : processes_) {
    for (const auto& [id, variable] : facts->definitions().variables()) {
      if (variable.kind == VariableKind::kParameter ||
          variable.kind == VariableKind::kBuffer) {
        names[variable.root_class].insert(variable.name);
      }
    }
  }
  for (const auto& [root, variables] : names) {
    std::string text = root;
    for (const std::string& name : variables) text += '\n' + name;
    // Models are compared only, and have thousands of names.
    models_.insert(HashText(text));
  }
}

void ProgramKinds::Add(const std::string& program,
                       const std::set<std::string>& models) {
  models_[program].insert(models.begin(), models.end());
}

// `kinds` are the models of the kinds found so far; no two of them share a
// model.
size_t ProgramKinds::Count(const std::vector<std::string>& programs) const {
  // Each program joins the kinds that it shares a model with.
  std::vector<std::set<std::string>> kinds;
  for (const std::string& program : programs) {
    const auto found = models_.find(program);
    std::set<std::string> joined;
    if (found != models_.end()) joined = found->second;
    // A program may share models with two kinds that share none: all three are
    // one then.
    std::vector<std::set<std::string>> others;
    for (std::set<std::string>& kind : kinds) {
      if (Share(kind, joined)) {
        joined.insert(kind.begin(), kind.end());
      } else {
        others.push_back(std::move(kind));
      }
    }
    others.push_back(std::move(joined));
    kinds = std::move(others);
  }
  return kinds.size();
}

}  // namespace traincheck
