#include "ctl/run/plan_check.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "invariants/rules/capture_plan.h"
#include "nlohmann/json.hpp"

namespace traincheck::ctl {
namespace {

constexpr char kAdvice[] =
    ". docs/capture-plan.md says what a plan is; \"traincheckctl sets plan "
    "SET\" prints one";

// Where a text ceases to be JSON: "line 1, column 3"; "" if it is JSON.
std::string PlaceOfSyntaxError(const std::string& text) {
  // Builds nothing: only the position of the error is wanted, which the reader
  // of plans does not report.
  struct Place : nlohmann::json_sax<nlohmann::json> {
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(size_t) override { return true; }
    bool key(string_t&) override { return true; }
    bool end_object() override { return true; }
    bool start_array(size_t) override { return true; }
    bool end_array() override { return true; }
    bool parse_error(size_t position, const std::string&,
                     const nlohmann::detail::exception&) override {
      at = position;
      return false;
    }
    size_t at = 0;  // bytes read
  } place;
  if (nlohmann::json::sax_parse(text, &place)) return "";
  // The last byte that the parser has read is the one at fault.
  size_t line = 1, column = 0;
  for (size_t i = 0; i < place.at && i < text.size(); ++i) {
    const bool ends = i > 0 && text[i - 1] == '\n';
    line += ends;
    column = ends ? 1 : column + 1;
  }
  return absl::StrCat("line ", line, ", column ", column);
}

}  // namespace

std::string WhatIsWrongWithPlan(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // A pipe would keep this program waiting, and be empty for the agent.
  if (status.type() != std::filesystem::file_type::regular) {
    return absl::StrCat("plan ", path, ": ",
                        error ? error.message() : "not a regular file");
  }
  // One byte more than a plan may have is enough to see that it is too large.
  std::string text(kMaxCapturePlanBytes + 1, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // A file that is shorter than the buffer sets eof and fail, which is no error
  // here.
  if (file.bad() || !file.is_open()) {
    return absl::StrCat("plan ", path, ": cannot be read");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  const auto plan = PlanFromJsonUntrusted(text);
  if (plan.ok()) return "";
  std::string place;
  // Parsed once more for the place; a text that was cut off would have one
  // where it was cut.
  if (text.size() <= kMaxCapturePlanBytes) place = PlaceOfSyntaxError(text);
  return absl::StrCat("plan ", path, place.empty() ? "" : ", ", place, ": ",
                      plan.status().message(), kAdvice);
}

}  // namespace traincheck::ctl
