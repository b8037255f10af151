#include "server/plans/run_plans.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "invariants/rules/capture_plan.h"
#include "invariants/sets/set_plan.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

// How long a change waits for the disk. A check that begins waits on the
// checks' thread.
constexpr absl::Duration kPatience = absl::Seconds(5);
// The most versions of one run's plan; each may have a MiB
// (kMaxCapturePlanBytes).
constexpr size_t kMaxVersions = 100;
constexpr uint64_t kFirstVersion = 1;
// A change that is sent now is taken to reach all ranks before they have closed
// so many further steps.
constexpr uint64_t kStepsAhead = 2;

// Relays are sent neither the origin nor the time of a plan, which are for
// people.
v1::PlanChange ToChange(const stored::Plan& plan) {
  v1::PlanChange change;
  change.set_version(plan.version());
  change.set_from_step(plan.from_step());
  change.set_plan(plan.json());
  return change;
}

// A set without a version was merged from several, and its name lists them with
// their versions (SetCatalog::Load).
std::string OriginOf(const InvariantSet& set) {
  if (set.version == 0) return absl::StrCat("sets ", set.name);
  return absl::StrCat("set ", set.name, " version ", set.version);
}

// The plan that holds once a zoom in it is over.
nlohmann::json WithoutZoom(const stored::Plan& plan) {
  // A stored plan that does not parse gives a value that is not an object,
  // which callers look at.
  nlohmann::json json = nlohmann::json::parse(plan.json(), nullptr,
                                              /*allow_exceptions=*/false);
  if (json.is_object()) json.erase("zoom");
  return json;
}

// Does the set say what the run records under already?
bool Says(const stored::Plan& plan, const nlohmann::json& json) {
  // As texts of one version, since the version stands in the text.
  return PlanText(WithoutZoom(plan), plan.version()) ==
         PlanText(json, plan.version());
}

// An incident is known again by any violation: it may have gained some, and
// another one may lead it.
bool ShareOne(const stored::Zoom& a, const stored::Zoom& b) {
  const std::set<std::string> of_a(a.violations().begin(),
                                   a.violations().end());
  return std::any_of(b.violations().begin(), b.violations().end(),
                     [&](const std::string& id) { return of_a.contains(id); });
}

// Is a zoom on this incident one too many?
bool HasZoomed(const std::vector<stored::Plan>& plans,
               const stored::Zoom& zoom) {
  int zooms = 0;
  for (const stored::Plan& plan : plans) {
    if (!plan.has_zoom()) continue;
    if (ShareOne(plan.zoom(), zoom)) return true;
    ++zooms;
  }
  return zooms >= RunPlans::kMaxZooms;
}

}  // namespace

v1::SetPlan PlanOfSet(const InvariantSet& set) {
  v1::SetPlan plan;
  plan.set_name(set.name);
  plan.set_version(set.version);
  plan.set_json(PlanText(PlanOf(set.invariants), kFirstVersion));
  return plan;
}

absl::StatusOr<std::vector<stored::Plan>> RunPlans::Read(uint64_t run) const {
  std::vector<stored::Plan> plans;
  absl::Status bad;
  absl::Status scanned = use_.store->Scan(
      Table::kRuns, PlanKey(run, 0), PlanKey(run + 1, 0),
      [&](std::string_view, std::string_view value) {
        stored::Plan plan;
        if (!plan.ParseFromArray(value.data(), value.size())) {
          bad = absl::DataLossError("a stored capture plan does not parse");
          return false;
        }
        plans.push_back(std::move(plan));
        return true;
      });
  if (!scanned.ok()) return scanned;
  if (!bad.ok()) return bad;
  return plans;
}

absl::StatusOr<std::vector<stored::Plan>> RunPlans::ReadWithQueued(
    uint64_t run) {
  std::vector<stored::Plan> queued;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = queued_.find(run);
    // Before the store is read: what becomes durable in between is there.
    if (at != queued_.end()) queued = at->second;
  }
  absl::StatusOr<std::vector<stored::Plan>> plans = Read(run);
  if (!plans.ok()) return plans;
  for (stored::Plan& plan : queued) {
    if (plans->empty() || plans->back().version() < plan.version()) {
      plans->push_back(std::move(plan));
    }
  }
  return plans;
}

absl::Status RunPlans::Add(const RunView& run,
                           const std::vector<stored::Plan>& before,
                           stored::Plan plan, const nlohmann::json& json) {
  if (before.size() >= kMaxVersions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the plan of run ", run.id, " has changed ", before.size(),
                     " times, the limit is ", kMaxVersions));
  }
  plan.set_version(before.empty() ? kFirstVersion
                                  : before.back().version() + 1);
  // Before the first step a plan is taken at once.
  if (run.last_step.has_value()) {
    plan.set_from_step(*run.last_step + kStepsAhead);
  }
  plan.set_made_unix_ns(absl::ToUnixNanos(use_.now()));
  plan.set_json(PlanText(json, plan.version()));
  if (plan.json().size() > kMaxCapturePlanBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("document: ", plan.json().size(),
                     " bytes, a plan has at most ", kMaxCapturePlanBytes));
  }
  WriteSet writes;
  writes.Put(Table::kRuns, PlanKey(run.number, plan.version()),
             plan.SerializeAsString());
  {
    absl::MutexLock lock(&mutex_);
    // The next change counts it in, also if nobody waits for it any more.
    queued_[run.number].push_back(plan);
  }
  return use_.store->WriteAndApply(
      std::move(writes),
      [this, number = run.number, id = run.id, plan] {
        OnDurable(number, id, plan);
      },
      kPatience);
}

// Only now is it published: a daemon that dies before has sent nobody a version
// that it would give again.
void RunPlans::OnDurable(uint64_t run, const std::string& id,
                         const stored::Plan& plan) {
  spdlog::info("plan of a run run={} version={} from_step={} origin=\"{}\"", id,
               plan.version(), plan.from_step(), plan.origin());
  {
    absl::MutexLock lock(&mutex_);
    // Writes become durable in their order, so it is the first.
    const auto queued = queued_.find(run);
    queued->second.erase(queued->second.begin());
    if (queued->second.empty()) queued_.erase(queued);
  }
  Publish(run, ToChange(plan));
}

// REQUIRES: the change is durable.
void RunPlans::Publish(uint64_t run, const v1::PlanChange& change) {
  std::vector<Listener> listeners;
  {
    absl::MutexLock lock(&mutex_);
    const auto channel = channels_.find(run);
    // Nobody streams for it; who subscribes later reads the store.
    if (channel == channels_.end()) return;
    channel->second.newest = change;
    for (const auto& [number, listener] : channel->second.listeners) {
      listeners.push_back(listener);
    }
  }
  // Without the lock: a listener wakes a stream, which may unsubscribe.
  for (const Listener& listener : listeners) listener(change);
}

std::unique_ptr<RunPlans::Subscription> RunPlans::Subscribe(
    const std::string& run, Listener listener) {
  const std::optional<uint64_t> number = use_.registry->NumberOf(run);
  if (!number.has_value()) return nullptr;
  v1::PlanChange newest;
  std::unique_ptr<Subscription> subscription;
  {
    absl::MutexLock lock(&mutex_);
    const auto [channel, added] = channels_.try_emplace(*number);
    if (added) {
      // Under the lock: a version that becomes durable behind this look is
      // published here.
      const auto plans = Read(*number);
      if (!plans.ok()) {
        spdlog::error("no plan for run={} error=\"{}\"", run,
                      std::string(plans.status().message()));
      } else if (!plans->empty()) {
        channel->second.newest = ToChange(plans->back());
      }
    }
    newest = channel->second.newest;
    channel->second.listeners[next_listener_] = listener;
    subscription =
        std::make_unique<Subscription>(this, *number, next_listener_++);
  }
  // Without the lock as well, so an older version may come behind a newer one;
  // the stream keeps the newer (ReplyOutbox::Plan).
  if (newest.version() > 0) listener(newest);
  return subscription;
}

void RunPlans::Unsubscribe(uint64_t run, uint64_t number) {
  absl::MutexLock lock(&mutex_);
  const auto channel = channels_.find(run);
  if (channel == channels_.end()) return;
  channel->second.listeners.erase(number);
  // Who subscribes next reads the newest from the store.
  if (channel->second.listeners.empty()) channels_.erase(channel);
}

void RunPlans::OnCheckBegins(const RunView& run, const InvariantSet& set) {
  // A reference run records all that its own plan asks for: what it lacks
  // cannot be learned.
  if (run.ended || run.is_reference) return;
  const nlohmann::json json = PlanOf(set.invariants);
  absl::MutexLock lock(&changing_);
  const auto before = ReadWithQueued(run.number);
  absl::Status status = before.status();
  if (before.ok()) {
    // What somebody asked for stays.
    if (!before->empty() &&
        (before->back().by_hand() || Says(before->back(), json))) {
      return;
    }
    stored::Plan plan;
    plan.set_origin(OriginOf(set));
    status = Add(run, *before, std::move(plan), json);
  }
  // The check goes on: a plan only says how much is recorded.
  if (!status.ok()) {
    spdlog::error("run keeps its plan run={} error=\"{}\"", run.id,
                  std::string(status.message()));
  }
}

absl::StatusOr<v1::RunPlan> RunPlans::ChangeUntrusted(const std::string& run,
                                                      const std::string& text) {
  const auto json = PlanFromJsonUntrusted(text);
  if (!json.ok()) return json.status();
  {
    absl::MutexLock lock(&changing_);
    const absl::StatusOr<RunView> view = use_.registry->View(run);
    if (!view.ok()) return view.status();
    if (view->ended) {
      return absl::FailedPreconditionError(
          absl::StrCat("run ", run, " has ended: nobody is left to record"));
    }
    const auto before = ReadWithQueued(view->number);
    if (!before.ok()) return before.status();
    stored::Plan plan;
    plan.set_origin("by hand");
    plan.set_by_hand(true);
    absl::Status added = Add(*view, *before, std::move(plan), *json);
    if (!added.ok()) return added;
  }
  return Show(run);
}

absl::Status RunPlans::ZoomIn(const std::string& run, stored::Zoom zoom,
                              const nlohmann::json& json) {
  absl::MutexLock lock(&changing_);
  const absl::StatusOr<RunView> view = use_.registry->View(run);
  // Deleted meanwhile: nobody is left to record.
  if (absl::IsNotFound(view.status())) return absl::OkStatus();
  if (!view.ok()) return view.status();
  if (view->ended) return absl::OkStatus();
  const auto before = ReadWithQueued(view->number);
  if (!before.ok()) return before.status();
  // Without a plan of the daemon's the ranks record by another one, which
  // nobody here knows and which must not be replaced.
  if (before->empty() || HasZoomed(*before, zoom)) return absl::OkStatus();
  const stored::Plan& newest = before->back();
  nlohmann::json plan_json = WithoutZoom(newest);
  if (!plan_json.is_object()) {
    return absl::DataLossError("a stored capture plan is not JSON");
  }
  plan_json["zoom"] = json;
  stored::Plan plan;
  plan.set_origin(absl::StrCat("zoom on incident ", zoom.violations(0)));
  // The plan behind the zoom is the one before it: if that was by hand, no
  // check that begins replaces it.
  plan.set_by_hand(newest.by_hand());
  *plan.mutable_zoom() = std::move(zoom);
  return Add(*view, *before, std::move(plan), plan_json);
}

absl::StatusOr<std::vector<stored::Plan>> RunPlans::Zooms(
    const std::string& run) const {
  const std::optional<uint64_t> number = use_.registry->NumberOf(run);
  if (!number.has_value()) return std::vector<stored::Plan>();
  absl::StatusOr<std::vector<stored::Plan>> plans = Read(*number);
  if (!plans.ok()) return plans.status();
  std::erase_if(*plans, [](const auto& plan) { return !plan.has_zoom(); });
  return plans;
}

// The answer has all versions and which of them each rank has taken, so that
// `runs plan` shows where ranks record differently.
absl::StatusOr<v1::RunPlan> RunPlans::Show(const std::string& run) const {
  const absl::StatusOr<RunView> view = use_.registry->View(run);
  if (!view.ok()) return view.status();
  const auto plans = Read(view->number);
  if (!plans.ok()) return plans.status();
  v1::RunPlan reply;
  reply.set_run(run);
  for (const stored::Plan& plan : *plans) {
    v1::PlanVersion* version = reply.add_versions();
    version->set_version(plan.version());
    version->set_from_step(plan.from_step());
    version->set_origin(plan.origin());
    version->set_made_unix_ns(plan.made_unix_ns());
    // The last one stays: the newest.
    reply.set_json(plan.json());
  }
  for (const RunView::Process& process : view->processes) {
    if (!process.rank.has_value() || !process.plan_version.has_value()) {
      continue;
    }
    v1::RankPlan* rank = reply.add_ranks();
    rank->set_attempt(process.attempt);
    rank->set_rank(*process.rank);
    rank->set_version(*process.plan_version);
    if (process.plan_after_step.has_value()) {
      rank->set_after_step(*process.plan_after_step);
    }
  }
  return reply;
}

}  // namespace traincheck::server
