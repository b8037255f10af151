#include "ctl/render/comparison.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

// The differences behind the first one that people are shown.
constexpr int kMaxAlso = 5;

Json DifferenceJson(const v1::RunDifference& difference) {
  Json json;
  json["step"] = difference.has_step() ? Json(difference.step()) : Json();
  json["after_last_step"] = difference.after_last_step();
  json["rung"] = difference.rung();
  json["what"] = difference.what();
  json["a"] = difference.a();
  json["b"] = difference.b();
  json["site_a"] = TextOrNull(difference.site_a());
  json["site_b"] = TextOrNull(difference.site_b());
  json["ranks"] = ArrayOf(difference.ranks());
  return json;
}

// Null where no step allowed a comparison of parameters.
Json VariablesJson(bool known, const v1::ComparedVariables& variables) {
  if (!known) return Json();
  Json json;
  json["step"] = variables.step();
  json["compared"] = variables.compared();
  json["different"] = variables.different();
  return json;
}

Json RankJson(const v1::ComparedRank& rank) {
  Json json;
  json["rank"] = rank.rank();
  json["steps_a"] = rank.steps_a();
  json["steps_b"] = rank.steps_b();
  json["first_step"] = rank.has_first_step() ? Json(rank.first_step()) : Json();
  return json;
}

// What was left out and why: without it nobody can judge how much "no
// difference" means.
Json NotComparedJson(const v1::NotCompared& missed) {
  Json json;
  json["what"] = missed.what();
  json["why"] = missed.why();
  json["count"] = missed.count();
  json["examples"] = ArrayOf(missed.examples());
  return json;
}

Json RunJson(const std::string& run, uint32_t attempt) {
  Json json;
  json["run"] = run;
  json["attempt"] = attempt;
  return json;
}

// What was compared, and how often.
// JSON takes keys from here and the text its words, in this order.
std::vector<std::pair<const char*, uint64_t>> Counts(
    const v1::ComparedCounts& counts) {
  return {{"calls", counts.calls()},
          {"arguments", counts.arguments()},
          {"results", counts.results()},
          {"weights", counts.weights()},
          {"gradients", counts.gradients()},
          {"optimizer_states", counts.optimizer_states()},
          {"generators", counts.generators()},
          {"batches", counts.batches()},
          {"settings", counts.settings()}};
}

Json CountsJson(const v1::ComparedCounts& counts) {
  Json json;
  json["whole_steps"] = counts.whole_steps();
  json["skeleton_steps"] = counts.skeleton_steps();
  for (const auto& [name, count] : Counts(counts)) json[name] = count;
  return json;
}

// after_last_step: the difference lies behind the step that is named, the last
// one.
std::string When(const v1::RunDifference& difference) {
  if (!difference.has_step()) return "before the first step";
  return absl::StrCat(
      difference.after_last_step() ? "after the last step, " : "step ",
      difference.step());
}

std::string RanksText(const v1::RunDifference& difference) {
  if (difference.ranks().empty()) return "";
  return absl::StrCat(difference.ranks_size() == 1 ? ", rank " : ", ranks ",
                      absl::StrJoin(difference.ranks(), ", "));
}

// "  A  0.1 (train.py:28)"
std::string SideText(const char* side, const std::string& value,
                     const std::string& site) {
  return absl::StrCat(
      "  ", side, "  ", OneLine(value),
      site.empty() ? "" : absl::StrCat(" (", OneLine(site), ")"), "\n");
}

// The first line says where and what, the next two what each run has there.
std::string DifferenceText(const v1::RunDifference& difference) {
  return absl::StrCat(When(difference), ", ", difference.rung(),
                      RanksText(difference), ": ", OneLine(difference.what()),
                      "\n", SideText("A", difference.a(), difference.site_a()),
                      SideText("B", difference.b(), difference.site_b()));
}

std::string AlsoText(const v1::CompareRunsResult& result) {
  if (result.first_size() < 2) return "";
  std::string text = "\nalso in this step\n";
  // The first one is the headline; the others of its step follow.
  for (int i = 1; i < std::min(result.first_size(), 1 + kMaxAlso); ++i) {
    const v1::RunDifference& difference = result.first(i);
    absl::StrAppend(&text, "  ", difference.rung(), RanksText(difference), ": ",
                    OneLine(difference.what()), ": ", OneLine(difference.a()),
                    " and ", OneLine(difference.b()), "\n");
  }
  // These count all differences of the step, also beyond those that are kept.
  std::vector<std::string> counts;
  for (const v1::RungCount& count : result.counts()) {
    counts.push_back(absl::StrCat(count.differences(), " ", count.rung()));
  }
  return absl::StrCat(text, "  in all: ", absl::StrJoin(counts, ", "), "\n");
}

std::string VariablesText(const v1::ComparedVariables& variables) {
  return absl::StrCat(variables.different(), " of ", variables.compared(),
                      " parameters and buffers differ at the end of step ",
                      variables.step());
}

// How far the difference has spread: into the parameters at its own step, over
// the later steps, and into the parameters at the end.
std::string FollowedText(const v1::CompareRunsResult& result) {
  std::string text;
  if (result.has_variables_first()) {
    absl::StrAppend(&text, "what followed  ",
                    VariablesText(result.variables_first()), "\n");
  }
  if (result.steps_behind() == 0) return text;
  absl::StrAppend(&text, "               ", result.steps_behind_different(),
                  " of the ", result.steps_behind(),
                  " steps behind it differ\n");
  if (result.has_variables_last()) {
    absl::StrAppend(&text, "               ",
                    VariablesText(result.variables_last()), "\n");
  }
  return text;
}

std::string RanksTable(const v1::CompareRunsResult& result) {
  std::string text;
  for (const v1::ComparedRank& rank : result.ranks()) {
    absl::StrAppend(
        // The title stands in the first line alone.
        &text, text.empty() ? "ranks          " : "               ", "rank ",
        rank.rank(), ": ", rank.steps_a(), " steps in A, ", rank.steps_b(),
        " in B, ",
        rank.has_first_step()
            ? absl::StrCat("differs first at step ", rank.first_step())
            : "no difference",
        "\n");
  }
  return text;
}

std::string ComparedText(const v1::ComparedCounts& counts) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : Counts(counts)) {
    std::string words = name;
    // Keys of JSON, with spaces for people.
    std::replace(words.begin(), words.end(), '_', ' ');
    parts.push_back(absl::StrCat(count, " ", words));
  }
  return absl::StrCat("compared       ", counts.whole_steps(),
                      " steps in full, ", counts.skeleton_steps(),
                      " by the skeleton: ", absl::StrJoin(parts, ", "), "\n");
}

std::string NotComparedText(const v1::CompareRunsResult& result) {
  std::string text;
  for (const v1::NotCompared& missed : result.not_compared()) {
    absl::StrAppend(&text, text.empty() ? "not compared   " : "               ",
                    missed.count(), " ", OneLine(missed.what()), ": ",
                    OneLine(missed.why()));
    if (!missed.examples().empty()) {
      absl::StrAppend(
          &text, " (", OneLine(absl::StrJoin(missed.examples(), ", ")),
          // The daemon sends all of the count and a few examples.
          missed.count() > static_cast<uint64_t>(missed.examples_size())
              ? ", ...)"
              : ")");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// Three outcomes: the first difference, equality in what was compared, or
// nothing to compare.
std::string VerdictText(const v1::CompareRunsResult& result) {
  std::string text;
  // Differences before the first step, such as another number of ranks, stand
  // first: they may explain the rest.
  for (const v1::RunDifference& difference : result.before()) {
    absl::StrAppend(&text, DifferenceText(difference));
  }
  if (result.first_size() > 0) {
    return absl::StrCat(text,
                        "FIRST DIFFERENCE: ", DifferenceText(result.first(0)),
                        AlsoText(result), "\n");
  }
  // Nothing compared is unknown, and must not read like two equal runs.
  if (!WasCompared(result)) {
    return text + "NOTHING COMPARED: no step was recorded in both runs\n";
  }
  return absl::StrCat(text, "no difference in what was compared\n");
}

}  // namespace

bool WasCompared(const v1::CompareRunsResult& result) {
  const v1::ComparedCounts& counts = result.compared();
  // Calls count as well, because a program may close no step.
  return counts.whole_steps() + counts.skeleton_steps() + counts.calls() > 0;
}

// What differs before the first step counts, even if all steps are equal.
bool Differs(const v1::CompareRunsResult& result) {
  return result.before_size() + result.first_size() > 0;
}

Json ComparisonJson(const v1::CompareRunsResult& result) {
  Json json;
  json["a"] = RunJson(result.run_a(), result.attempt_a());
  json["b"] = RunJson(result.run_b(), result.attempt_b());
  json["compared"] = WasCompared(result);
  json["different"] = Differs(result);
  json["before"] = ArrayOf(result.before(), DifferenceJson);
  Json also = Json::array();
  for (int i = 1; i < result.first_size(); ++i) {
    also.push_back(DifferenceJson(result.first(i)));
  }
  json["first"] =
      result.first().empty() ? Json() : DifferenceJson(result.first(0));
  json["also"] = std::move(also);
  // An object also if nothing follows: a key keeps its type.
  json["counts"] = Json::object();
  for (const v1::RungCount& count : result.counts()) {
    json["counts"][count.rung()] = count.differences();
  }
  json["variables_first"] =
      VariablesJson(result.has_variables_first(), result.variables_first());
  json["variables_last"] =
      VariablesJson(result.has_variables_last(), result.variables_last());
  json["steps_behind"] = result.steps_behind();
  json["steps_behind_different"] = result.steps_behind_different();
  json["ranks"] = ArrayOf(result.ranks(), RankJson);
  json["compared_counts"] = CountsJson(result.compared());
  json["not_compared"] = ArrayOf(result.not_compared(), NotComparedJson);
  return json;
}

// The verdict stands above the figures: what was compared qualifies it, and
// what was not.
std::string ComparisonText(const v1::CompareRunsResult& result) {
  return absl::StrCat("A              ", OneLine(result.run_a()), ", attempt ",
                      result.attempt_a(), "\nB              ",
                      OneLine(result.run_b()), ", attempt ", result.attempt_b(),
                      "\n\n", VerdictText(result), FollowedText(result),
                      RanksTable(result), ComparedText(result.compared()),
                      NotComparedText(result));
}

}  // namespace traincheck::ctl
