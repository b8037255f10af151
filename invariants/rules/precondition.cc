#include "invariants/rules/precondition.h"

#include <algorithm>

#include "base/json_reader.h"
#include "invariants/facts/fact_value.h"

namespace traincheck {

namespace {

struct KindName {
  ClauseKind kind;
  const char* name;
};

constexpr KindName kKinds[] = {
    {ClauseKind::kConstant, "constant"},
    {ClauseKind::kConsistent, "consistent"},
    {ClauseKind::kUnequal, "unequal"},
    {ClauseKind::kExists, "exists"},
    {ClauseKind::kEqual, "equal"},
};

const char* NameOf(ClauseKind kind) {
  for (const KindName& entry : kKinds) {
    if (entry.kind == kind) return entry.name;
  }
  return "";
}

std::string DescribeClause(const Clause& clause) {
  const std::string fact = clause.fact->text;
  switch (clause.kind) {
    case ClauseKind::kConstant:
      return Describe(*clause.fact, clause.value);
    case ClauseKind::kConsistent:
      return fact + " is the same for all";
    case ClauseKind::kUnequal:
      return fact + " differs between them";
    case ClauseKind::kExists:
      return fact + " is known";
    case ClauseKind::kEqual:
      return fact + " equals " + clause.other->text;
  }
  return "";
}

absl::StatusOr<Clause> ClauseFromJson(const nlohmann::json& json,
                                      const std::string& path) {
  JsonReader reader(json, path);
  Clause clause;
  const std::string kind = reader.String("clause");
  const auto* entry =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&kind](const KindName& k) { return kind == k.name; });
  if (entry == std::end(kKinds)) {
    reader.Fail("clause", "not a kind of clause of this version");
  } else {
    clause.kind = entry->kind;
  }
  clause.fact = ReadFact("fact", &reader);
  // Only the keys of its kind are read: Finish refuses any other.
  if (clause.kind == ClauseKind::kEqual) {
    clause.other = ReadFact("other", &reader);
  }
  if (clause.kind == ClauseKind::kConstant) {
    clause.value = ReadFactValue(clause.fact, &reader);
  }
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  return clause;
}

// No wins over unknown (Kleene): one clause that fails decides, whatever the
// others would say.
Tri And(Tri a, Tri b) {
  if (a == Tri::kNo || b == Tri::kNo) return Tri::kNo;
  if (a == Tri::kUnknown || b == Tri::kUnknown) return Tri::kUnknown;
  return Tri::kYes;
}

// Clauses that compare the subjects with each other. Every pair is asked, and
// not neighbours alone: two subjects that are known may decide beside one that
// is not.
Tri HoldsAcross(const Clause& clause, size_t subjects, const FactReader& read) {
  Tri result = Tri::kYes;
  for (size_t a = 0; a < subjects; ++a) {
    for (size_t b = a + 1; b < subjects; ++b) {
      const FactValue left = read(*clause.fact, a);
      const FactValue right = read(*clause.fact, b);
      // kConsistent wants every pair equal, kUnequal every pair different.
      const bool wanted = clause.kind == ClauseKind::kConsistent;
      const bool known = IsKnown(left) && IsKnown(right);
      result =
          And(result, known ? ToTri((left == right) == wanted) : Tri::kUnknown);
      if (result == Tri::kNo) return result;
    }
  }
  return result;
}

Tri HoldsFor(const Clause& clause, size_t subject, const FactReader& read) {
  const FactValue value = read(*clause.fact, subject);
  // The one clause that an unknown fact decides.
  if (clause.kind == ClauseKind::kExists) return ToTri(IsKnown(value));
  if (!IsKnown(value)) return Tri::kUnknown;
  if (clause.kind == ClauseKind::kConstant) return ToTri(value == clause.value);
  const FactValue other = read(*clause.other, subject);
  if (!IsKnown(other)) return Tri::kUnknown;
  return ToTri(value == other);
}

}  // namespace

Tri Holds(const Clause& clause, size_t subjects, const FactReader& read) {
  if (clause.kind == ClauseKind::kConsistent ||
      clause.kind == ClauseKind::kUnequal) {
    return HoldsAcross(clause, subjects, read);
  }
  Tri result = Tri::kYes;
  for (size_t i = 0; i < subjects; ++i) {
    result = And(result, HoldsFor(clause, i, read));
  }
  return result;
}

nlohmann::json ToJson(const Clause& clause) {
  nlohmann::json json = {{"clause", NameOf(clause.kind)},
                         {"fact", clause.fact->name}};
  if (clause.kind == ClauseKind::kConstant) {
    json["value"] = FactToJson(clause.value);
  }
  if (clause.kind == ClauseKind::kEqual) json["other"] = clause.other->name;
  return json;
}

Tri Holds(const ClauseList& clauses, size_t subjects, const FactReader& read) {
  Tri result = Tri::kYes;
  for (const Clause& clause : clauses) {
    result = And(result, Holds(clause, subjects, read));
  }
  return result;
}

namespace {

std::string Canonical(const Clause& clause) { return ToJson(clause).dump(); }

std::string Canonical(const ClauseList& clauses) {
  std::string text;
  for (const Clause& clause : clauses) text += Canonical(clause) + "\n";
  return text;
}

// Sorted, so that the same condition reads the same, whoever wrote it.
template <typename T>
void SortByText(std::vector<T>* list) {
  std::sort(list->begin(), list->end(),
            [](const T& a, const T& b) { return Canonical(a) < Canonical(b); });
}

nlohmann::json AllOf(const ClauseList& clauses) {
  nlohmann::json all = nlohmann::json::array();
  for (const Clause& clause : clauses) all.push_back(ToJson(clause));
  return {{"all", std::move(all)}};
}

std::string DescribeClauses(const ClauseList& clauses) {
  std::string text;
  for (const Clause& clause : clauses) {
    if (!text.empty()) text += ", and ";
    text += DescribeClause(clause);
  }
  return text;
}

absl::StatusOr<ClauseList> ClausesFromJson(const nlohmann::json& json,
                                           const std::string& path) {
  JsonReader reader(json, path);
  const nlohmann::json& all = reader.Array("all");
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  ClauseList clauses;
  for (size_t i = 0; i < all.size(); ++i) {
    auto clause =
        ClauseFromJson(all[i], path + ".all[" + std::to_string(i) + "]");
    if (!clause.ok()) return clause.status();
    clauses.push_back(*std::move(clause));
  }
  return clauses;
}

}  // namespace

Precondition::Precondition(ClauseList clauses)
    : Precondition(std::vector<ClauseList>{std::move(clauses)}) {}

Precondition::Precondition(std::vector<ClauseList> alternatives)
    : alternatives_(std::move(alternatives)) {
  // A list without clauses always holds, and so does the whole, whatever the
  // other lists say. It has one form, without alternatives.
  for (const ClauseList& clauses : alternatives_) {
    if (!clauses.empty()) continue;
    alternatives_.clear();
    return;
  }
  for (ClauseList& clauses : alternatives_) SortByText(&clauses);
  SortByText(&alternatives_);
}

// For those who ask what a condition reads (needs, guards), whichever
// alternative it is in.
std::vector<Clause> Precondition::Clauses() const {
  std::vector<Clause> result;
  for (const ClauseList& clauses : alternatives_) {
    result.insert(result.end(), clauses.begin(), clauses.end());
  }
  return result;
}

Tri Precondition::Holds(size_t subjects, const FactReader& read) const {
  if (alternatives_.empty()) return Tri::kYes;
  Tri result = Tri::kNo;
  for (const ClauseList& clauses : alternatives_) {
    const Tri one = traincheck::Holds(clauses, subjects, read);
    // Likewise for "or": one list that holds decides.
    if (one == Tri::kYes) return one;
    if (one == Tri::kUnknown) result = one;
  }
  return result;
}

Tri Precondition::Holds(const FactSubject& subject) const {
  if (alternatives_.empty()) return Tri::kYes;
  return Holds(
      1, [&subject](const Fact& fact, size_t) { return fact.read(subject); });
}

Tri Precondition::Holds(const std::vector<FactSubject>& subjects) const {
  return Holds(subjects.size(), [&subjects](const Fact& fact, size_t subject) {
    return fact.read(subjects[subject]);
  });
}

// One form for each condition, because ids of rules are hashes of it: a single
// alternative is written without "any".
nlohmann::json Precondition::ToJson() const {
  if (alternatives_.empty()) return AllOf({});
  if (alternatives_.size() == 1) return AllOf(alternatives_[0]);
  nlohmann::json any = nlohmann::json::array();
  for (const ClauseList& clauses : alternatives_) any.push_back(AllOf(clauses));
  return {{"any", std::move(any)}};
}

std::string Precondition::Describe() const {
  std::string text;
  for (const ClauseList& clauses : alternatives_) {
    if (!text.empty()) text += "; or where ";
    text += DescribeClauses(clauses);
  }
  return text;
}

absl::StatusOr<Precondition> Precondition::FromJson(const nlohmann::json& json,
                                                    const std::string& path) {
  if (!json.is_object() || !json.contains("any")) {
    auto clauses = ClausesFromJson(json, path);
    if (!clauses.ok()) return clauses.status();
    return Precondition(*std::move(clauses));
  }
  JsonReader reader(json, path);
  const nlohmann::json& any = reader.Array("any");
  // Each condition has one form: ids of rules are hashes of it.
  if (any.size() < 2) reader.Fail("any", "fewer than two alternatives");
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  std::vector<ClauseList> alternatives;
  for (size_t i = 0; i < any.size(); ++i) {
    const std::string place = path + ".any[" + std::to_string(i) + "]";
    auto clauses = ClausesFromJson(any[i], place);
    if (!clauses.ok()) return clauses.status();
    // An empty list always holds, which is written as no precondition.
    if (clauses->empty()) {
      return absl::InvalidArgumentError(place + ".all: empty");
    }
    alternatives.push_back(*std::move(clauses));
  }
  return Precondition(std::move(alternatives));
}

}  // namespace traincheck
