#include "invariants/relations/api_arg/arg_workers.h"

#include <algorithm>
#include <compare>
#include <iterator>
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

// A process, as the system names it. The start time tells it from an earlier
// one with the same pid.
struct ProcessKey {
  std::string host;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;

  auto operator<=>(const ProcessKey&) const = default;
  void Fields(Archive& archive) { archive(host, pid, start_ticks); }
};

// The workers that one process started for one pass.
struct Pass {
  ProcessKey owner;
  uint64_t seed = 0;
  std::optional<uint64_t> step;
  uint32_t attempt = 0;

  auto Key() const { return std::tie(attempt, owner, step, seed); }
  bool operator<(const Pass& other) const { return Key() < other.Key(); }
  // Of one process?
  bool IsBeside(const Pass& other) const {
    return attempt == other.attempt && owner == other.owner;
  }
  void Fields(Archive& archive) { archive(owner, seed, step, attempt); }
};

// Of one process. Its workers, of several loaders, may begin a pass while the
// next ones are begun, and are read in any order; never so many passes late.
constexpr size_t kMostPasses = 16;

// What one worker of it began with; nullopt: it could not be read.
using Starts = std::map<uint64_t, std::optional<uint64_t>>;  // by worker

// A process that may have started workers and has ended: its facts go then, and
// its workers may still be unjudged.
struct Owner {
  ProcessKey key;
  std::optional<int32_t> rank;

  void Fields(Archive& archive) { archive(key, rank); }
};

// Joins the workers of all processes. Workers are not ranks and count no steps:
// what they have in common is the pass that started them, so neither frame of
// rules fits.
class WorkersOfRun : public RunObserver {
 public:
  WorkersOfRun(std::vector<SpecRule<WorkersSpec>> rules, RuleSink* sink)
      : rules_(std::move(rules)), sink_(sink) {}

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    new_[facts.number()] = &facts;
    return std::make_unique<Process>(this, facts.number());
  }

  void EndRun() override {
    for (auto& [key, pass] : passes_) Judge(key, &pass, /*ended=*/true);
  }

  void Fields(Archive& archive) override {
    archive(passes_, ended_);
    if (!archive.reading()) return;
    // AddProcess was called for every process that is kept, also for those that
    // have ended.
    for (const auto& [number, owner] : ended_) {
      new_.erase(number);
      owners_[owner.key][number] = nullptr;
    }
    for (const auto& [key, pass] : passes_) {
      if (pass.waits()) waiting_[key.second.owner].insert(key);
    }
  }

 private:
  // Place of a rule among rules_, and a pass.
  using Key = std::pair<size_t, Pass>;

  struct Started {
    Starts starts;
    uint64_t judged = 0;  // workers

    // The next worker is in, and was not judged: its owner was not known.
    bool waits() const { return starts.contains(judged); }
    void Fields(Archive& archive) { archive(starts, judged); }
  };

  class Process : public ProcessObserver {
   public:
    Process(WorkersOfRun* run, uint32_t number) : run_(run), number_(number) {}
    // The facts go with it, also if its end came before this check was
    // restored.
    ~Process() override { run_->Forget(number_); }
    void OnDefinition(const ProcessFacts& facts, RecordType type,
                      uint32_t id) override {
      if (type == RecordType::kProcessDef) run_->Define(facts);
    }
    void OnWorkerState(const ProcessFacts& facts,
                       const StateEvent& event) override {
      if (IsStart(event)) run_->Add(facts, event);
    }
    // The owner's place may become known after its workers have begun.
    void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
      if (event.kind != MarkKind::kBatchFetched || !facts.rank()) return;
      run_->JudgeWaiting(KeyOf(facts));
    }
    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      run_->End(facts);
    }

   private:
    WorkersOfRun* const run_;
    const uint32_t number_;
  };

  static ProcessKey KeyOf(const ProcessFacts& facts) {
    const ProcessInfo& process = facts.definitions().process();
    return {process.host, process.pid, process.start_ticks};
  }

  // Before its first definition, and when it says again who it is.
  void Define(const ProcessFacts& facts) {
    Forget(facts.number());
    new_[facts.number()] = &facts;
  }

  void Forget(uint32_t number) {
    new_.erase(number);
    const auto key = keys_.find(number);
    if (key == keys_.end()) return;
    owners_[key->second].erase(number);
    keys_.erase(key);
  }

  // Its workers may be judged after it was let go. A worker starts none.
  void End(const ProcessFacts& facts) {
    Forget(facts.number());
    const ProcessKey key = KeyOf(facts);
    if (facts.is_worker() || key.pid == 0) return;
    ended_[facts.number()] = {key, facts.rank()};
    owners_[key][facts.number()] = nullptr;
    JudgeWaiting(key);
  }

  void Add(const ProcessFacts& facts, const StateEvent& event) {
    const ProcessInfo& worker = facts.definitions().process();
    // Without the seed nothing tells the workers of one pass from those of the
    // next.
    if (!worker.pass_seed) return;
    const Pass pass{{worker.host, worker.owner_pid, worker.owner_ticks},
                    *worker.pass_seed,
                    worker.owner_step,
                    facts.attempt()};
    // A worker whose state could not be read is kept all the same: its window
    // is unknown, and the workers behind it are judged.
    const bool read = event.Has(kHasData) && !event.Has(kUnreadable);
    const std::string name = event.variable->FullName();
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      if (GeneratorOf(rule) != name) continue;
      const auto [found, is_new] = passes_.try_emplace({rule, pass});
      found->second.starts[worker.worker] =
          read ? std::optional(event.data) : std::nullopt;
      Judge(found->first, &found->second, /*ended=*/false);
      if (is_new) DropOldPasses(found->first);
    }
  }

  // A run has any number of passes. Those of one process lie beside each other,
  // in the order of their steps.
  void DropOldPasses(const Key& key) {
    Pass first = key.second;
    first.step.reset();
    first.seed = 0;
    const auto oldest = passes_.lower_bound({key.first, first});
    size_t passes = 0;
    auto end = oldest;
    for (; end != passes_.end() && end->first.first == key.first &&
           end->first.second.IsBeside(first);
         ++end) {
      ++passes;
    }
    const auto waiting = waiting_.find(first.owner);
    for (auto at = oldest; passes > kMostPasses; --passes) {
      Judge(at->first, &at->second, /*ended=*/true);
      if (waiting != waiting_.end()) waiting->second.erase(at->first);
      at = passes_.erase(at);
    }
  }

  const std::string& GeneratorOf(size_t rule) const {
    return rules_[rule].spec.generator;
  }

  void JudgeWaiting(const ProcessKey& owner) {
    const auto found = waiting_.find(owner);
    if (found == waiting_.end()) return;
    const std::set<Key> keys = std::move(found->second);
    waiting_.erase(found);
    // What waits on is put back.
    for (const Key& key : keys) Judge(key, &passes_.at(key), /*ended=*/false);
  }

  // nullopt: its process is not known yet, or not its place.
  std::optional<int32_t> RankOf(const ProcessKey& owner) {
    for (auto at = new_.begin(); at != new_.end();) {
      const auto& [number, facts] = *at;
      const ProcessKey key = KeyOf(*facts);
      if (key.pid != 0 && !facts->is_worker()) {
        owners_[key][number] = facts;
        keys_[number] = key;
      }
      at = key.pid == 0 ? std::next(at) : new_.erase(at);
    }
    const auto found = owners_.find(owner);
    if (found == owners_.end() || found->second.empty()) return std::nullopt;
    // Of several that are one to the system, the first counts: a process that
    // replaced itself is two.
    const auto& [number, facts] = *found->second.begin();
    return facts ? facts->rank() : ended_.at(number).rank;
  }

  // Each worker against those before it, once these are in.
  void Judge(const Key& key, Started* pass, bool ended) {
    // Worker `next` is not in yet. Those behind it wait, so that each is judged
    // once and against all before it.
    if (!pass->waits()) return;
    // The violation names the rank of the owner, so it waits for the owner's
    // place, at most until the end of the run.
    const std::optional<int32_t> rank = RankOf(key.second.owner);
    if (!ended && !rank) {
      waiting_[key.second.owner].insert(key);
      return;
    }
    for (uint64_t& next = pass->judged; pass->waits(); ++next) {
      // In the order of their numbers, so that verdicts do not depend on which
      // worker's records came first. The first one has nobody before it.
      if (next > 0) JudgeOne(key, rank, pass->starts, next);
    }
  }

  // `rank`: of the owner.
  void JudgeOne(const Key& key, std::optional<int32_t> rank,
                const Starts& starts, uint64_t worker) {
    const auto& [rule, pass] = key;
    Verdict verdict;
    verdict.rule = rules_[rule].index;
    verdict.attempt = pass.attempt;
    verdict.unit =
        StableHash(pass.owner.host + " " + std::to_string(pass.owner.pid));
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
  std::map<Key, Started> passes_;
  std::map<uint32_t, Owner> ended_;  // by number of the process
  // The rest is not saved: it is found again.
  // Processes of one name, by number; null: it has ended.
  std::map<ProcessKey, std::map<uint32_t, const ProcessFacts*>> owners_;
  std::map<uint32_t, ProcessKey> keys_;  // of those that go on, among them
  std::map<uint32_t, const ProcessFacts*> new_;  // not among them yet
  // Passes whose owner's place is not known, by owner.
  std::map<ProcessKey, std::set<Key>> waiting_;
};

}  // namespace

const Relation* ArgWorkers() {
  static const auto* const kForm = new SpecRelation<WorkersSpec, WorkersOfRun>(
      "APIArg", NewSeenGenerator<GeneratorsSeen>);
  return kForm;
}

}  // namespace traincheck
