// The terminal that this program may write to.
//
// Threads: any.
#ifndef TRAINCHECK_CTL_TEXT_TERMINAL_H_
#define TRAINCHECK_CTL_TEXT_TERMINAL_H_

#include <cstddef>
#include <string>

namespace traincheck::ctl {

// Columns of the terminal that stdout is; 0: it is not a terminal, or one that
// does not say.
size_t StdoutColumns();

// `fd` is a terminal, and neither NO_COLOR (no-color.org) nor TERM=dumb says
// that it is to stay without colours.
bool MayColour(int fd);

// `text` with the first `word` in bold red.
std::string WithAlarm(std::string text, const std::string& word);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_TERMINAL_H_
