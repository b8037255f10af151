#include "tests/bench/simulated_start.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "proto/record_reader.h"
#include "proto/record_writer.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kPidsOfAStart = 10'000;

// 32 hexadecimal digits.
std::string NonceOf(uint32_t start) {
  char text[33];
  std::snprintf(text, sizeof text, "%032x", start + 1);
  return text;
}

std::string PlaceWithStart(const RecordReader& place,
                           const std::string& start) {
  alignas(8) char buffer[kMaxRecordBytes];
  FieldWriter out(buffer, sizeof buffer, place.Get<PlaceRecord>());
  out.Bytes(Field::kStart, start);
  return std::string(buffer,
                     out.Finish(RecordType::kPlace, place.header().flags,
                                place.header().delta_us));
}

// Appends the records of a slice to `plain`; places name the start.
void AppendSlice(const std::string& start, const std::string& slice,
                 std::string* plain) {
  RecordReader records(slice);
  while (records.Next()) {
    if (records.type() == RecordType::kPlace) {
      plain->append(PlaceWithStart(records, start));
    } else {
      plain->append(records.bytes());
    }
  }
}

// What comes behind a place in its ring moves by what the start takes.
void NameStart(const std::string& start, std::vector<StoredBatch>* batches) {
  std::map<uint32_t, uint64_t> moved;  // by ring
  for (StoredBatch& batch : *batches) {
    std::string plain;
    size_t at = 0;
    for (RingSlice& slice : batch.slices) {
      const size_t size = slice.to - slice.from;
      const size_t begin = plain.size();
      AppendSlice(start, batch.plain.substr(at, size), &plain);
      at += size;
      slice.from += moved[slice.ring];
      slice.to = slice.from + (plain.size() - begin);
      moved[slice.ring] += plain.size() - begin - size;
    }
    batch.plain = std::move(plain);
  }
}

// Another process than those of earlier starts.
void NameProcess(const StartPlan& plan, size_t rank, v1::Hello* hello) {
  v1::ProcessIdentity& process = *hello->mutable_process();
  process.set_pid(kPidsOfAStart * (plan.number + 1) +
                  static_cast<uint32_t>(rank));
  process.set_start_ticks(1'000 * (plan.number + 1));
  process.set_image(process.pid());
  hello->set_started_unix_ns(static_cast<uint64_t>(
      std::chrono::nanoseconds(
          std::chrono::system_clock::now().time_since_epoch())
          .count()));
}

}  // namespace

SimulatedStart::SimulatedStart(const Channels& channels, const v1::Hello& hello,
                               const StartPlan& plan)
    : plan_(plan), ranks_(static_cast<size_t>(plan.training.ranks)) {
  const std::string start = NonceOf(plan.number);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    auto batches = TrainRank(plan.training, static_cast<int32_t>(i));
    NameStart(start, &batches);
    for (const StoredBatch& batch : batches) {
      ranks_[i].requests.push_back(RequestOf(batch));
    }
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    v1::Hello mine = hello;
    NameProcess(plan, i, &mine);
    ranks_[i].stream =
        std::make_unique<RankStream>(channels[i % channels.size()], mine);
  }
}

void SimulatedStart::Send(Rank* rank, size_t round) {
  const v1::IngestRequest& request = rank->requests[round];
  for (const v1::Slice& slice : request.batch().slices()) {
    rank->ring_records[slice.ring()] += slice.records();
    records_ += slice.records();
  }
  rank->stream->Send(request);
}

void SimulatedStart::SendAll(size_t round) {
  const auto begin = Clock::now();
  for (Rank& rank : ranks_) Send(&rank, round);
  for (Rank& rank : ranks_) rank.stream->Await(round + 1);
  const auto took = Clock::now() - begin;
  slowest_ = std::max(slowest_, std::chrono::ceil<milliseconds>(took));
}

void SimulatedStart::Train(milliseconds pace,
                           const std::function<void()>& after_step) {
  const auto begin = Clock::now();
  for (int step = 0; step < plan_.training.steps; ++step) {
    std::this_thread::sleep_until(begin + step * pace);
    SendAll(static_cast<size_t>(step));
    after_step();
  }
}

void SimulatedStart::End() {
  // Behind the last step there is the clean exit.
  if (plan_.in_order) SendAll(static_cast<size_t>(plan_.training.steps));
  for (Rank& rank : ranks_) {
    if (!plan_.in_order) {
      rank.stream->Break();
      continue;
    }
    std::vector<v1::RingReport> reports;
    for (const auto& [ring, records] : rank.ring_records) {
      reports.push_back(MakeReport(ring, records, 0));
    }
    rank.stream->End(reports);
  }
}

}  // namespace traincheck::server
