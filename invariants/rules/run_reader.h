// Reads the batches of one run: facts for each process, and the observers of
// a run (evaluators, generators) on top of them. A process that has ended may
// be let go: then a brief of some hundred bytes is all that is kept of it.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_RUN_READER_H_
#define TRAINCHECK_INVARIANTS_RULES_RUN_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/process_brief.h"
#include "invariants/rules/relation.h"
#include "invariants/rules/unseen_in_run.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

class RunReader {
 public:
  // The observers must outlive the reader.
  explicit RunReader(std::vector<RunObserver*> observers)
      : observers_(std::move(observers)) {}
  RunReader(const RunReader&) = delete;
  RunReader& operator=(const RunReader&) = delete;

  void Consume(uint32_t process, const StoredBatch& batch);
  // Once, before anything else is said of the process. Without it the attempt
  // is the one that its launcher named.
  void SetAttempt(uint32_t process, uint32_t attempt);
  void EndProcess(uint32_t process, ProcessEnd end);
  // Frees the facts and the observers of the process. What is said of it all
  // the same is not looked at. REQUIRES: EndProcess was called, and nothing can
  // come that takes it back.
  void LetGo(uint32_t process);
  void EndRun();

  // Of this rank, for which no process came, nothing will come.
  void GiveUpRank(uint32_t attempt, int32_t rank, const std::string& reason);

  // Null before its first batch, and once it was let go.
  const ProcessFacts* Find(uint32_t process) const;
  // Number of its open step, or of the last one; 0 before its first batch.
  uint64_t StepOf(uint32_t process) const;
  // "pid 17 on host a" if other processes without a group have the same place:
  // a script may have started several trainings. "": nobody else has it.
  std::string NameIfShared(uint32_t process) const;
  // The newest attempt in which a process trains.
  uint32_t newest_attempt() const;

  // What may have happened unseen in the newest attempt. Of use until anything
  // else is done with the reader.
  UnseenInRun Unseen() const;
  // The processes of the newest attempt that train, by number. Of use until
  // anything else is done with the reader.
  std::vector<ProcessBrief> NewestTrainings() const;

  // Saves or restores everything. REQUIRES: nothing was read before it is
  // restored.
  void Fields(Archive& archive);

 private:
  struct Live {
    explicit Live(uint32_t number) : facts(number) {}
    ProcessFacts facts;
    std::vector<std::unique_ptr<ProcessObserver>> observers;
  };
  struct Process {
    std::unique_ptr<Live> live;  // null: it was let go
    // Of one that was let go.
    ProcessBrief last;
    std::string home;  // "pid 17 on host a" of one without a group

    ProcessPlace place() const {
      return live ? ProcessPlace::Of(live->facts) : last.place;
    }
    ProcessBrief brief() const {
      return live ? ProcessBrief::Of(live->facts) : last;
    }
  };

  // Begins with a process that is new. Null: it was let go.
  ProcessFacts* Facts(uint32_t process);
  void Begin(uint32_t number, Process* process);
  // How well processes that were let go were seen.
  void ForgetSights();
  // Those of processes that were let go.
  void SightFields(Archive& archive);

  const std::vector<RunObserver*> observers_;
  std::map<uint32_t, Process> processes_;
  // Of processes that train and were let go, of the newest attempt that had
  // any: nobody asks how well those before were seen. Most are alike.
  std::set<Sight> sights_;
  uint32_t sights_attempt_ = 0;
  std::map<uint32_t, std::string> given_up_;  // attempt -> of some rank, why
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RUN_READER_H_
