#include "checker/incidents/incidents.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "checker/incidents/authored_causes.h"
#include "checker/incidents/parts.h"

namespace traincheck {
namespace {

using Index = size_t;
using OrderKey = std::tuple<uint32_t, int, Rung, int64_t, int, bool, size_t,
                            std::string_view>;

constexpr size_t kRungs = static_cast<size_t>(Rung::kTotals) + 1;
// What is wrong from here on began during the training, not with it.
constexpr int64_t kBegunLater = 2;

// Who comes first leads. Among those of one rung: the earlier record, then the
// one whose author says what is wrong, then the narrower set of variables; the
// id makes it certain. Alerts come before advice and both before structure,
// whatever their rungs, so that advice never hides what fails a gate. Nothing
// that is not a property of the one violation counts: an incident has the id of
// its lead, which must not change as others come.
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

// Numbers of names, within an attempt: comparing texts would be most of the
// work.
class NumberedNames {
 public:
  using Range = absl::Span<const uint32_t>;

  // The names of one part more.
  template <typename Text>
  void Add(uint32_t attempt, const std::vector<std::string>& names, Text text) {
    for (const std::string& name : names) {
      const auto [found, is_new] = numbers_.try_emplace(
          {attempt, text(name)}, static_cast<uint32_t>(numbers_.size()));
      all_.push_back(found->second);
    }
    ends_.push_back(all_.size());
  }
  Range Of(Index part) const {
    const size_t begin = part == 0 ? 0 : ends_[part - 1];
    return Range(all_).subspan(begin, ends_[part] - begin);
  }
  size_t count() const { return numbers_.size(); }

 private:
  absl::flat_hash_map<std::pair<uint32_t, std::string_view>, uint32_t> numbers_;
  std::vector<uint32_t> all_;  // part after part
  std::vector<size_t> ends_;
};

// All of it goes through order_, the order in which violations lead, so that
// results do not depend on the order of the parts. Joins are made through
// tables by rank and step, and by variable, not by comparing pairs: 10,000
// violations stay cheap.
class Finder {
 public:
  explicit Finder(const std::vector<IncidentPart>& parts)
      : parts_(parts), sets_(parts.size()), order_(parts.size()) {
    std::vector<OrderKey> keys;
    keys.reserve(parts.size());
    for (const IncidentPart& part : parts) {
      keys.push_back(OrderOf(part));
      variables_.Add(part.attempt, part.variables, OwnerOf);
      subjects_.Add(part.attempt, part.subjects,
                    [](std::string_view subject) { return subject; });
    }
    std::iota(order_.begin(), order_.end(), Index{0});
    std::sort(order_.begin(), order_.end(),
              [&keys](Index a, Index b) { return keys[a] < keys[b]; });
    place_.resize(parts.size());
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
    authored_ = AuthoredCauses(parts, order_);
  }

  std::vector<IncidentRole> Find() {
    // Structure comes last, and a group of it joins at most one other incident:
    // it explains nothing, so it must not make one incident of two.
    JoinThoseThatBeginTogether(/*structure=*/false);
    JoinThoseThatFollow();
    for (Index at = 0; at < parts_.size(); ++at) {
      if (authored_[at]) sets_.Join(at, *authored_[at]);
    }
    JoinThoseThatBeginTogether(/*structure=*/true);
    AddStructure();
    return Roles();
  }

 private:
  template <typename Use>
  void ForSubjects(Index at, const Use& use) const {
    ForRanks(parts_[at], [&](int32_t rank) {
      for (const uint32_t subject : subjects_.Of(at)) use(rank, subject);
    });
  }

  // By attempt, rank (or subject) and step the one that comes first in order_.
  using Begun =
      absl::flat_hash_map<std::tuple<uint32_t, int64_t, int64_t>, Index>;

  // All that begin in one step on a rank, or are about one subject, are joined
  // to the first of them, and each step to the next one, instead of comparing
  // pairs.
  void JoinThoseThatBeginTogether(bool structure) {
    Begun by_rank, by_subject;
    for (const Index at : order_) {
      const IncidentPart& part = parts_[at];
      if (part.place.structure != structure) continue;
      ForRanks(part, [&](int32_t rank) { JoinAt(rank, at, &by_rank); });
      for (const uint32_t subject : subjects_.Of(at)) {
        JoinAt(subject, at, &by_subject);
      }
    }
    JoinNeighbours(by_rank);
    JoinNeighbours(by_subject);
    // AddStructure looks for the neighbours of structure in it.
    if (!structure) begun_ = std::move(by_rank);
  }

  void JoinAt(int64_t whose, Index at, Begun* begun) {
    const IncidentPart& part = parts_[at];
    const auto [found, is_new] =
        begun->try_emplace({part.attempt, whose, Begin(part)}, at);
    if (!is_new) sets_.Join(at, found->second);
  }

  void JoinNeighbours(const Begun& begun) {
    // The order of a hash table does not matter: joining gives the same sets in
    // any.
    for (const auto& [key, at] : begun) {
      const auto& [attempt, whose, step] = key;
      const auto next = begun.find({attempt, whose, step + 1});
      if (next != begun.end()) sets_.Join(at, next->second);
    }
  }

  // By variable, in the order of their begin.
  std::vector<std::vector<Index>> ByVariable() const {
    // A stable sort of order_: what begins in one step stays in the order in
    // which it leads, whatever the order of the parts.
    std::vector<Index> by_begin = order_;
    std::stable_sort(by_begin.begin(), by_begin.end(),
                     [this](Index a, Index b) {
                       return Begin(parts_[a]) < Begin(parts_[b]);
                     });
    std::vector<std::vector<Index>> found(variables_.count());
    for (const Index at : by_begin) {
      if (parts_[at].place.structure) continue;
      for (const uint32_t variable : variables_.Of(at)) {
        found[variable].push_back(at);
      }
    }
    return found;
  }

  // One pass over each variable's violations in the order of their begin. On
  // each rung one is enough to remember: if the one that lasts longest is over,
  // all others are. The cost is violations times rungs.
  void JoinThoseThatFollow() {
    for (const std::vector<Index>& all : ByVariable()) {
      // For each rung the violation that lasts longest so far.
      std::array<std::optional<Index>, kRungs> lasting;
      for (const Index at : all) {
        const IncidentPart& part = parts_[at];
        const auto rung = static_cast<size_t>(part.place.rung);
        // Advice may follow from anything that lasts. An alert follows from
        // what stands lower alone: else it is an error of its own.
        const size_t causes = part.advice ? kRungs : rung;
        for (size_t lower = 0; lower < causes; ++lower) {
          const std::optional<Index> cause = lasting[lower];
          if (cause && Lasts(parts_[*cause], part)) sets_.Join(at, *cause);
        }
        std::optional<Index>& longest = lasting[rung];
        if (!longest || End(parts_[*longest]) < End(part)) longest = at;
      }
    }
  }

  void AddStructure() {
    // Until here structure was joined with structure alone, so that a set with
    // some of it holds nothing else.
    std::vector<std::vector<Index>> groups(parts_.size());
    for (const Index at : order_) {
      const IncidentPart& part = parts_[at];
      if (part.place.structure) {
        groups[sets_.Find(at)].push_back(at);
      } else if (!part.advice) {
        ForRanks(part, [&](int32_t rank) {
          alerts_[{part.attempt, rank}].push_back(at);
        });
      }
    }
    for (const std::vector<Index>& group : groups) {
      if (group.empty()) continue;
      const std::optional<Index> whose = WhoseStructure(group);
      if (whose) sets_.Join(group.front(), *whose);
    }
  }

  // The violation that a group of structure goes to: of those that begin near
  // it the one that leads, else of the alerts around it.
  std::optional<Index> WhoseStructure(const std::vector<Index>& group) const {
    std::optional<Index> near, around;
    const auto keep = [this](Index at, std::optional<Index>* first) {
      if (!*first || place_[at] < place_[**first]) *first = at;
    };
    for (const Index of : group) {
      const IncidentPart& part = parts_[of];
      ForRanks(part, [&](int32_t rank) {
        for (const int64_t after : {-1, 0, 1}) {
          const auto begun =
              begun_.find({part.attempt, rank, Begin(part) + after});
          if (begun != begun_.end()) keep(begun->second, &near);
        }
      });
    }
    if (near) return near;
    for (const Index of : group) {
      const IncidentPart& part = parts_[of];
      ForRanks(part, [&](int32_t rank) {
        const auto alerts = alerts_.find({part.attempt, rank});
        if (alerts == alerts_.end()) return;
        const auto alert =
            std::find_if(alerts->second.begin(), alerts->second.end(),
                         [&](Index at) { return Meet(parts_[at], part); });
        if (alert != alerts->second.end()) keep(*alert, &around);
      });
    }
    return around;
  }

  static bool Meet(const IncidentPart& a, const IncidentPart& b) {
    return Begin(a) < Begin(b) ? Lasts(a, b) : Lasts(b, a);
  }

  // Those of one set and variable (or rank and step) that may explain others:
  // of each rung the one that began first.
  // Narrow, because there are many tables of them.
  struct Causes {
    static constexpr uint32_t kNone = UINT32_MAX;
    std::array<uint32_t, kRungs> by_rung;

    Causes() { by_rung.fill(kNone); }
  };

  std::vector<IncidentRole> Roles() {
    std::vector<IncidentRole> roles(parts_.size());
    std::vector<std::optional<Index>> leads(parts_.size());  // by set
    std::vector<bool> alerts(parts_.size());
    for (const Index at : order_) {
      const Index set = sets_.Find(at);
      if (!parts_[at].advice) alerts[set] = true;
      // The first of its set in order_.
      if (!leads[set]) leads[set] = at;
      const Index lead = *leads[set];
      roles[at].lead = lead;
      roles[at].cause = lead == at      ? at
                        : authored_[at] ? authored_[at]
                                        : CauseOf(at, set);
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
      uint32_t& known = causes.by_rung[static_cast<size_t>(part.place.rung)];
      if (known == Causes::kNone || Begin(part) < Begin(parts_[known])) {
        known = static_cast<uint32_t>(at);
      }
    };
    for (const uint32_t variable : variables_.Of(at)) {
      add(by_variable_[{set, variable}]);
    }
    // Common subjects explain only where one of the two names no variable
    // (CauseOf), so both kinds are kept apart.
    auto& about = part.variables.empty() ? about_unnamed_ : about_named_;
    ForSubjects(at, [&](int32_t rank, uint32_t subject) {
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
      for (const uint32_t cause : found->second.by_rung) {
        if (cause == Causes::kNone || !Explains(cause, at)) continue;
        // That which comes last in order_, so that people can follow a chain of
        // causes.
        if (!nearest || place_[*nearest] < place_[cause]) nearest = cause;
      }
    };
    if (part.place.structure) return nearest;
    for (const uint32_t variable : variables_.Of(at)) {
      look(by_variable_, std::pair(set, variable));
    }
    // What names other variables is about something else, even if one optimizer
    // holds both.
    if (nearest) return nearest;
    ForSubjects(at, [&](int32_t rank, uint32_t subject) {
      const std::tuple key(set, rank, subject);
      look(about_unnamed_, key);
      if (part.variables.empty()) look(about_named_, key);
    });
    // One that begins a step later is the weaker cause: nearly all that breaks
    // is about the only optimizer.
    const bool later = nearest && Begin(parts_[*nearest]) > Begin(part);
    if ((nearest && !later) || !MayFollowUnnamed(part)) return nearest;
    const std::optional<Index> weaker = std::exchange(nearest, std::nullopt);
    ForRanks(part, [&](int32_t rank) {
      const std::tuple key(set, rank, Begin(part));
      look(begun_unnamed_, key);
      if (part.variables.empty()) look(begun_named_, key);
    });
    return nearest ? nearest : weaker;
  }

  // May it follow from what shares no variable with it? What a program does
  // anew from one step on (it evaluates, it saves) can bring several errors of
  // setup, calls or checkpoints at once.
  static bool MayFollowUnnamed(const IncidentPart& part) {
    return Begin(part) >= kBegunLater && part.place.rung >= Rung::kResult &&
           part.place.rung <= Rung::kUpdate;
  }

  // One step later counts as together: a cause may be recorded as the next step
  // begins.
  bool Explains(Index cause, Index at) const {
    return parts_[cause].place.rung < parts_[at].place.rung &&
           Begin(parts_[cause]) <= Begin(parts_[at]) + 1;
  }

  const std::vector<IncidentPart>& parts_;
  NumberedNames variables_, subjects_;
  Sets sets_;
  std::vector<Index> order_;
  std::vector<size_t> place_;                   // in order_, by part
  std::vector<std::optional<Index>> authored_;  // causes, by part
  Begun begun_;                                 // by rank: all but structure
  // Alerts that are not structure by attempt and rank, as in order_.
  absl::flat_hash_map<std::pair<uint32_t, int32_t>, std::vector<Index>> alerts_;
  absl::flat_hash_map<std::pair<Index, uint32_t>, Causes> by_variable_;
  // By set, rank and subject: those that name no variables, and the others.
  using BySubject =
      absl::flat_hash_map<std::tuple<Index, int32_t, uint32_t>, Causes>;
  BySubject about_unnamed_, about_named_;
  // By set, rank and first step: those that name no variables, and the others.
  using ByStep =
      absl::flat_hash_map<std::tuple<Index, int32_t, int64_t>, Causes>;
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
