#include "ctl/text/xml_escape.h"

#include "base/utf8.h"

namespace traincheck::ctl {
namespace {

// U+FFFE and U+FFFF, the only characters above the controls that XML forbids,
// but for surrogates, which UTF-8 cannot encode.
bool IsForbidden(std::string_view character) {
  return character == "\xef\xbf\xbe" || character == "\xef\xbf\xbf";
}

void Append(char c, std::string* xml) {
  switch (c) {
    case '&':
      *xml += "&amp;";
      return;
    case '<':
      *xml += "&lt;";
      return;
    case '>':
      *xml += "&gt;";
      return;
    case '"':
      *xml += "&quot;";
      return;
    // In an attribute these would be read as spaces.
    case '\n':
      *xml += "&#10;";
      return;
    case '\r':
      *xml += "&#13;";
      return;
    case '\t':
      *xml += "&#9;";
      return;
    default:
      // XML 1.0 has no form for other control characters, not even an escape.
      *xml += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
}

}  // namespace

std::string XmlEscape(std::string_view text) {
  // First, so that a character that was cut is replaced as a whole.
  const std::string utf8 = ToUtf8(text);
  std::string xml;
  for (size_t i = 0; i < utf8.size(); ++i) {
    if (IsForbidden(std::string_view(utf8).substr(i, 3))) {
      xml += '?';
      i += 2;
    } else {
      Append(utf8[i], &xml);
    }
  }
  return xml;
}

}  // namespace traincheck::ctl
