// Reads the batches of one run: facts for each process, and the observers of
// a run (evaluators, generators) on top of them.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RUN_READER_H_
#define TRAINCHECK_INVARIANTS_RUN_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/relations/relation.h"
#include "invariants/stored_batch.h"

namespace traincheck {

class RunReader {
 public:
  // The observers must outlive the reader.
  explicit RunReader(std::vector<RunObserver*> observers)
      : observers_(std::move(observers)) {}

  void Consume(uint32_t process, const StoredBatch& batch) {
    Facts(process).Consume(batch);
  }
  void EndProcess(uint32_t process, ProcessEnd end) { Facts(process).End(end); }
  void EndRun() {
    for (RunObserver* observer : observers_) observer->EndRun();
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
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RUN_READER_H_
