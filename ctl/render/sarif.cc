#include "ctl/render/sarif.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/version.h"
#include "ctl/render/grade.h"
#include "ctl/render/violation.h"

namespace traincheck::ctl {
namespace {

constexpr char kSchema[] = "https://json.schemastore.org/sarif-2.1.0.json";

// SARIF wraps every text in an object.
Json TextOf(const std::string& text) {
  Json json;
  json["text"] = text;
  return json;
}

// A path as a reference to a file; what a URI may not hold is encoded.
std::string UriOf(absl::string_view path) {
  // A relative path stays one: code review looks for it in the repository.
  std::string uri = path[0] == '/' ? "file://" : "";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        absl::string_view("/._-~").find(c) != absl::string_view::npos) {
      uri += c;
    } else {
      absl::StrAppendFormat(&uri, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return uri;
}

// None for a site that is no "file:line".
std::optional<Json> Location(const std::string& site) {
  // The last colon, because a path may have some, too.
  const size_t colon = site.rfind(':');
  int32_t line = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(site.substr(colon + 1), &line) || line < 1) {
    return std::nullopt;
  }
  Json json;
  json["physicalLocation"]["artifactLocation"]["uri"] =
      UriOf(absl::string_view(site).substr(0, colon));
  json["physicalLocation"]["region"]["startLine"] = line;
  return json;
}

Json Rule(const v1::Violation& finding) {
  Json json;
  json["id"] = finding.invariant_id();
  json["name"] = finding.relation();
  json["shortDescription"] = TextOf(finding.text());
  if (!finding.why().empty()) json["fullDescription"] = TextOf(finding.why());
  if (!finding.fix().empty()) json["help"] = TextOf(finding.fix());
  if (!finding.reference().empty()) json["helpUri"] = finding.reference();
  return json;
}

// What was seen and what to do are part of the message, which every viewer
// shows.
std::string Message(const v1::Violation& finding) {
  std::string text = ViolationHeadline(finding);
  if (!finding.seen().empty())
    absl::StrAppend(&text, "\nSeen: ", finding.seen());
  if (!finding.fix().empty()) {
    absl::StrAppend(&text, "\nWhat to do: ", finding.fix());
  }
  return text;
}

// "note", the level below "warning", for what is only worth a look.
Json Result(const v1::Violation& finding, size_t rule_index) {
  Json json;
  json["ruleId"] = finding.invariant_id();
  json["ruleIndex"] = rule_index;
  json["level"] = IsAdvice(finding) ? "note" : "error";
  json["message"] = TextOf(Message(finding));
  json["locations"] = Json::array();
  for (const std::string& site : finding.sites()) {
    if (auto location = Location(site)) json["locations"].push_back(*location);
  }
  return json;
}

constexpr char kProbe[] = "hand-made-backward";

Json ProbeRule() {
  Json json;
  json["id"] = kProbe;
  json["name"] = "probe";
  json["shortDescription"] = TextOf(
      "A backward that is written by hand is the derivative of its forward.");
  json["help"] = TextOf(ProbeFix());
  return json;
}

Json ProbeResult(const ProbedFunction& function, size_t rule_index) {
  Json json;
  json["ruleId"] = kProbe;
  json["ruleIndex"] = rule_index;
  json["level"] = "error";
  json["message"] = TextOf(ProbeHeadline(function));
  json["locations"] = Json::array();
  if (auto location = Location(function.site)) {
    json["locations"].push_back(*location);
  }
  return json;
}

}  // namespace

Json SarifReport(const PreflightReport& report) {
  Json rules = Json::array(), results = Json::array();
  // A rule is listed once, and its results name it by this index.
  std::map<std::string, size_t> indices;
  for (const v1::Violation& finding : report.findings) {
    const auto [index, is_new] =
        indices.try_emplace(finding.invariant_id(), rules.size());
    if (is_new) rules.push_back(Rule(finding));
    results.push_back(Result(finding, index->second));
  }
  if (report.probed && CountDiffering(*report.probed) > 0) {
    for (const ProbedFunction& function : *report.probed) {
      if (function.outcome != ProbeOutcome::kDiffers) continue;
      // The index that its rule gets below.
      results.push_back(ProbeResult(function, rules.size()));
    }
    rules.push_back(ProbeRule());
  }
  Json run;
  Json& driver = run["tool"]["driver"];
  driver["name"] = "traincheckctl preflight";
  driver["version"] = kVersion;
  driver["rules"] = std::move(rules);
  // Sets several preflights of one commit apart.
  run["automationDetails"]["id"] = report.run.id();
  run["results"] = std::move(results);
  Json json;
  json["$schema"] = kSchema;
  json["version"] = "2.1.0";
  json["runs"] = Json::array({std::move(run)});
  return json;
}

}  // namespace traincheck::ctl
