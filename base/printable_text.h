// Text of others in our output. Whoever names a run, a script, a host or a rule
// must not be able to move the cursor, turn the direction of the line or begin
// another one.
//
// Threads: pure functions.
#ifndef TRAINCHECK_BASE_PRINTABLE_TEXT_H_
#define TRAINCHECK_BASE_PRINTABLE_TEXT_H_

#include <string>
#include <string_view>

namespace traincheck {

// `utf8` with every character that is not printable as `\u{9b}`, its number in
// hexadecimal: controls (C0, DEL, C1), format characters (Cf: directions,
// joiners, soft hyphens, tags), separators of lines and paragraphs, private use
// and what is no character. A byte that is not UTF-8 becomes `\x{9b}`. Spaces
// and backslashes stay, so that escaping twice changes nothing.
std::string EscapeUnprintable(std::string_view utf8);

// Would EscapeUnprintable leave it as it is?
bool IsPrintable(std::string_view utf8);

// The same in double quotes, with `"` and `\` behind a backslash: one value of
// a line of key="value" that cannot end early.
std::string QuotePrintable(std::string_view utf8);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_PRINTABLE_TEXT_H_
