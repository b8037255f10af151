// What `preflight` found in the first steps of a training.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CTL_RENDER_PREFLIGHT_H_
#define TRAINCHECK_CTL_RENDER_PREFLIGHT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctl/render/json.h"
#include "ctl/render/probes.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

struct PreflightReport {
  // As the server knew it at the end; its id alone where it knew nothing.
  v1::Run run;
  // Of each rule that applies; empty: the server could not say.
  std::vector<v1::InvariantVerdict> verdicts;
  // Alerts before advice: AlertsFirst.
  std::vector<v1::Violation> findings;
  // Rules that somebody decided not to check, in words.
  std::vector<std::string> left_out;
  // "core", "ddp": of a built-in rule, by its id.
  std::map<std::string, std::string> families;
  // Absent: nobody asked (--probe).
  std::optional<std::vector<ProbedFunction>> probed;
  // Says why there is less than there should be; empty: nothing.
  std::string problem;
};

void AlertsFirst(std::vector<v1::Violation>* findings);

bool IsDecided(const v1::InvariantVerdict& verdict);

// The family of a rule, else its relation.
std::string FamilyOf(const PreflightReport& report, const std::string& rule,
                     const std::string& relation);

// What a few steps seldom come to ("evaluation", ...), and what no rule on was
// decided in this run.
std::vector<std::string> NotReached(const PreflightReport& report);

// {run, steps, coverage, findings, incidents, not_reached, left_out}, and
// {probed} if asked
Json PreflightJson(const PreflightReport& report);

// One screen: what was checked, what was not and why, then the findings.
std::string PreflightText(const PreflightReport& report);

// Words of the rules that are about something that NotReached names; for a test
// that there are such rules.
std::vector<std::string> WordsOfStages();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_PREFLIGHT_H_
