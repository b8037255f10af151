#include "ctl/render/incident.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ctl/render/grade.h"
#include "ctl/render/names.h"
#include "ctl/render/violation.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

// An error of all parameters must not fill the user's screen.
constexpr size_t kMaxConsequences = 12;

// Of violations that were stored before there were incidents.
const std::string& IncidentIdOf(const v1::Violation& violation) {
  return violation.incident().empty() ? violation.id() : violation.incident();
}

constexpr char kFollowsFromLead[] = "    what follows from it:\n";
constexpr char kBesideLead[] = "    found beside it, cause not known:\n";

// The members of one incident, each below what it follows from.
class Tree {
 public:
  explicit Tree(const std::vector<const v1::Violation*>& violations) {
    const auto lead =
        std::find_if(violations.begin(), violations.end(),
                     [](const v1::Violation* v) { return Leads(*v); });
    // The lead may be silenced, or not of the list that is shown.
    root_ = lead == violations.end() ? violations.front() : *lead;
    std::set<std::string> there;
    // All ids before any is placed: a cause may come behind what follows from
    // it.
    for (const v1::Violation* violation : violations) {
      there.insert(violation->id());
    }
    for (const v1::Violation* violation : violations) {
      if (violation == root_) continue;
      const bool known = there.count(violation->cause()) != 0 &&
                         violation->cause() != violation->id();
      // A cause that is not among these violations explains nothing here, so
      // what names it stands beside the lead.
      if (known) {
        below_[violation->cause()].push_back(violation);
      } else {
        beside_.push_back(violation);
      }
    }
  }

  Incident Flatten() {
    Incident incident;
    Add(*root_, 0, /*beside=*/false, &incident);
    for (const v1::Violation* violation : beside_) {
      Add(*violation, 1, /*beside=*/true, &incident);
    }
    // States that were read at different times may name causes in a circle.
    for (const auto& [cause, below] : below_) {
      for (const v1::Violation* violation : below) {
        incident.members.push_back({*violation, 1, /*beside=*/true});
      }
    }
    return incident;
  }

 private:
  void Add(const v1::Violation& violation, size_t depth, bool beside,
           Incident* incident) {
    incident->members.push_back({violation, depth, beside});
    // Taken out, so that each is there once, and a circle ends.
    const auto below = std::exchange(below_[violation.id()], {});
    for (const v1::Violation* next : below) {
      Add(*next, depth + 1, beside, incident);
    }
  }

  const v1::Violation* root_ = nullptr;
  std::vector<const v1::Violation*> beside_;
  std::map<std::string, std::vector<const v1::Violation*>> below_;
};

// Nothing explains it: whoever mends the lead alone is left with it.
bool NeedsItsOwnFix(const IncidentMember& member) {
  return member.beside && member.depth == 1 && !IsAdvice(member.violation) &&
         !IsSilenced(member.violation) && !member.violation.fix().empty();
}

}  // namespace

bool Leads(const v1::Violation& violation) {
  return IncidentIdOf(violation) == violation.id();
}

bool IsOfAlert(const v1::Violation& violation) {
  // An older server does not say; then the violation's own grade counts.
  if (violation.incident_grade().empty()) return !IsAdvice(violation);
  return violation.incident_grade() != kAdvice;
}

const char* IncidentGradeOf(const v1::Violation& violation) {
  return IsOfAlert(violation) ? kAlert : kAdvice;
}

// The server has decided which violations belong together; here they are only
// put into an order.
std::vector<Incident> IncidentsOf(
    const std::vector<v1::Violation>& violations) {
  // Numbers of groups instead of the groups themselves: incidents keep the
  // order in which the list has their first violations.
  std::map<std::string, size_t> numbers;
  std::vector<std::vector<const v1::Violation*>> groups;
  for (const v1::Violation& violation : violations) {
    const auto [number, is_new] =
        numbers.try_emplace(IncidentIdOf(violation), groups.size());
    if (is_new) groups.emplace_back();
    groups[number->second].push_back(&violation);
  }
  std::vector<Incident> incidents;
  for (const auto& group : groups) incidents.push_back(Tree(group).Flatten());
  return incidents;
}

size_t RemoveSilenced(std::vector<v1::Violation>* violations) {
  const auto silenced =
      std::remove_if(violations->begin(), violations->end(), IsSilenced);
  const size_t count = violations->end() - silenced;
  violations->erase(silenced, violations->end());
  return count;
}

std::string SilencedText(size_t silenced, const std::string& command) {
  if (silenced == 0) return "";
  return absl::StrCat(Counted(silenced, "violation"),
                      silenced == 1 ? " is" : " are", " silenced: ", command,
                      silenced == 1 ? " shows it" : " shows them");
}

size_t CountAlertIncidents(const std::vector<Incident>& incidents) {
  return std::count_if(
      incidents.begin(), incidents.end(),
      [](const Incident& incident) { return IsOfAlert(incident.lead()); });
}

std::string CountedIncidents(const std::vector<Incident>& incidents) {
  const size_t alerts = CountAlertIncidents(incidents);
  const size_t advice = incidents.size() - alerts;
  // Advice alone is not an incident for people.
  std::string text = alerts == 0 ? "no incident" : Counted(alerts, "incident");
  if (advice > 0) {
    absl::StrAppend(&text, ", ", Counted(advice, "piece"), " of advice");
  }
  return text;
}

std::string OthersText(const Incident& incident) {
  std::string text;
  // The bound is on what stands below the lead.
  const size_t shown = std::min(incident.members.size(), kMaxConsequences + 1);
  for (size_t i = 1; i < shown; ++i) {
    // What follows stands before what was found beside it, so each heading
    // comes once.
    const IncidentMember& member = incident.members[i];
    const bool first = i == 1 || !incident.members[i - 1].beside;
    if (member.beside && first) {
      text += kBesideLead;
    } else if (i == 1) {
      text += kFollowsFromLead;
    }
    absl::StrAppend(&text, "      ", std::string(2 * (member.depth - 1), ' '),
                    "- ", ViolationHeadline(member.violation), " [",
                    OneLine(member.violation.id()),
                    IsSilenced(member.violation) ? ", silenced" : "", "]\n");
    if (NeedsItsOwnFix(member)) {
      absl::StrAppend(
          &text, "        what to do: ", OneLine(member.violation.fix()), "\n");
    }
  }
  if (shown < incident.members.size()) {
    absl::StrAppend(&text, "      - and ", incident.members.size() - shown,
                    " more\n");
  }
  return text;
}

std::string CountedOthers(const Incident& incident) {
  const size_t all = incident.members.size() - 1;
  const size_t beside =
      std::count_if(incident.members.begin(), incident.members.end(),
                    [](const IncidentMember& member) { return member.beside; });
  const size_t follow = all - beside;
  std::string text;
  if (follow > 0) {
    absl::StrAppend(&text, Counted(follow, "violation"),
                    follow == 1 ? " follows" : " follow", " from it");
  }
  if (beside > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    Counted(beside, "violation"),
                    beside == 1 ? " was" : " were", " found beside it");
  }
  return text;
}

}  // namespace traincheck::ctl
