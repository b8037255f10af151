// The checker, with a set that was learned from healthy runs, over processes
// whose records say anything: ids that nobody defined, cycles of owners, calls
// that never end, ranks that lie.
//
// Input: operations, one byte each (which process: bits 0 and 1) with the
// operands behind it.
#include <array>
#include <string>

#include "checker/checker.h"
#include "proto/record_format.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/small_set.h"

namespace traincheck {
namespace {

constexpr uint32_t kProcesses = 4;

class Play {
 public:
  explicit Play(FuzzInput* input)
      : input_(*input), checker_("run", "experiment", SmallSet()) {}

  void Run() {
    while (!input_.empty()) {
      const uint8_t operation = input_.Byte();
      const uint32_t process = operation % kProcesses;
      if (operation >> 5 == 7) {
        End(process);
      } else if (operation >> 5 == 6) {
        Look();
      } else {
        Consume(process);
      }
    }
    checker_.EndRun();
    Look();
    const CheckSummary summary = checker_.Summary();
    Require(summary.violated <= summary.decided);
    Require(summary.decided <= summary.total);
  }

 private:
  void End(uint32_t process) {
    if (ended_[process]) return;
    ended_[process] = true;
    checker_.EndProcess(process, static_cast<ProcessEnd>(input_.Byte() % 3));
  }

  // slices - 1 u8 | slices: ring u8, missing bytes before it / 8 u8, bytes
  // u16, bytes
  void Consume(uint32_t process) {
    StoredBatch batch;
    batch.number = next_batch_[process]++;
    const int slices = input_.Byte() % 4 + 1;
    for (int i = 0; i < slices; ++i) {
      RingSlice slice;
      slice.ring = input_.Byte();
      slice.from = positions_[process][slice.ring] +
                   uint64_t{input_.Byte()} * kRecordAlignment;
      const std::string bytes = input_.Bytes(input_.Number<uint16_t>());
      slice.to = slice.from + bytes.size();
      positions_[process][slice.ring] = slice.to;
      batch.plain += bytes;
      batch.slices.push_back(slice);
    }
    if (!ended_[process]) checker_.Consume(process, batch);
  }

  void Look() {
    for (const Violation& violation : checker_.TakeChanges()) {
      Require(!violation.id.empty() && violation.count > 0);
    }
  }

  FuzzInput& input_;
  Checker checker_;
  std::array<bool, kProcesses> ended_ = {};
  std::array<uint64_t, kProcesses> next_batch_ = {};
  std::array<std::array<uint64_t, 256>, kProcesses> positions_ = {};
};

}  // namespace
}  // namespace traincheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::FuzzInput input(data, size);
  traincheck::Play(&input).Run();
  return 0;
}
