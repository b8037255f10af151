#include "proto/settings/settings_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace traincheck {
namespace {

// Of YAML; none of them may begin a plain value here.
constexpr std::string_view kIndicators = "-?:,[]{}#&*!|>'\"%@`";

std::string_view WithoutSpaces(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

bool IsKeyCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

bool IsNothingOrComment(std::string_view text) {
  // As in YAML, a # begins a comment only behind a space.
  return text.empty() || WithoutSpaces(text).empty() ||
         (text[0] == ' ' && WithoutSpaces(text)[0] == '#');
}

// `text` begins with a quote. "": done; else what is wrong. Escapes are not
// read, so a backslash in double quotes, which YAML takes for the begin of an
// escape, is refused.
std::string ParseQuoted(std::string_view text, std::string* value) {
  const char quote = text[0];
  const size_t end = text.find(quote, 1);
  if (end == std::string_view::npos) return "the quote is not closed";
  *value = text.substr(1, end - 1);
  if (quote == '"' && value->find('\\') != std::string::npos) {
    return "backslashes go between '...' here";
  }
  if (!IsNothingOrComment(text.substr(end + 1))) {
    return "there is something behind the closing quote";
  }
  return "";
}

// `text` has something in it, and no space at its front.
std::string ParsePlain(std::string_view text, std::string* value) {
  if (kIndicators.find(text[0]) != std::string_view::npos) {
    return std::string("put a value that begins with ") + text[0] +
           " into quotes";
  }
  text = WithoutSpaces(text.substr(0, text.find(" #")));
  // To other YAML readers this would be a mapping and not a text.
  if (text.find(": ") != std::string_view::npos || text.back() == ':') {
    return "put a value with a colon and a space into quotes";
  }
  *value = text;
  return "";
}

// `text` is a line that is neither empty nor a comment. The format is a part of
// YAML that means the same to every YAML reader.
std::string ParseLine(std::string_view text, SettingsLine* line) {
  if (text[0] == ' ') return "lines are not indented here";
  const size_t colon = text.find(':');
  const std::string_view key = text.substr(0, colon);
  if (colon == std::string_view::npos || key.empty() ||
      !std::all_of(key.begin(), key.end(), IsKeyCharacter)) {
    return "write `key: value`, the key in small letters";
  }
  line->key = key;
  const std::string_view rest = text.substr(colon + 1);
  if (IsNothingOrComment(rest)) return "";
  if (rest[0] != ' ') return "a space is missing behind the colon";
  const std::string_view value = rest.substr(rest.find_first_not_of(' '));
  if (value[0] == '\'' || value[0] == '"') {
    return ParseQuoted(value, &line->value);
  }
  return ParsePlain(value, &line->value);
}

bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

std::string AtLine(int number, const std::string& what) {
  return "line " + std::to_string(number) + ": " + what;
}

class File {
 public:
  // O_NONBLOCK: the open of a pipe would wait for its other end.
  explicit File(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

// A key that stands twice is refused: YAML readers differ in which one holds.
std::string ParseSettings(std::string_view text,
                          std::vector<SettingsLine>* lines) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    // Editors on Windows end lines so.
    if (!content.empty() && content.back() == '\r') content.remove_suffix(1);
    if (!std::all_of(content.begin(), content.end(), IsPrintable)) {
      return AtLine(number, "only ASCII without tabs is read here");
    }
    const std::string_view said = WithoutSpaces(content);
    if (said.empty() || said[0] == '#') continue;
    SettingsLine line;
    line.number = number;
    const std::string wrong = ParseLine(content, &line);
    if (!wrong.empty()) return AtLine(number, wrong);
    for (const SettingsLine& other : *lines) {
      if (other.key != line.key) continue;
      return AtLine(number, line.key + " stands in line " +
                                std::to_string(other.number) + " too");
    }
    lines->push_back(std::move(line));
  }
  return "";
}

// A pipe or a device in the place of the file must neither block the start of
// the training nor fill its memory.
std::string ReadSettingsFile(const std::string& path, std::string* text) {
  const File file(path);
  if (file.fd() < 0) return std::strerror(errno);
  // Not by fstat, which needs a newer libc than the training may have.
  if (lseek(file.fd(), 0, SEEK_CUR) < 0) return "it is not a file";
  // One byte more than is allowed shows that there is more.
  text->resize(kMaxSettingsFileBytes + 1);
  size_t size = 0;
  while (size < text->size()) {
    const ssize_t n = read(file.fd(), &(*text)[size], text->size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::strerror(errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > kMaxSettingsFileBytes) return "it is larger than 64 KiB";
  text->resize(size);
  return "";
}

}  // namespace traincheck
