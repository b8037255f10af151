// The file of settings: lines `key: value`, a small part of YAML that needs no
// YAML library in the training process. What is read here means the same to
// every YAML reader that takes values as text; anything else is an error.
//
//   # a comment
//   server: 127.0.0.1:7471
//   experiment: 'resnet # 2'   # in quotes, because of the #
//
// ASCII, at most 64 KiB, no tabs, no indentation. A value is what stands behind
// `: `, or a text in '...' or "..." without that quote (and, in "...", without
// backslashes). Nothing behind the colon: no value.
//
// Threads: pure functions, but for what reads the file.
#ifndef TRAINCHECK_PROTO_SETTINGS_SETTINGS_FILE_H_
#define TRAINCHECK_PROTO_SETTINGS_SETTINGS_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace traincheck {

inline constexpr size_t kMaxSettingsFileBytes = size_t{64} << 10;

struct SettingsLine {
  int number = 0;  // from 1
  std::string key;
  std::string value;
};

// Reads the lines into *lines. "": done; else "line 3: what is wrong".
[[nodiscard]] std::string ParseSettings(std::string_view text,
                                        std::vector<SettingsLine>* lines);

// Reads the file into *text; never waits for what is no file. "": done; else
// what is wrong with it.
[[nodiscard]] std::string ReadSettingsFile(const std::string& path,
                                           std::string* text);

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_SETTINGS_SETTINGS_FILE_H_
