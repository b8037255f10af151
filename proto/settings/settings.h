// The settings of one process: its environment, under it the file that
// TRAINCHECK_CONFIG names, and under both the file of the site, which an
// administrator writes for all trainings of a host. A variable that is set, be
// it to nothing, wins over the files; so does a line of the first file over the
// second.
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

inline constexpr char kSiteSettingsFile[] = "/etc/traincheck.yaml";

class Settings {
 public:
  // Checks every TRAINCHECK_ variable of `environment` ("NAME=value", a null
  // pointer at the end; a null pointer: none), reads and checks the files; that
  // of the site need not be there. "": done; else what is wrong, the variable
  // or the file and its key named, and nothing is loaded.
  [[nodiscard]] std::string Load(
      const char* const* environment,
      const std::string& site_file = kSiteSettingsFile);

  // "TRAINCHECK_GRACE", as Load found it; "": what holds without it.
  std::string Get(std::string_view variable) const;

  // What the files add to that environment: "TRAINCHECK_GRACE" and its value.
  const std::vector<std::pair<std::string, std::string>>& of_file() const {
    return of_file_;
  }

  // The file that sets the variable; "": none does, or the environment.
  std::string FileOf(std::string_view variable) const;

  // Those that were read, the first one first.
  const std::vector<std::string>& files() const { return files_; }

 private:
  using Rows = std::vector<std::pair<std::string, std::string>>;

  std::string LoadEnvironment(const char* const* environment);
  std::string LoadFile(const std::string& path, const std::string& named_by);

  Rows of_environment_;
  Rows of_file_;
  std::vector<std::string> files_;
  std::vector<std::string> file_of_row_;  // of of_file_
};

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_SETTINGS_SETTINGS_H_
