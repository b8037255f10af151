#include "checker/incidents/incidents.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

namespace traincheck {
namespace {

using Index = size_t;
using OrderKey = std::tuple<uint32_t, int, Rung, int64_t, int, bool, size_t,
                            std::string_view>;

constexpr size_t kRungs = static_cast<size_t>(Rung::kTotals) + 1;
// What is wrong from here on began during the training, not with it.
constexpr int64_t kBegunLater = 2;
// Next to step 0, so that what begins before the first step joins what begins
// in it.
constexpr int64_t kBeforeSteps = -1;
// Of a violation that names none.
constexpr int32_t kNoRank = -1;

int64_t Begin(const IncidentPart& part) {
  return part.first_step.value_or(kBeforeSteps);
}

int64_t End(const IncidentPart& part) {
  return std::max(Begin(part), part.last_step.value_or(kBeforeSteps));
}

// Of an optimizer's state ("weight/exp_avg") that of its parameter.
std::string_view OwnerOf(std::string_view variable) {
  return variable.substr(0, variable.find('/'));
}

// Who comes first leads. Among those of one rung: the earlier record, then the
// one whose author says what is wrong, then the narrower set of variables; the
// id makes it certain.
OrderKey OrderOf(const IncidentPart& part) {
  const int kind = part.place.structure ? 2 : part.advice ? 1 : 0;
  return {part.attempt,      kind,         part.place.rung,       Begin(part),
          part.place.moment, part.learned, part.variables.size(), part.id};
}

// Violations that are one incident.
class Sets {
 public:
  explicit Sets(size_t count) : above_(count) {
    std::iota(above_.begin(), above_.end(), Index{0});
  }
  Index Find(Index at) {
    // Union-find with path halving: nearly constant for each join.
    while (above_[at] != at) at = above_[at] = above_[above_[at]];
    return at;
  }
  void Join(Index a, Index b) { above_[Find(a)] = Find(b); }

 private:
  std::vector<Index> above_;
};

// All of it goes through order_, the order in which violations lead, so that
// results do not depend on the order of the parts. Joins are made through
// tables by rank and step, and by variable, not by comparing pairs: 10,000
// violations stay cheap.
class Finder {
 public:
  explicit Finder(const std::vector<IncidentPart>& parts)
      : parts_(parts), sets_(parts.size()), order_(parts.size()) {
    std::iota(order_.begin(), order_.end(), Index{0});
    std::sort(order_.begin(), order_.end(),
              [this](Index a, Index b) { return KeyOf(a) < KeyOf(b); });
  }

  std::vector<IncidentRole> Find() {
    // Structure comes last, and a group of it joins at most one other incident:
    // it explains nothing, so it must not make one incident of two.
    JoinThoseThatBeginTogether(/*structure=*/false);
    JoinThoseThatFollow();
    JoinThoseThatBeginTogether(/*structure=*/true);
    AddStructure();
    return Roles();
  }

 private:
  OrderKey KeyOf(Index at) const { return OrderOf(parts_[at]); }

  template <typename Use>
  void ForRanks(const IncidentPart& part, const Use& use) const {
    if (part.ranks.empty()) use(kNoRank);
    for (const int32_t rank : part.ranks) use(rank);
  }

  template <typename Use>
  void ForSubjects(const IncidentPart& part, const Use& use) const {
    ForRanks(part, [&](int32_t rank) {
      for (const std::string& subject : part.subjects) use(rank, subject);
    });
  }

  void JoinThoseThatBeginTogether(bool structure) {
    // By attempt, rank (or subject) and step.
    std::map<std::tuple<uint32_t, int32_t, int64_t>, Index> by_rank;
    std::map<std::tuple<uint32_t, std::string_view, int64_t>, Index> by_subject;
    for (const Index at : order_) {
      const IncidentPart& part = parts_[at];
      if (part.place.structure != structure) continue;
      ForRanks(part, [&](int32_t rank) { JoinAt(rank, at, &by_rank); });
      for (const std::string& subject : part.subjects) {
        JoinAt(std::string_view(subject), at, &by_subject);
      }
    }
    JoinNeighbours(by_rank);
    JoinNeighbours(by_subject);
  }

  template <typename Whose, typename Begun>
  void JoinAt(const Whose& whose, Index at, Begun* begun) {
    const IncidentPart& part = parts_[at];
    const auto [found, is_new] =
        begun->try_emplace({part.attempt, whose, Begin(part)}, at);
    if (!is_new) sets_.Join(at, found->second);
  }

  template <typename Begun>
  void JoinNeighbours(const Begun& begun) {
    for (const auto& [key, at] : begun) {
      const auto& [attempt, whose, step] = key;
      const auto next = begun.find({attempt, whose, step + 1});
      if (next != begun.end()) sets_.Join(at, next->second);
    }
  }

  // By attempt and variable, in the order of their begin.
  auto ByVariable() const {
    std::map<std::pair<uint32_t, std::string_view>, std::vector<Index>> found;
    for (const Index at : order_) {
      if (parts_[at].place.structure) continue;
      for (const std::string& variable : parts_[at].variables) {
        found[{parts_[at].attempt, OwnerOf(variable)}].push_back(at);
      }
    }
    for (auto& [variable, all] : found) {
      std::stable_sort(all.begin(), all.end(), [this](Index a, Index b) {
        return Begin(parts_[a]) < Begin(parts_[b]);
      });
    }
    return found;
  }

  void JoinThoseThatFollow() {
    for (const auto& [variable, all] : ByVariable()) {
      // Of each rung the one that lasts longest so far.
      std::array<std::optional<Index>, kRungs> lasting;
      for (const Index at : all) {
        const IncidentPart& part = parts_[at];
        const auto rung = static_cast<size_t>(part.place.rung);
        // Advice may follow from anything that lasts. An alert follows from
        // what stands lower alone: else it is an error of its own.
        const size_t causes = part.advice ? kRungs : rung;
        for (size_t lower = 0; lower < causes; ++lower) {
          const std::optional<Index> cause = lasting[lower];
          if (cause && Lasts(*cause, at)) sets_.Join(at, *cause);
        }
        std::optional<Index>& longest = lasting[rung];
        if (!longest || End(parts_[*longest]) < End(part)) longest = at;
      }
    }
  }

  // Does it last when the later one begins?
  bool Lasts(Index earlier, Index later) const {
    // One step more, because what a step breaks may show as the next one
    // begins.
    return Begin(parts_[later]) <= End(parts_[earlier]) + 1;
  }

  void AddStructure() {
    std::map<Index, std::vector<Index>> groups;
    for (const Index at : order_) {
      if (parts_[at].place.structure) groups[sets_.Find(at)].push_back(at);
    }
    for (const auto& [set, group] : groups) {
      const std::optional<Index> whose = WhoseStructure(group);
      if (whose) sets_.Join(group.front(), *whose);
    }
  }

  // The violation that a group of structure goes to.
  std::optional<Index> WhoseStructure(const std::vector<Index>& group) const {
    std::optional<Index> near, around;
    for (const Index at : order_) {
      const IncidentPart& part = parts_[at];
      if (part.place.structure) continue;
      for (const Index of : group) {
        if (!ShareRank(part, parts_[of])) continue;
        const int64_t after = Begin(parts_[of]) - Begin(part);
        if (!near && -1 <= after && after <= 1) near = at;
        const bool meet = after > 0 ? Lasts(at, of) : Lasts(of, at);
        if (!around && !part.advice && meet) around = at;
      }
      // In order_, so the first one near is the one that leads among them; one
      // around counts only if none is near.
      if (near) return near;
    }
    return around;
  }

  static bool ShareRank(const IncidentPart& a, const IncidentPart& b) {
    if (a.attempt != b.attempt) return false;
    if (a.ranks.empty() || b.ranks.empty()) {
      return a.ranks.empty() && b.ranks.empty();
    }
    return std::find_first_of(a.ranks.begin(), a.ranks.end(), b.ranks.begin(),
                              b.ranks.end()) != a.ranks.end();
  }

  // Those of one set and variable (or rank and step) that may explain others:
  // of each rung the one that began first.
  using Causes = std::array<std::optional<Index>, kRungs>;

  std::vector<IncidentRole> Roles() {
    std::vector<IncidentRole> roles(parts_.size());
    std::map<Index, Index> leads;  // by set
    std::map<Index, bool> alerts;
    for (const Index at : order_) {
      const Index set = sets_.Find(at);
      alerts[set] |= !parts_[at].advice;
      // The first of its set in order_.
      const Index lead = leads.try_emplace(set, at).first->second;
      roles[at].lead = lead;
      roles[at].cause = lead == at ? at : CauseOf(at, set);
      // In order_, so that advice, which comes later, explains no alert.
      AddCause(at, set);
    }
    for (IncidentRole& role : roles) role.alert = alerts[sets_.Find(role.lead)];
    return roles;
  }

  void AddCause(Index at, Index set) {
    const IncidentPart& part = parts_[at];
    if (part.place.structure) return;
    const auto add = [this, at, &part](Causes& causes) {
      std::optional<Index>& known =
          causes[static_cast<size_t>(part.place.rung)];
      if (!known || Begin(part) < Begin(parts_[*known])) known = at;
    };
    for (const std::string& variable : part.variables) {
      add(by_variable_[{set, OwnerOf(variable)}]);
    }
    auto& about = part.variables.empty() ? about_unnamed_ : about_named_;
    ForSubjects(part, [&](int32_t rank, std::string_view subject) {
      add(about[{set, rank, subject}]);
    });
    if (Begin(part) < kBegunLater) return;
    auto& begun = part.variables.empty() ? begun_unnamed_ : begun_named_;
    ForRanks(part, [&](int32_t rank) { add(begun[{set, rank, Begin(part)}]); });
  }

  std::optional<Index> CauseOf(Index at, Index set) {
    const IncidentPart& part = parts_[at];
    std::optional<Index> nearest;
    const auto look = [&](const auto& table, const auto& key) {
      const auto found = table.find(key);
      if (found == table.end()) return;
      for (const std::optional<Index>& cause : found->second) {
        if (!cause || !Explains(*cause, at)) continue;
        // That which comes last in order_, so that people can follow a chain of
        // causes.
        if (!nearest || KeyOf(*nearest) < KeyOf(*cause)) nearest = cause;
      }
    };
    if (part.place.structure) return nearest;
    for (const std::string& variable : part.variables) {
      look(by_variable_, std::pair(set, OwnerOf(variable)));
    }
    // What names other variables is about something else, even if one optimizer
    // holds both.
    if (nearest) return nearest;
    ForSubjects(part, [&](int32_t rank, std::string_view subject) {
      const std::tuple key(set, rank, subject);
      look(about_unnamed_, key);
      if (part.variables.empty()) look(about_named_, key);
    });
    if (nearest || !MayFollowUnnamed(part)) return nearest;
    ForRanks(part, [&](int32_t rank) {
      const std::tuple key(set, rank, Begin(part));
      look(begun_unnamed_, key);
      if (part.variables.empty()) look(begun_named_, key);
    });
    return nearest;
  }

  // May it follow from what shares no variable with it? What a program does
  // anew from one step on (it evaluates, it saves) can bring several errors of
  // setup, calls or checkpoints at once.
  static bool MayFollowUnnamed(const IncidentPart& part) {
    return Begin(part) >= kBegunLater && part.place.rung >= Rung::kResult &&
           part.place.rung <= Rung::kUpdate;
  }

  bool Explains(Index cause, Index at) const {
    return parts_[cause].place.rung < parts_[at].place.rung &&
           Begin(parts_[cause]) <= Begin(parts_[at]) + 1;
  }

  const std::vector<IncidentPart>& parts_;
  Sets sets_;
  std::vector<Index> order_;
  std::map<std::pair<Index, std::string_view>, Causes> by_variable_;
  // By set, rank and subject: those that name no variables, and the others.
  using BySubject =
      std::map<std::tuple<Index, int32_t, std::string_view>, Causes>;
  BySubject about_unnamed_, about_named_;
  // By set, rank and first step: those that name no variables, and the others.
  using ByStep = std::map<std::tuple<Index, int32_t, int64_t>, Causes>;
  ByStep begun_unnamed_, begun_named_;
};

}  // namespace

std::vector<IncidentRole> FindIncidents(
    const std::vector<IncidentPart>& parts) {
  return Finder(parts).Find();
}

size_t LeadOf(const std::vector<IncidentPart>& parts) {
  const auto lead =
      std::min_element(parts.begin(), parts.end(),
                       [](const IncidentPart& a, const IncidentPart& b) {
                         return OrderOf(a) < OrderOf(b);
                       });
  return static_cast<size_t>(lead - parts.begin());
}

}  // namespace traincheck
