#include "ctl/text/input_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace traincheck::ctl {
namespace {

std::string Written(const std::string& content) {
  const std::string path = testing::TempDir() + "/input_file_test";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(ReadInputFile, GivesAllOfAFile) {
  for (size_t size : {size_t{0}, size_t{3}, size_t{1} << 14, size_t{100'000}}) {
    const std::string content(size, '\n');
    const auto text = ReadInputFile(Written(content));
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, content);
  }
}

// A folder opens like a file and fails at the first byte.
TEST(ReadInputFile, NamesWhatItCannotRead) {
  for (const std::string& path :
       {testing::TempDir(), std::string("/nothing")}) {
    const auto text = ReadInputFile(path);
    EXPECT_TRUE(absl::IsNotFound(text.status())) << text.status();
    EXPECT_NE(text.status().message().find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace traincheck::ctl
