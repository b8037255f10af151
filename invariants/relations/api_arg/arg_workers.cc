#include "invariants/relations/api_arg/arg_workers.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/json_reader.h"
#include "invariants/facts/process_facts.h"
#include "invariants/rules/spec_relation.h"
#include "invariants/trace/definitions.h"

namespace traincheck {

namespace {

constexpr char kPrefix[] = "generator.";
constexpr char kLoader[] = "torch.utils.data.dataloader.DataLoader";

struct WorkersSpec {
  std::string generator;  // "generator.numpy"

  static absl::StatusOr<WorkersSpec> Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
    JsonReader reader(parameters, path);
    if (reader.String("is") != "distinct") {
      reader.Fail("is", "not \"distinct\"");
    }
    if (reader.String("across") != "workers") {
      reader.Fail("across", "not \"workers\"");
    }
    WorkersSpec spec{reader.String("argument")};
    if (spec.generator.rfind(kPrefix, 0) != 0) {
      reader.Fail("argument", "not the name of a generator");
    }
    return reader.Finish(spec);
  }
  nlohmann::json ToJson() const {
    return {{"is", "distinct"}, {"argument", generator}, {"across", "workers"}};
  }
  std::string Describe() const {
    const std::string owner = generator.substr(sizeof kPrefix - 1);
    return "The workers of a loader begin each pass with different states of " +
           (owner == "dataset" ? "the data set" : owner) +
           "'s random generator.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  static void AddNeeds(CaptureNeeds*) {}
};

// Generators have records at forwards, too. This point is that of a worker that
// is about to fetch for the first time.
bool IsStart(const StateEvent& event) {
  return event.point == StatePoint::kWorkerInit && event.variable &&
         event.variable->kind == VariableKind::kGenerator;
}

// Generators that workers recorded.
class GeneratorsSeen : public ProcessObserver {
 public:
  void OnWorkerState(const ProcessFacts& facts,
                     const StateEvent& event) override {
    if (IsStart(event)) seen_.insert(event.variable->FullName());
  }
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const std::string& generator : seen_) {
      out->Add({WorkersSpec{generator}.ToJson(), Scope::kGeneral, {}});
    }
  }

 private:
  std::set<std::string> seen_;
};

// The workers that one process started for one pass.
struct Pass {
  std::string host;
  uint32_t owner = 0;
  // The start time of the owner, which tells it from an earlier process with
  // the same pid.
  uint64_t owner_ticks = 0;
  uint64_t seed = 0;
  std::optional<uint64_t> step;
  uint32_t attempt = 0;

  auto Key() const {
    return std::tie(attempt, host, owner, owner_ticks, step, seed);
  }
  bool operator<(const Pass& other) const { return Key() < other.Key(); }
  void Fields(Archive& archive) {
    archive(host, owner, owner_ticks, seed, step, attempt);
  }
};

// A process that may have started workers.
struct Owner {
  std::string host;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  std::optional<int32_t> rank;

  void Fields(Archive& archive) { archive(host, pid, start_ticks, rank); }
};

// Copied when the owner ends, because its facts go then and its workers may
// still be unjudged.
Owner OwnerOf(const ProcessFacts& facts) {
  const ProcessInfo& process = facts.definitions().process();
  return {process.host, process.pid, process.start_ticks, facts.rank()};
}

// What one worker of it began with; nullopt: it could not be read.
using Starts = std::map<uint64_t, std::optional<uint64_t>>;  // by worker

// Joins the workers of all processes. Workers are not ranks and count no steps:
// what they have in common is the pass that started them, so neither frame of
// rules fits.
class WorkersOfRun : public RunObserver {
 public:
  WorkersOfRun(std::vector<SpecRule<WorkersSpec>> rules, RuleSink* sink)
      : rules_(std::move(rules)), sink_(sink) {}

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    going_on_[facts.number()] = &facts;
    return std::make_unique<Process>(this);
  }

  void EndRun() override { JudgeAll(/*ended=*/true); }

  void Fields(Archive& archive) override {
    archive(passes_, judged_, ended_);
    // AddProcess was called for every process that is kept, also for those that
    // have ended.
    for (const auto& [number, owner] : ended_) going_on_.erase(number);
  }

 private:
  // Place of a rule among rules_, and a pass.
  using Key = std::pair<size_t, Pass>;

  class Process : public ProcessObserver {
   public:
    explicit Process(WorkersOfRun* run) : run_(run) {}
    void OnWorkerState(const ProcessFacts& facts,
                       const StateEvent& event) override {
      if (IsStart(event)) run_->Add(facts, event);
    }
    // The owner's place may become known after its workers have begun.
    void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
      if (event.kind == MarkKind::kBatchFetched) run_->JudgeAll(false);
    }
    // Its workers may be judged after it was let go.
    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      run_->going_on_.erase(facts.number());
      run_->ended_[facts.number()] = OwnerOf(facts);
    }

   private:
    WorkersOfRun* const run_;
  };

  void Add(const ProcessFacts& facts, const StateEvent& event) {
    const ProcessInfo& worker = facts.definitions().process();
    // Without the seed nothing tells the workers of one pass from those of the
    // next.
    if (!worker.pass_seed) return;
    const Pass pass{worker.host,       worker.owner_pid,  worker.owner_ticks,
                    *worker.pass_seed, worker.owner_step, facts.attempt()};
    // A worker whose state could not be read is kept all the same: its window
    // is unknown, and the workers behind it are judged.
    const bool read = event.Has(kHasData) && !event.Has(kUnreadable);
    const std::string name = event.variable->FullName();
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      if (GeneratorOf(rule) != name) continue;
      passes_[{rule, pass}][worker.worker] =
          read ? std::optional(event.data) : std::nullopt;
      Judge({rule, pass}, /*ended=*/false);
    }
  }

  const std::string& GeneratorOf(size_t rule) const {
    return rules_[rule].spec.generator;
  }

  void JudgeAll(bool ended) {
    // Asked at each batch that any process fetches, so it must cost nothing as
    // long as no worker waits.
    if (!some_wait_ && !ended) return;
    some_wait_ = false;
    std::vector<Key> keys;
    for (const auto& [key, starts] : passes_) keys.push_back(key);
    for (const Key& key : keys) Judge(key, ended);
  }

  // nullopt: its process is not known yet, or not its place.
  std::optional<int32_t> RankOfOwner(const Pass& pass) const {
    const auto is_owner = [&](const auto& process) {
      return process.pid == pass.owner && process.host == pass.host &&
             process.start_ticks == pass.owner_ticks;
    };
    // Of several that are one to the system, the first counts: a process that
    // replaced itself is two.
    std::optional<uint32_t> first;
    std::optional<int32_t> rank;
    for (const auto& [number, owner] : ended_) {
      if (!is_owner(owner)) continue;
      first = number;
      rank = owner.rank;
      break;
    }
    for (const auto& [number, facts] : going_on_) {
      if (first && number > *first) break;
      if (is_owner(facts->definitions().process())) return facts->rank();
    }
    return rank;
  }

  // Each worker against those before it, once these are in.
  void Judge(const Key& key, bool ended) {
    const Starts& starts = passes_[key];
    uint64_t& next = judged_[key];
    // Worker `next` is not in yet. Those behind it wait, so that each is judged
    // once and against all before it.
    if (!starts.contains(next)) return;
    // The violation names the rank of the owner, so it waits for the owner's
    // place, at most until the end of the run.
    const std::optional<int32_t> rank = RankOfOwner(key.second);
    if (!ended && !rank) {
      some_wait_ = true;
      return;
    }
    for (; starts.count(next) > 0; ++next) {
      // In the order of their numbers, so that verdicts do not depend on which
      // worker's records came first. The first one has nobody before it.
      if (next > 0) JudgeOne(key, rank, starts, next);
    }
  }

  // `rank`: of the owner.
  void JudgeOne(const Key& key, std::optional<int32_t> rank,
                const Starts& starts, uint64_t worker) {
    const auto& [rule, pass] = key;
    Verdict verdict;
    verdict.rule = rules_[rule].index;
    verdict.attempt = pass.attempt;
    verdict.unit = StableHash(pass.host + " " + std::to_string(pass.owner));
    verdict.step = pass.step;
    // By step and seed: several passes may begin in one step (a training set
    // and a validation set).
    verdict.label = "pass " + std::to_string(pass.step.value_or(0)) + " " +
                    std::to_string(pass.seed) + " worker " +
                    std::to_string(worker);
    const auto mine = starts.at(worker);
    for (uint64_t other = 0; other < worker; ++other) {
      const auto theirs = starts.at(other);
      if (!mine || !theirs) {
        verdict.outcome = Outcome::kUnknown;
        verdict.reason = GeneratorOf(rule) + " of a worker could not be read";
      } else if (*mine == *theirs) {
        // Equal states are a violation, whatever another worker did not record.
        if (rank) verdict.ranks = {*rank};
        Violate(GeneratorOf(rule), other, worker, &verdict);
        break;
      }
    }
    sink_->OnVerdict(verdict);
  }

  static void Violate(const std::string& generator, uint64_t one,
                      uint64_t other, Verdict* verdict) {
    verdict->outcome = Outcome::kViolated;
    verdict->reason.clear();
    Finding& finding = verdict->finding;
    finding.apis = {kLoader};
    finding.variables = {generator};
    finding.expected = "another state in each worker";
    finding.seen = "workers " + std::to_string(one) + " and " +
                   std::to_string(other) + " begin with equal states of " +
                   generator;
  }

  const std::vector<SpecRule<WorkersSpec>> rules_;
  RuleSink* const sink_;
  // By number of the process.
  std::map<uint32_t, const ProcessFacts*> going_on_;
  std::map<uint32_t, Owner> ended_;
  std::map<Key, Starts> passes_;
  std::map<Key, uint64_t> judged_;  // workers
  // May some wait for the place of their owner? Not saved: asked for anew.
  bool some_wait_ = true;
};

}  // namespace

const Relation* ArgWorkers() {
  static const auto* const kForm = new SpecRelation<WorkersSpec, WorkersOfRun>(
      "APIArg", NewSeenGenerator<GeneratorsSeen>);
  return kForm;
}

}  // namespace traincheck
