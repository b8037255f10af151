// Files with secrets as whoever may write them leaves them: with any text and
// mode, links, folders, pipes. What others may read is refused, what is taken
// is the whole text, and nobody waits for a pipe.
//
// Input: what lies there u8, its mode u16, the text.
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/private_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/memory_folder.h"

namespace traincheck {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

void CheckFile(const std::string& path, mode_t mode, const std::string& text) {
  const absl::StatusOr<std::string> read = ReadPrivateFile(path);
  const bool mine = (mode & 077) == 0;
  // Root reads whatever its mode forbids; others need the owner's bit.
  const bool readable = geteuid() == 0 || (mode & 0400) != 0;
  if (!read.ok()) {
    Require(read.status().message().find(path) != std::string::npos);
    Require(!mine || !readable || text.size() > kMaxBytes);
    return;
  }
  Require(mine && *read == text);
}

void CheckNoFile(const std::string& path) {
  const absl::StatusOr<std::string> read = ReadPrivateFile(path);
  Require(!read.ok() && !read.status().message().empty());
}

// What was written is read again, over whatever lay there.
void CheckWritten(const std::string& path, const std::string& text) {
  const absl::Status written = WritePrivateFile(path, text);
  Require(written.ok());
  const absl::StatusOr<std::string> read = ReadPrivateFile(path);
  Require(read.ok() == (text.size() <= kMaxBytes));
  Require(!read.ok() || *read == text);
}

void Play(FuzzInput* input) {
  static const MemoryFolder folder;
  static MemoryFile file(folder, "secret");
  const uint8_t what = input->Byte() % 8;
  const mode_t mode = input->Number<uint16_t>() & 0777;
  std::string text = input->Rest();
  // A text over the limit, which no input is long enough for.
  if (what == 7) text.resize(text.size() + kMaxBytes, 'x');
  file.Put(text, mode);
  const std::string other = folder.path() + "/other";
  switch (what) {
    case 0:
      Require(symlink(file.path().c_str(), other.c_str()) == 0);
      CheckFile(other, mode, text);
      break;
    case 1:
      Require(symlink("other", other.c_str()) == 0);
      CheckNoFile(other);
      break;
    case 2:
      Require(mkfifo(other.c_str(), 0600) == 0);
      CheckNoFile(other);
      CheckWritten(other, text);
      break;
    case 3:
      Require(symlink(file.path().c_str(), other.c_str()) == 0);
      CheckWritten(other, text + "!");
      CheckFile(file.path(), mode, text);
      break;
    case 4:
      CheckNoFile(folder.path());
      CheckNoFile(other);
      break;
    default:
      CheckFile(file.path(), mode, text);
  }
  unlink(other.c_str());
}

}  // namespace
}  // namespace traincheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::FuzzInput input(data, size);
  traincheck::Play(&input);
  return 0;
}
