// Whatever ParseSettings takes, a YAML library reads as the same.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "proto/settings/settings_file.h"

namespace traincheck {
namespace {

constexpr char kReader[] = "/usr/bin/python3 proto/settings/as_yaml.py";
constexpr int kNoLibrary = 77;
constexpr int kTexts = 20000;
constexpr size_t kLeastTaken = 2000;

std::string Hex(const std::string& text) {
  std::string hex;
  for (const unsigned char c : text) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", c);
    hex += digits;
  }
  return hex;
}

std::string AsPrinted(const std::vector<SettingsLine>& lines) {
  std::string text;
  for (const SettingsLine& line : lines) {
    text += Hex(line.key) + ":" + Hex(line.value) + "\n";
  }
  return text + ".\n";
}

// A few lines out of pieces that mean something in YAML.
std::string RandomText(std::mt19937* random) {
  static const char* const kPieces[] = {
      "a",  "B7", "run", ": ", ":",  " ",  "  ", "#",    " # ", "'",
      "\"", "''", "-",   "- ", "?",  ",",  "[",  "]",    "{",   "}",
      "&",  "*",  "!",   "|",  ">",  "%",  "@",  "`",    "\\",  "=",
      "<<", "~",  "no",  "1",  ".5", "\n", "--", "null", "/",   "0x1"};
  const auto draw = [&](size_t limit) { return (*random)() % limit; };
  std::string text;
  for (size_t line = 0; line <= draw(3); ++line) {
    text += std::string(1, static_cast<char>('k' + line)) + ": ";
    const size_t pieces = draw(6);
    for (size_t i = 0; i < pieces; ++i)
      text += kPieces[draw(std::size(kPieces))];
    text += draw(8) == 0 ? "\r\n" : "\n";
  }
  return text;
}

TEST(SettingsYaml, WhatIsTakenMeansTheSameInYaml) {
  const std::string folder = testing::TempDir();
  const std::string texts = folder + "/texts";
  const std::string read = folder + "/read";
  std::mt19937 random(20240607);
  std::vector<std::string> taken, expected;
  std::ofstream out(texts, std::ios::binary);
  for (int i = 0; i < kTexts; ++i) {
    const std::string text = RandomText(&random);
    std::vector<SettingsLine> lines;
    if (!ParseSettings(text, &lines).empty()) continue;
    taken.push_back(text);
    expected.push_back(AsPrinted(lines));
    out << text.size() << "\n" << text;
  }
  out.close();
  EXPECT_GT(taken.size(), kLeastTaken);
  const int status =
      std::system((std::string(kReader) + " <" + texts + " >" + read).c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoLibrary) {
    GTEST_SKIP() << "/usr/bin/python3 has no module yaml";
  }
  ASSERT_EQ(status, 0);
  std::ifstream answers(read);
  for (size_t i = 0; i < taken.size(); ++i) {
    std::string answer;
    for (std::string line; std::getline(answers, line);) {
      answer += line + "\n";
      if (line == ".") break;
    }
    ASSERT_EQ(answer, expected[i]) << taken[i];
  }
}

}  // namespace
}  // namespace traincheck
