#include "ctl/text/input_file.h"

#include <fstream>
#include <iostream>
#include <istream>

#include "absl/strings/str_cat.h"

namespace traincheck::ctl {

namespace {

// False: it could not be read to its end (a folder, a failing disk).
bool ReadAll(std::istream& stream, std::string* text) {
  // By blocks, because stdin has no size that could be asked for.
  char buffer[1 << 14];
  do {
    stream.read(buffer, sizeof buffer);
    text->append(buffer, static_cast<size_t>(stream.gcount()));
  } while (stream);
  return stream.eof();
}

}  // namespace

absl::StatusOr<std::string> ReadInputFile(const std::string& path) {
  std::string text;
  if (path == kStandardStream) {
    if (ReadAll(std::cin, &text)) return text;
    return absl::DataLossError("cannot read the standard input to its end");
  }
  std::ifstream file(path, std::ios::binary);
  // A folder can be opened as a file, too; only reading it fails.
  if (file && ReadAll(file, &text)) return text;
  return absl::NotFoundError(absl::StrCat("cannot read \"", path, "\""));
}

}  // namespace traincheck::ctl
