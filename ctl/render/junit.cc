#include "ctl/render/junit.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/render/grade.h"
#include "ctl/render/violation.h"
#include "ctl/text/xml_escape.h"

namespace traincheck::ctl {
namespace {

// A rule with all that was found of it.
struct Case {
  std::string family;
  std::string text;  // of the rule
  std::vector<const v1::Violation*> findings;
};

// By the rule's id.
std::map<std::string, Case> Cases(const PreflightReport& report) {
  std::map<std::string, Case> cases;
  // Rules that were not decided are left out: as tests without a failure they
  // would look passed.
  for (const v1::InvariantVerdict& verdict : report.verdicts) {
    if (!IsDecided(verdict)) continue;
    const std::string& id = verdict.invariant_id();
    cases[id] = {FamilyOf(report, id, verdict.relation()), verdict.text(), {}};
  }
  for (const v1::Violation& finding : report.findings) {
    const std::string& id = finding.invariant_id();
    // A finding may be without a verdict: the check of the stored run, which
    // gives these, may have failed.
    Case& found = cases[id];
    found.family = FamilyOf(report, id, finding.relation());
    found.text = finding.text();
    found.findings.push_back(&finding);
  }
  return cases;
}

std::string Attribute(const char* name, const std::string& value) {
  return absl::StrCat(" ", name, "=\"", XmlEscape(value), "\"");
}

std::string FindingXml(const v1::Violation& finding) {
  const std::string detail = XmlEscape(ViolationDetailText(finding));
  // Advice must not make a build fail.
  if (IsAdvice(finding)) {
    return absl::StrCat("      <system-out>", detail, "</system-out>\n");
  }
  return absl::StrCat(
      "      <failure", Attribute("message", ViolationHeadline(finding)),
      Attribute("type", finding.relation()), ">", detail, "</failure>\n");
}

std::string CaseXml(const Case& one) {
  const std::string head =
      absl::StrCat("    <testcase", Attribute("classname", one.family),
                   Attribute("name", one.text));
  if (one.findings.empty()) return head + "/>\n";
  std::string xml = head + ">\n";
  for (const v1::Violation* finding : one.findings) xml += FindingXml(*finding);
  return xml + "    </testcase>\n";
}

// JUnit counts test cases that fail, not their failures.
bool Fails(const Case& one) {
  for (const v1::Violation* finding : one.findings) {
    if (!IsAdvice(*finding)) return true;
  }
  return false;
}

std::string ProbeXml(const ProbedFunction& function) {
  const std::string head =
      absl::StrCat("    <testcase", Attribute("classname", "probe"),
                   Attribute("name", function.function));
  switch (function.outcome) {
    case ProbeOutcome::kDiffers:
      return absl::StrCat(head, ">\n      <failure",
                          Attribute("message", ProbeHeadline(function)),
                          Attribute("type", "probe"), ">",
                          XmlEscape(ProbeFix()),
                          "</failure>\n    </testcase>\n");
    // Skipped and not passed: nothing was decided.
    case ProbeOutcome::kNotCompared:
      return absl::StrCat(head, ">\n      <skipped",
                          Attribute("message", function.reason),
                          "/>\n    </testcase>\n");
    case ProbeOutcome::kEqual:
    case ProbeOutcome::kOnPurpose:
      break;
  }
  return head + "/>\n";
}

}  // namespace

// Test cases have the texts of rules as their names, which stay the same from
// one preflight to the next.
std::string JUnitReport(const PreflightReport& report) {
  const std::map<std::string, Case> cases = Cases(report);
  std::string body;
  int failures = 0;
  for (const auto& [id, one] : cases) {
    body += CaseXml(one);
    failures += Fails(one);
  }
  size_t tests = cases.size();
  if (report.probed) {
    for (const ProbedFunction& one : *report.probed) body += ProbeXml(one);
    tests += report.probed->size();
    failures += static_cast<int>(CountDiffering(*report.probed));
  }
  const std::string counts =
      absl::StrCat(Attribute("tests", std::to_string(tests)),
                   Attribute("failures", std::to_string(failures)));
  return absl::StrCat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", "<testsuites", counts,
      ">\n  <testsuite", Attribute("name", "traincheckctl preflight"),
      Attribute("id", report.run.id()), counts, " errors=\"0\">\n", body,
      "  </testsuite>\n</testsuites>\n");
}

}  // namespace traincheck::ctl
