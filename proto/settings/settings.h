// The settings of one process: its environment, and under it the file that
// TRAINCHECK_CONFIG names. A variable that is set, be it to nothing, wins over
// the file.
//
//   Settings settings;
//   const std::string wrong = settings.Load(environ);
//
// Threads: compatible; Get also while others read.
#ifndef TRAINCHECK_PROTO_SETTINGS_SETTINGS_H_
#define TRAINCHECK_PROTO_SETTINGS_SETTINGS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace traincheck {

class Settings {
 public:
  // Checks every TRAINCHECK_ variable of `environment` ("NAME=value", a null
  // pointer at the end), reads and checks the file. "": done; else what is
  // wrong, the variable or the file and its key named, and nothing is loaded.
  [[nodiscard]] std::string Load(const char* const* environment);

  // "TRAINCHECK_GRACE", as Load found it; "": what holds without it.
  std::string Get(std::string_view variable) const;

  // What the file adds to that environment: "TRAINCHECK_GRACE" and its value.
  const std::vector<std::pair<std::string, std::string>>& of_file() const {
    return of_file_;
  }

 private:
  std::string LoadEnvironment(const char* const* environment);
  std::string LoadFile(const std::string& path);
  bool IsInEnvironment(std::string_view variable) const;

  std::vector<std::pair<std::string, std::string>> of_environment_;
  std::vector<std::pair<std::string, std::string>> of_file_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_SETTINGS_SETTINGS_H_
