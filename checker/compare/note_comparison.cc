#include "checker/compare/note_comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "checker/compare/value_words.h"

namespace traincheck {
namespace {

using Notes = std::vector<const RecordedNote*>;

// Names that are written out of a list; the others are counted.
constexpr size_t kMaxMembers = 4;

// Words for a list (one member a line) beside another one: how many members it
// has, and which of them the other list lacks.
std::string MembersWords(const std::string& list, const std::string& other) {
  const std::vector<std::string> mine =
      absl::StrSplit(list, '\n', absl::SkipEmpty());
  const std::vector<std::string> others =
      absl::StrSplit(other, '\n', absl::SkipEmpty());
  // Both lists are sorted (StepReader::DefineHolds), as set_difference needs
  // them.
  std::vector<std::string> alone;
  std::set_difference(mine.begin(), mine.end(), others.begin(), others.end(),
                      std::back_inserter(alone));
  std::string words =
      absl::StrCat(mine.size(), mine.size() == 1 ? " tensor" : " tensors");
  if (alone.empty()) return words;
  const size_t more = alone.size() - std::min(alone.size(), kMaxMembers);
  alone.resize(alone.size() - more);
  absl::StrAppend(&words, ", only here: ", absl::StrJoin(alone, ", "));
  if (more > 0) absl::StrAppend(&words, " and ", more, " more");
  return words;
}

// A value of several lines is a list (StepReader::DefineHolds); of long lists
// only what differs is worth reading.
std::string Words(const std::string& value, const std::string& other) {
  return absl::StrContains(value, '\n') ? MembersWords(value, other) : value;
}

// Notes of one name are paired by their order in the step.
void CompareNamed(const StepPair& pair, const Notes& a, const Notes& b) {
  const auto add = [&](const MomentOfBoth& at, const RecordedNote& note,
                       const std::string& in_a, const std::string& in_b) {
    pair.differences->Add(PlaceOf(note.rung, at), [&] {
      return DifferenceAt(pair, at, pair.names.Text(note.name), in_a, in_b);
    });
  };
  const size_t both = std::min(a.size(), b.size());
  for (size_t i = 0; i < both; ++i) {
    ++pair.coverage->settings;
    if (a[i]->value == b[i]->value) continue;
    add({&a[i]->at, &b[i]->at}, *a[i], Words(a[i]->value, b[i]->value),
        Words(b[i]->value, a[i]->value));
  }
  if (a.size() == b.size() || !pair.both_whole()) return;
  // The first one without a counterpart stands for all that follow it.
  const RecordedNote& lone = a.size() > both ? *a[both] : *b[both];
  if (lone.absent_is_unknown) return;
  if (a.size() > both) {
    add({&lone.at, nullptr}, lone, Words(lone.value, ""), "absent");
  } else {
    add({nullptr, &lone.at}, lone, "absent", Words(lone.value, ""));
  }
}

}  // namespace

void CompareNotes(const StepPair& pair) {
  ForEachKey(
      pair.a.notes, pair.b.notes,
      [](const RecordedNote& note) { return note.name; },
      [&](const Notes& a, const Notes& b) { CompareNamed(pair, a, b); });
}

void ScalarBook::Compare(const StepPair& pair) {
  struct Written {
    const RecordedScalar* a = nullptr;
    const RecordedScalar* b = nullptr;
  };
  std::map<NameId, Written> written;
  for (const RecordedScalar& scalar : pair.a.scalars) {
    known_a_[scalar.name] = scalar.value;
    written[scalar.name].a = &scalar;
  }
  for (const RecordedScalar& scalar : pair.b.scalars) {
    known_b_[scalar.name] = scalar.value;
    written[scalar.name].b = &scalar;
  }
  // Numbers are recorded when they change, so that what one run writes in this
  // step is compared with what the other one said last, in this step or in an
  // earlier one.
  for (const auto& [name, by] : written) {
    const auto a = known_a_.find(name);
    const auto b = known_b_.find(name);
    if (a == known_a_.end() || b == known_b_.end()) continue;
    // NaN says that the agent does not know the number any more
    // (RECORD_FORMAT.md, "Optimizers").
    if (std::isnan(a->second) || std::isnan(b->second)) continue;
    ++pair.coverage->settings;
    // By bits, as everything here is compared: 0 and -0 are two numbers.
    if (std::bit_cast<uint64_t>(a->second) ==
        std::bit_cast<uint64_t>(b->second)) {
      continue;
    }
    const MomentOfBoth at = {by.a ? &by.a->at : nullptr,
                             by.b ? &by.b->at : nullptr};
    const StepRung rung = by.a ? by.a->rung : by.b->rung;
    pair.differences->Add(PlaceOf(rung, at), [&, name = name] {
      return DifferenceAt(pair, at, pair.names.Text(name),
                          NumberWords(a->second), NumberWords(b->second));
    });
  }
}

}  // namespace traincheck
