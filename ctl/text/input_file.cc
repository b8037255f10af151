#include "ctl/text/input_file.h"

#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace traincheck::ctl {

absl::StatusOr<std::string> ReadInputFile(const std::string& path) {
  std::ostringstream text;
  if (path == kStandardStream) {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (file) text << file.rdbuf();
  if (!file) {
    return absl::NotFoundError(absl::StrCat("cannot read \"", path, "\""));
  }
  return text.str();
}

}  // namespace traincheck::ctl
