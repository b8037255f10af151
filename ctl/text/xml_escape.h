// Text within XML.
//
// Threads: pure.
#ifndef TRAINCHECK_CTL_TEXT_XML_ESCAPE_H_
#define TRAINCHECK_CTL_TEXT_XML_ESCAPE_H_

#include <string>
#include <string_view>

namespace traincheck::ctl {

// `text` as content of an element or, between double quotes, of an attribute.
// What no XML document may hold, control characters and what is not UTF-8,
// becomes "?".
std::string XmlEscape(std::string_view text);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_XML_ESCAPE_H_
