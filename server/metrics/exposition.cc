#include "server/metrics/exposition.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"

namespace traincheck::server {
namespace {

// The names of the text format.
const char* TypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kSummary:
      return "summary";
  }
  return "untyped";
}

// The shortest text that reads back as the same number, whatever the locale:
// the format wants a point.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

// Names of runs are their users' own: escaped as the format asks, and no bytes
// that are not text.
std::string LabelText(const std::string& value) {
  std::string text;
  for (const char c : EscapeUnprintable(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

// REQUIRES: `help` is one line without a backslash, as the format would need
// escaped.
void Exposition::Family(const char* name, MetricType type, const char* help) {
  name_ = name;
  absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ",
                  TypeName(type), "\n");
}

void Exposition::Sample(double value, const Labels& labels,
                        const char* suffix) {
  absl::StrAppend(&text_, name_, suffix);
  const char* before = "{";
  for (const auto& [name, label] : labels) {
    absl::StrAppend(&text_, before, name, "=\"", LabelText(label), "\"");
    before = ",";
  }
  absl::StrAppend(&text_, labels.empty() ? " " : "} ", NumberText(value), "\n");
}

}  // namespace traincheck::server
