// Reads the batches of one run: facts for each process, and the observers of
// a run (evaluators, generators) on top of them.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_RUN_READER_H_
#define TRAINCHECK_INVARIANTS_RULES_RUN_READER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/capture_needs.h"
#include "invariants/rules/relation.h"
#include "invariants/rules/rule_needs.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

class RunReader {
 public:
  // The observers must outlive the reader.
  explicit RunReader(std::vector<RunObserver*> observers)
      : observers_(std::move(observers)) {}

  void Consume(uint32_t process, const StoredBatch& batch) {
    Facts(process).Consume(batch);
  }
  // Once, before anything else is said of the process. Without it the attempt
  // is the one that its launcher named.
  void SetAttempt(uint32_t process, uint32_t attempt) {
    Facts(process).SetAttempt(attempt);
  }
  void EndProcess(uint32_t process, ProcessEnd end) { Facts(process).End(end); }
  void EndRun() {
    for (RunObserver* observer : observers_) observer->EndRun();
  }

  // Of this rank, for which no process came, nothing will come.
  void GiveUpRank(uint32_t attempt, int32_t rank, const std::string& reason) {
    given_up_[attempt] = "rank " + std::to_string(rank) + " " + reason;
    for (RunObserver* observer : observers_) {
      observer->GiveUpRank(attempt, rank, reason);
    }
  }

  // Null before its first batch.
  const ProcessFacts* Find(uint32_t process) const {
    const auto found = processes_.find(process);
    return found == processes_.end() ? nullptr : found->second.get();
  }
  // "pid 17 on host a" if other processes without a group have the same place:
  // a script may have started several trainings. "": nobody else has it.
  std::string NameIfShared(uint32_t process) const {
    const ProcessFacts* facts = Find(process);
    if (facts == nullptr || !facts->rank() || facts->world() > 1) return "";
    for (const auto& [number, other] : processes_) {
      if (number == process || other->is_worker() || !other->rank() ||
          other->world() > 1 || other->attempt() != facts->attempt()) {
        continue;
      }
      const ProcessInfo& info = facts->definitions().process();
      return "pid " + std::to_string(info.pid) + " on host " + info.host;
    }
    return "";
  }
  // The newest attempt in which a process trains.
  uint32_t newest_attempt() const {
    uint32_t newest = 0;
    for (const auto& [number, facts] : processes_) {
      if (!facts->rank() || facts->is_worker()) continue;
      newest = std::max(newest, facts->attempt());
    }
    return newest;
  }

  // Why what a rule with these needs is about may have happened unseen in the
  // newest attempt; "": it did not happen.
  std::string WhyUnseen(const CaptureNeeds& needs) const {
    const uint32_t newest = newest_attempt();
    const auto given_up = given_up_.find(newest);
    if (given_up != given_up_.end()) return given_up->second;
    const std::vector<const ProcessFacts*> trainings = NewestTrainings();
    for (const ProcessFacts* facts : trainings) {
      std::string reason = traincheck::WhyUnseen(*facts, needs);
      if (!reason.empty()) return reason;
    }
    return trainings.empty() ? "no step of an optimizer was recorded" : "";
  }
  // The processes of the newest attempt that train.
  std::vector<const ProcessFacts*> NewestTrainings() const {
    const uint32_t newest = newest_attempt();
    std::vector<const ProcessFacts*> trainings;
    for (const auto& [number, facts] : processes_) {
      if (!facts->rank() || facts->is_worker()) continue;
      if (facts->attempt() == newest) trainings.push_back(facts.get());
    }
    return trainings;
  }

  // Saves or restores everything. REQUIRES: nothing was read before it is
  // restored.
  void Fields(Archive& archive) {
    std::vector<uint32_t> numbers;
    for (const auto& [number, facts] : processes_) numbers.push_back(number);
    archive(numbers, given_up_);
    for (uint32_t number : numbers) {
      if (!archive.ok()) return;
      archive(Facts(number));
    }
    for (RunObserver* observer : observers_) observer->Fields(archive);
  }

 private:
  ProcessFacts& Facts(uint32_t process) {
    std::unique_ptr<ProcessFacts>& facts = processes_[process];
    if (!facts) {
      facts = std::make_unique<ProcessFacts>(process);
      for (RunObserver* observer : observers_) {
        facts->AddObserver(observer->AddProcess(*facts));
      }
    }
    return *facts;
  }

  const std::vector<RunObserver*> observers_;
  std::map<uint32_t, std::unique_ptr<ProcessFacts>> processes_;
  std::map<uint32_t, std::string> given_up_;  // attempt -> of some rank, why
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RUN_READER_H_
