// Progress of a long command: one line that is redrawn on a terminal, one line
// a stage elsewhere.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CTL_TEXT_PROGRESS_LINE_H_
#define TRAINCHECK_CTL_TEXT_PROGRESS_LINE_H_

#include <ostream>
#include <string>

namespace traincheck::ctl {

class ProgressLine {
 public:
  ProgressLine(std::ostream* out, bool terminal)
      : out_(*out), terminal_(terminal) {}
  // Clears what stands on a terminal.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `fraction` of the whole, 0 to 1.
  void Update(const std::string& stage, double fraction);

 private:
  std::ostream& out_;
  const bool terminal_;
  std::string stage_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_PROGRESS_LINE_H_
