// What the stored batches of one process contain, held against what any
// process writes: positions follow each other, calls and steps are numbered
// from 1 and from 0 without a gap, definitions come before their use.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_TESTS_FAULT_PROCESS_AUDIT_H_
#define TRAINCHECK_TESTS_FAULT_PROCESS_AUDIT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/record_reader.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::server {

class ProcessAudit {
 public:
  // REQUIRES: numbers rise.
  void Add(uint64_t number, const v1::Batch& batch);
  void Error(const std::string& what);

  // {run_id, pid, kind, attempt, batches, undefined, errors: [text],
  //  rings: [{ring, records, from, to, gaps: [[from, to]], overlaps,
  //           calls, first_call, last_call, missing_calls, repeated_calls,
  //           steps, last_step, repeated_steps, missing_steps, clean_exit}]}
  // undefined: uses of a function or variable that no record before defines.
  nlohmann::json Show() const;

 private:
  // Numbers that should rise by one from the first on.
  struct Sequence {
    uint64_t count = 0;
    uint64_t first = 0;
    uint64_t last = 0;
    uint64_t missing = 0;   // skipped, from `origin` on
    uint64_t repeated = 0;  // not above the one before

    void Add(uint64_t number, uint64_t origin);
  };
  struct Ring {
    uint64_t records = 0;
    uint64_t from = 0;
    uint64_t to = 0;
    bool seen = false;
    uint64_t overlaps = 0;
    std::vector<std::pair<uint64_t, uint64_t>> gaps;
    Sequence calls;
    Sequence steps;
    bool clean_exit = false;
  };

  void AddSlice(const v1::Slice& slice, std::string_view bytes);
  void AddRecord(const RecordReader& record, Ring* ring);
  void AddProcess(const RecordReader& record);
  void CheckDefined(RecordType definition, uint32_t id);
  static nlohmann::json ShowRing(uint32_t number, const Ring& ring);

  std::map<uint32_t, Ring> rings_;
  std::set<std::pair<uint8_t, uint32_t>> defined_;
  uint64_t batches_ = 0;
  uint64_t undefined_ = 0;
  std::string run_;
  uint64_t pid_ = 0;
  uint64_t kind_ = 0;
  uint64_t attempt_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_TESTS_FAULT_PROCESS_AUDIT_H_
