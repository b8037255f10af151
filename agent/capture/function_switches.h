// Functions switched on and off by name while the program runs. What is
// switched off stays wrapped and costs its caller one test of a flag.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_FUNCTION_SWITCHES_H_
#define TRAINCHECK_AGENT_CAPTURE_FUNCTION_SWITCHES_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace traincheck {

struct Function;

class FunctionSwitches {
 public:
  static FunctionSwitches& Get();

  // The function has its name now: what was said of it before holds for it.
  void Add(Function& function);
  // REQUIRES: before it is gone, if it was added.
  void Remove(const Function& function);

  // Of all functions whose name is like the pattern (fnmatch), those that are
  // there and those to come. The last word on a name holds. Returns how many
  // of those that are there it is about.
  size_t Set(const std::string& pattern, bool active);

 private:
  std::vector<Function*> functions_;
  std::vector<std::pair<std::string, bool>> rules_;  // each pattern once
};

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_CAPTURE_FUNCTION_SWITCHES_H_
