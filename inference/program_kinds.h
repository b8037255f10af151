// Which programs are of different kind: those that train no model in common. A
// model is a root class with the names of its parameters and buffers, so that
// two programs with a class Net are of one kind only if it is the same Net.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INFERENCE_PROGRAM_KINDS_H_
#define TRAINCHECK_INFERENCE_PROGRAM_KINDS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "invariants/rules/relation.h"

namespace traincheck {

// The models of one run, once it has ended. REQUIRES: its processes are kept
// until then.
class ModelCollector : public RunObserver {
 public:
  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override;
  void EndRun() override;
  const std::set<std::string>& models() const { return models_; }

 private:
  std::vector<const ProcessFacts*> processes_;
  std::set<std::string> models_;
};

class ProgramKinds {
 public:
  // Models of one run of the program.
  void Add(const std::string& program, const std::set<std::string>& models);
  // How many kinds there are among them. A program without models is a kind of
  // its own.
  size_t Count(const std::vector<std::string>& programs) const;

 private:
  std::map<std::string, std::set<std::string>> models_;  // by program
};

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_PROGRAM_KINDS_H_
