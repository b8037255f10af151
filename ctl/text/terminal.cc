#include "ctl/text/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace traincheck::ctl {
namespace {

constexpr char kBoldRed[] = "\x1b[1;31m";
constexpr char kPlain[] = "\x1b[0m";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

size_t StdoutColumns() {
  winsize size = {};
  // Files and pipes get whole lines: scripts read them.
  if (isatty(STDOUT_FILENO) != 1) return 0;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool MayColour(int fd) {
  return isatty(fd) == 1 && Variable("NO_COLOR").empty() &&
         Variable("TERM") != "dumb";
}

std::string WithAlarm(std::string text, const std::string& word) {
  // Only where the word stands first, in the headline; it may occur again in
  // names.
  const size_t at = text.find(word);
  if (at == std::string::npos) return text;
  text.replace(at, word.size(), absl::StrCat(kBoldRed, word, kPlain));
  return text;
}

}  // namespace traincheck::ctl
