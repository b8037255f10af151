#include "ctl/text/xml_escape.h"

#include <gtest/gtest.h>

namespace traincheck::ctl {
namespace {

TEST(XmlEscape, MarkupIsText) {
  EXPECT_EQ(XmlEscape("plain 'text'"), "plain 'text'");
  EXPECT_EQ(XmlEscape("a < b && \"c\" > d ]]>"),
            "a &lt; b &amp;&amp; &quot;c&quot; &gt; d ]]&gt;");
  EXPECT_EQ(XmlEscape("two\nlines\tand\r"), "two&#10;lines&#9;and&#13;");
}

TEST(XmlEscape, WhatXmlForbidsIsReplaced) {
  EXPECT_EQ(XmlEscape(std::string("\0\x1b[31m", 6)), "??[31m");
  EXPECT_EQ(XmlEscape("\xff"), "?");
  EXPECT_EQ(XmlEscape("a\xef\xbf\xbf z"), "a? z");
  EXPECT_EQ(XmlEscape("\xc3\xa4\xef\xbf\xbd"), "\xc3\xa4\xef\xbf\xbd");
}

}  // namespace
}  // namespace traincheck::ctl
