#include "invariants/traincheck/conformance/py_value.h"

#include <gtest/gtest.h>

#include "invariants/traincheck/conformance/py_json.h"
#include "invariants/traincheck/conformance/py_path.h"

namespace traincheck {
namespace {

class PyValueTest : public testing::Test {
 protected:
  PyValue Parse(const std::string& text) {
    const auto value = ParsePyJsonUntrusted(text, &pool_);
    EXPECT_TRUE(value.ok()) << text << ": " << value.status();
    return value.ok() ? *value : PyValue();
  }
  std::string ErrorOf(const std::string& text) {
    return std::string(ParsePyJsonUntrusted(text, &pool_).status().message());
  }

  PyPool pool_;
};

TEST_F(PyValueTest, NumbersAreEqualAcrossTypes) {
  EXPECT_EQ(Parse("1"), Parse("1.0"));
  EXPECT_EQ(Parse("1"), Parse("true"));
  EXPECT_EQ(Parse("false"), Parse("-0.0"));
  EXPECT_NE(Parse("9007199254740993"), Parse("9007199254740992.0"));
  EXPECT_NE(Parse("9223372036854775807"), Parse("9223372036854775808"));
  EXPECT_EQ(Parse("18446744073709551616"), Parse("18446744073709551616.0"));
  EXPECT_NE(Parse("18446744073709551616"), Parse("18446744073709551617"));
  EXPECT_NE(Parse("1"), Parse("\"1\""));
}

TEST_F(PyValueTest, NaNIsEqualToNothingAndNoneToItself) {
  EXPECT_TRUE(Parse("NaN").absent());
  EXPECT_NE(Parse("NaN"), Parse("NaN"));
  EXPECT_EQ(Parse("null"), Parse("null"));
  EXPECT_NE(Parse("null"), Parse("0"));
  EXPECT_EQ(Parse("[1, null]"), Parse("[1.0, null]"));
  EXPECT_NE(Parse("[NaN]"), Parse("[NaN]"));
}

TEST_F(PyValueTest, ObjectsCompareWithoutOrderAndKeepTheLastOfAKey) {
  EXPECT_EQ(Parse(R"({"a": 1, "b": [2]})"), Parse(R"({"b": [2], "a": true})"));
  EXPECT_NE(Parse(R"({"a": 1})"), Parse(R"({"a": 1, "b": 1})"));
  const PyValue twice = Parse(R"({"a": 1, "b": 2, "a": 3})");
  ASSERT_EQ(twice.object().size(), 2u);
  EXPECT_EQ(*twice.object()[0].key, "a");
  EXPECT_EQ(*twice.Find("a"), Parse("3"));
}

TEST_F(PyValueTest, PythonsNumbersAreReadOutsideOfTexts) {
  EXPECT_EQ(Parse(R"(["NaN \" -Infinity", -Infinity])").list()[0].text(),
            "NaN \" -Infinity");
  EXPECT_LT(Parse("[-Infinity]").list()[0].real(), -1e300);
  EXPECT_GT(Parse("Infinity").real(), 1e300);
}

TEST_F(PyValueTest, WhatIsNoJsonIsNamed) {
  EXPECT_EQ(ErrorOf(R"({"a": nan})"), "not valid JSON at byte 8");
  EXPECT_EQ(ErrorOf("1e999"), "a number beyond a double");
  EXPECT_EQ(ErrorOf(std::string(65, '[')), "nested deeper than 64");
  EXPECT_NE(ErrorOf(""), "");
  EXPECT_NE(ErrorOf("{} {}"), "");
  EXPECT_NE(ErrorOf("\"\xff\""), "");
}

// Python refuses such lines, and with them the trace.
TEST_F(PyValueTest, PythonsNumbersStandWhereAValueMayBegin) {
  for (const char* text :
       {"-NaN", "0.NaN", "1NaN", "--Infinity", "+Infinity", "NaN5", "NaNNaN",
        "Infinity.5", "-Infinitye3", "NaN-Infinity", "[1 NaN]", "0Infinity",
        R"({"a" NaN})", R"(["a" NaN])"}) {
    EXPECT_NE(ErrorOf(text), "") << text;
  }
  EXPECT_TRUE(Parse(" NaN ").absent());
  EXPECT_TRUE(Parse("[ \t\n\rNaN\t]").list()[0].absent());
  EXPECT_TRUE(Parse("[NaN,NaN]").list()[1].absent());
  EXPECT_TRUE(Parse(R"({"a":NaN})").Find("a")->absent());
  EXPECT_LT(Parse(R"({"a": -Infinity})").Find("a")->real(), -1e300);
}

TEST_F(PyValueTest, LookingUpIsPythons) {
  const PyValue list = Parse("[1, 2]");
  EXPECT_EQ(*PyItem(list, Parse("-1")).value, Parse("2"));
  EXPECT_TRUE(PyItem(list, Parse("2")).missing);
  EXPECT_TRUE(PyItem(list, Parse("-3")).missing);
  EXPECT_FALSE(PyItem(list, Parse("\"a\"")).missing);  // a TypeError
  EXPECT_FALSE(PyItem(Parse("3"), Parse("0")).missing);
  const PyValue object = Parse(R"({"_ML_DAIKON_data_ID": 5})");
  EXPECT_EQ(*PyItem(object, Parse("\"_TRAINCHECK_data_ID\"")).value,
            Parse("5"));
  EXPECT_TRUE(PyItem(object, Parse("\"data_ID\"")).missing);
  EXPECT_EQ(PyContains(list, Parse("1.0")), PyContained::kYes);
  EXPECT_EQ(PyContains(Parse("\"abc\""), Parse("\"b\"")), PyContained::kYes);
  EXPECT_EQ(PyContains(Parse("5"), Parse("1")), PyContained::kError);
}

TEST_F(PyValueTest, OnlyNumbersAndTextsHaveAnOrder) {
  bool nan = false;
  EXPECT_LT(*ComparePyValues(Parse("1"), Parse("1.5"), &nan), 0);
  EXPECT_GT(*ComparePyValues(Parse("99999999999999999999"), Parse("1"), &nan),
            0);
  EXPECT_GT(*ComparePyValues(Parse("\"b\""), Parse("\"a\""), &nan), 0);
  EXPECT_FALSE(ComparePyValues(Parse("\"b\""), Parse("1"), &nan));
  EXPECT_FALSE(ComparePyValues(Parse("null"), Parse("null"), &nan));
  EXPECT_FALSE(nan);
  EXPECT_TRUE(ComparePyValues(Parse("NaN"), Parse("1"), &nan));
  EXPECT_TRUE(nan);
}

}  // namespace
}  // namespace traincheck
