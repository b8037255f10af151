// Records a second into a ring: alone, refused by a full ring, and with a
// reader on another core that gives the space back.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "agent/ring/ring_writer.h"
#include "proto/record_writer.h"

namespace traincheck::agent {
namespace {

constexpr size_t kRecordBytes = 32;  // a call begin with one field

struct alignas(8) Record {
  char bytes[64];
  size_t size;
};

Record MakeRecord() {
  Record record;
  FieldWriter out(record.bytes, sizeof record.bytes,
                  CallBeginRecord{{}, 7, 3, 41, 2});
  out.Unsigned(Field::kSelfObject, 300);
  record.size = out.Finish(RecordType::kCallBegin, kGradEnabled, 5);
  return record;
}

RingHeader* MapHeader(const RingWriter& writer, uint64_t capacity) {
  return static_cast<RingHeader*>(mmap(nullptr, kRingHeaderBytes + capacity,
                                       PROT_READ | PROT_WRITE, MAP_SHARED,
                                       writer.fd(), 0));
}

void GiveAllBack(RingHeader* header) {
  header->tail.store(header->head.load(std::memory_order_acquire),
                     std::memory_order_release);
}

// Space is given back by the same thread now and then: the writer's own cost.
void BM_Append(benchmark::State& state) {
  auto ring = RingWriter::Create(1, kMainRingBytes);
  RingHeader* header = MapHeader(*ring, kMainRingBytes);
  const Record record = MakeRecord();
  uint64_t written = 0;
  for (auto _ : state) {
    ring->Append(record.bytes, record.size);
    if (++written % (kMainRingBytes / kRecordBytes / 2) == 0) {
      GiveAllBack(header);
    }
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["dropped"] = static_cast<double>(ring->dropped_records());
}
BENCHMARK(BM_Append);

void BM_AppendToAFullRing(benchmark::State& state) {
  auto ring = RingWriter::Create(1, kThreadRingBytes);
  const Record record = MakeRecord();
  while (ring->Append(record.bytes, record.size)) {
  }
  for (auto _ : state) ring->Append(record.bytes, record.size);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_AppendToAFullRing);

void BM_AppendWithReader(benchmark::State& state) {
  auto ring = RingWriter::Create(1, kMainRingBytes);
  RingHeader* header = MapHeader(*ring, kMainRingBytes);
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop.load(std::memory_order_relaxed)) GiveAllBack(header);
  });
  const Record record = MakeRecord();
  for (auto _ : state) ring->Append(record.bytes, record.size);
  stop = true;
  reader.join();
  state.SetItemsProcessed(state.iterations());
  state.counters["dropped"] = static_cast<double>(ring->dropped_records());
}
BENCHMARK(BM_AppendWithReader)->UseRealTime();

}  // namespace
}  // namespace traincheck::agent
