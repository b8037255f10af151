// Text of unknown origin as UTF-8, which JSON and protobuf ask for.
//
// Threads: pure functions.
#ifndef TRAINCHECK_BASE_UTF8_H_
#define TRAINCHECK_BASE_UTF8_H_

#include <string>
#include <string_view>

namespace traincheck {

// Every byte that is not part of a whole character becomes '?'. Overlong
// forms, surrogates and what lies above U+10FFFF are not characters.
std::string ToUtf8(std::string_view bytes);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_UTF8_H_
