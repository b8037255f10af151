#include "ctl/text/progress_line.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace traincheck::ctl {
namespace {

constexpr int kBarWidth = 30;
// Carriage return and "erase to the end of the line".
constexpr char kRedraw[] = "\r\x1b[K";

}  // namespace

ProgressLine::~ProgressLine() {
  // Taken away, so that the result stands alone on the terminal.
  if (terminal_ && !stage_.empty()) out_ << kRedraw << std::flush;
}

void ProgressLine::Update(const std::string& stage, double fraction) {
  const bool new_stage = stage != stage_;
  stage_ = stage;
  if (terminal_) {
    // The fraction comes from the daemon; the bar has no more room than its
    // width.
    const double part = std::clamp(fraction, 0.0, 1.0);
    const int filled = static_cast<int>(part * kBarWidth);
    out_ << kRedraw
         << absl::StrFormat("[%s%s] %3.0f%% %s", std::string(filled, '#'),
                            std::string(kBarWidth - filled, ' '), part * 100,
                            stage)
         << std::flush;
  } else if (new_stage) {
    // A file gets a line for each stage: redrawn lines would fill a job's log.
    out_ << stage << "\n" << std::flush;
  }
}

}  // namespace traincheck::ctl
