// Backwards that are written by hand, as `preflight --probe` compared them with
// difference quotients (agent/python/hooks/probe.py).
//
// Threads: pure functions.
#ifndef TRAINCHECK_CTL_RENDER_PROBES_H_
#define TRAINCHECK_CTL_RENDER_PROBES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ctl/render/json.h"

namespace traincheck::ctl {

// From the best to the worst: of several calls the worst counts.
enum class ProbeOutcome { kEqual, kOnPurpose, kNotCompared, kDiffers };

struct ProbedFunction {
  std::string function;  // "train.ScaledGelu"
  std::string site;      // "train.py:31", of its backward; empty: not known
  ProbeOutcome outcome = ProbeOutcome::kNotCompared;
  std::optional<double> ratio;  // of its gradients to the right ones
  std::string reason;           // why it was not compared
};

// One for each function, in their order, of a file of JSON lines. What is no
// such line (a process may have died in it) is left out.
std::vector<ProbedFunction> ProbedFunctions(const std::string& lines);

size_t CountDiffering(const std::vector<ProbedFunction>& functions);

// "the backward of train.ScaledGelu is not the derivative of its forward: ..."
std::string ProbeHeadline(const ProbedFunction& function);

// {function, site, outcome, ratio, reason}
Json ProbeJson(const ProbedFunction& function);

// "3 hand-made backwards: 2 are derivatives of their forwards, 1 is not".
std::string ProbesText(const std::vector<ProbedFunction>& functions);

// What to do about one that differs.
std::string ProbeFix();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_PROBES_H_
