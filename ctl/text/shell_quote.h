// Words that a POSIX shell reads back unchanged.
#ifndef TRAINCHECK_CTL_TEXT_SHELL_QUOTE_H_
#define TRAINCHECK_CTL_TEXT_SHELL_QUOTE_H_

#include <string>

namespace traincheck::ctl {

// `text` itself if no shell gives any of its characters a meaning, else in
// single quotes.
std::string ShellQuote(const std::string& text);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_SHELL_QUOTE_H_
