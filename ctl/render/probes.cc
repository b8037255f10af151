#include "ctl/render/probes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ctl/render/names.h"

namespace traincheck::ctl {
namespace {

// As the file has them, in the order of ProbeOutcome.
constexpr std::array<const char*, 4> kOutcomes = {"equal", "on purpose",
                                                  "not compared", "differs"};

// The training's own processes write the file, so nothing in a line is taken
// for granted.
std::optional<ProbedFunction> FunctionOf(const Json& json) {
  if (!json.is_object() || !json.contains("function")) return std::nullopt;
  const auto text = [&json](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
  };
  const auto outcome =
      std::find(kOutcomes.begin(), kOutcomes.end(), text("outcome"));
  if (outcome == kOutcomes.end()) return std::nullopt;
  ProbedFunction function;
  function.function = text("function");
  function.outcome = static_cast<ProbeOutcome>(outcome - kOutcomes.begin());
  function.reason = text("reason");
  const auto line = json.find("line");
  if (!text("file").empty() && line != json.end() && line->is_number()) {
    function.site = absl::StrCat(text("file"), ":", line->get<int>());
  }
  const auto ratio = json.find("ratio");
  if (ratio != json.end() && ratio->is_number()) {
    function.ratio = ratio->get<double>();
  }
  return function;
}

std::string Difference(const ProbedFunction& function) {
  if (!function.ratio) return "its gradients are wrong";
  if (*function.ratio < 0) return "its gradients have the wrong sign";
  return absl::StrFormat("its gradients are %.3g times the right ones",
                         *function.ratio);
}

}  // namespace

std::vector<ProbedFunction> ProbedFunctions(const std::string& lines) {
  std::vector<ProbedFunction> functions;
  for (const auto line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    auto parsed = FunctionOf(Json::parse(line, nullptr, false));
    // A process that died while it wrote leaves half a line.
    if (!parsed) continue;
    // Several calls and several ranks write one function. ProbeOutcome goes
    // from the best to the worst, and the worst counts.
    const auto known = std::find_if(
        functions.begin(), functions.end(), [&](const ProbedFunction& one) {
          return one.function == parsed->function && one.site == parsed->site;
        });
    if (known == functions.end()) {
      functions.push_back(*std::move(parsed));
    } else if (parsed->outcome > known->outcome) {
      *known = *std::move(parsed);
    }
  }
  return functions;
}

size_t CountDiffering(const std::vector<ProbedFunction>& functions) {
  return std::count_if(functions.begin(), functions.end(),
                       [](const ProbedFunction& one) {
                         return one.outcome == ProbeOutcome::kDiffers;
                       });
}

std::string ProbeHeadline(const ProbedFunction& function) {
  return absl::StrCat("the backward of ", function.function,
                      " is not the derivative of its forward: ",
                      Difference(function), function.site.empty() ? "" : " (",
                      function.site, function.site.empty() ? "" : ")");
}

Json ProbeJson(const ProbedFunction& function) {
  Json json;
  json["function"] = function.function;
  json["site"] = function.site;
  json["outcome"] = kOutcomes[static_cast<size_t>(function.outcome)];
  json["ratio"] = function.ratio ? Json(*function.ratio) : Json();
  json["reason"] = function.reason;
  return json;
}

std::string ProbesText(const std::vector<ProbedFunction>& functions) {
  if (functions.empty()) {
    return "no function with a backward of its own was called with gradients";
  }
  // By outcome, in the order of ProbeOutcome, which kWords has as well.
  std::array<size_t, kOutcomes.size()> counts{};
  for (const ProbedFunction& one : functions) {
    ++counts[static_cast<size_t>(one.outcome)];
  }
  constexpr std::array<std::pair<const char*, const char*>, 4> kWords = {
      {{"is the derivative of its forward",
        "are derivatives of their forwards"},
       {"is deliberately no derivative (a step, or an input that is passed on)",
        "are deliberately no derivatives (steps, or inputs that are passed "
        "on)"},
       {"could not be compared", "could not be compared"},
       {"is wrong", "are wrong"}}};
  std::vector<std::string> parts;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    parts.push_back(absl::StrCat(
        counts[i], " ", counts[i] == 1 ? kWords[i].first : kWords[i].second));
  }
  return absl::StrCat(Counted(functions.size(), "hand-made backward"), ": ",
                      absl::StrJoin(parts, ", "));
}

std::string ProbeFix() {
  return "Compare the function with torch.autograd.gradcheck, and correct what "
         "its backward returns.";
}

}  // namespace traincheck::ctl
