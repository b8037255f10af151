#include "invariants/rules/joined_ranks.h"

#include <vector>

#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// Windows are aligned by their index, so all members that know the step mean
// the same one; members that lost records may not know it.
std::optional<int64_t> FirstKnownStep(const ReplicaMembers& members) {
  for (const auto& [rank, window] : members) {
    if (window.step.has_value()) return window.step;
  }
  return std::nullopt;
}

}  // namespace

void JoinedRanks::EndProcess(const ProcessFacts& facts, ProcessEnd end) {
  // A worker has the rank of its trainer, whose windows go on.
  if (!facts.rank() || facts.is_worker()) return;
  join_.EndRank(facts.attempt(), *facts.rank(), EndWords(facts, end));
}

Verdict NewVerdict(const ReplicaUnit& unit, const JudgedWindow& window) {
  Verdict verdict;
  verdict.rule = unit.rule;
  verdict.attempt = unit.attempt;
  // Without the rule, which a verdict names beside its unit.
  verdict.unit =
      StableHash(RankWords(unit.ranks) + "#" + std::to_string(unit.ordinal));
  verdict.step = FirstKnownStep(*window.members);
  verdict.across_ranks = true;
  return verdict;
}

void MarkViolated(const ReplicaUnit& unit, const JudgedWindow& window,
                  Verdict* verdict) {
  verdict->outcome = Outcome::kViolated;
  verdict->ranks = unit.ranks;
  // The id of a violation is made of this label. It names no step, which
  // members that lost records do not know.
  verdict->label = "object " + std::to_string(unit.ordinal) + " window " +
                   std::to_string(window.index);
}

// As texts: the numbers of functions and sites are each process's own, and
// ranks are shown one writer for what they share.
WriterParts PartsOf(const ProcessFacts& facts, const Writer& writer) {
  return {facts.FunctionName(writer.function),
          facts.definitions().Site(writer.site),
          facts.definitions().CallersOf(writer.site)};
}

std::string TextOf(const WriterParts& writer) {
  std::string text = writer.function + "\n" + writer.site;
  for (const std::string& caller : writer.callers) text += "\n" + caller;
  return text;
}

WriterParts PartsOf(const std::string& text) {
  std::vector<std::string> parts = absl::StrSplit(text, '\n');
  // A text of a damaged snapshot may have fewer.
  if (parts.size() < 2) parts.resize(2);
  return {parts[0], parts[1], {parts.begin() + 2, parts.end()}};
}

void AddWriter(const WriterParts& writer, Finding* finding) {
  AddOnce(writer.function, &finding->apis);
  if (finding->sites.empty() && !writer.site.empty()) {
    finding->callers = writer.callers;
  }
  AddOnce(writer.site, &finding->sites);
}

}  // namespace traincheck
