// What judges windows of several ranks has this in common: who brings the ranks
// together (replica_join.h), and that it learns which of them will not come.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_JOINED_RANKS_H_
#define TRAINCHECK_INVARIANTS_RULES_JOINED_RANKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/facts/variable_state.h"
#include "invariants/rules/relation.h"
#include "invariants/rules/replica_join.h"
#include "invariants/rules/text_table.h"

namespace traincheck {

class JoinedRanks : private ReplicaJoinListener {
 public:
  // No more windows of this process's rank.
  void EndProcess(const ProcessFacts& facts, ProcessEnd end);
  void GiveUpRank(uint32_t attempt, int32_t rank, const std::string& reason) {
    join_.EndRank(attempt, rank, reason);
  }
  void EndRun() { join_.EndRun(); }

 protected:
  JoinedRanks() : join_(this) {}
  ~JoinedRanks() override = default;

  ReplicaJoin join_;
};

// The frame of a verdict on a window: a pass.
Verdict NewVerdict(const ReplicaUnit& unit, const JudgedWindow& window);
// Names the ranks and the window.
void MarkViolated(const ReplicaUnit& unit, const JudgedWindow& window,
                  Verdict* verdict);

// What wrote a value, as one text for a TextTable, and its parts.
struct WriterParts {
  std::string function = {};  // "": not known
  std::string site = {};
  std::vector<std::string> callers = {};  // of the site, from the inside
};
WriterParts PartsOf(const ProcessFacts& facts, const Writer& writer);
std::string TextOf(const WriterParts& writer);
WriterParts PartsOf(const std::string& text);
// Numbers of what wrote the values of one window, in a table of their texts.
// Most values have one writer, a step: it is looked up once for neighbours.
class WriterNumbers {
 public:
  // Both must outlive this object.
  WriterNumbers(const ProcessFacts& facts, TextTable* table)
      : facts_(facts), table_(table) {}

  uint32_t Of(const Writer& writer) {
    if (!has_latest_ || latest_ != writer) {
      has_latest_ = true;
      latest_ = writer;
      number_ = table_->Number(TextOf(PartsOf(facts_, writer)));
    }
    return number_;
  }

 private:
  const ProcessFacts& facts_;
  TextTable* const table_;
  // Not an std::optional: gcc warns that comparing one reads what is not there.
  bool has_latest_ = false;
  Writer latest_;
  uint32_t number_ = 0;
};

// The callers are those of the first site.
void AddWriter(const WriterParts& writer, Finding* finding);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_JOINED_RANKS_H_
