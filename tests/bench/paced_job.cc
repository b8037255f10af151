#include "tests/bench/paced_job.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "agent/relay/limits.h"
#include "proto/record_reader.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPiecesOfAStep = 5;
constexpr auto kStep = std::chrono::seconds(1);
constexpr size_t kAll = SIZE_MAX;  // steps

// A batch of one ring as so many with about as many records each, at least one.
std::vector<StoredBatch> InPieces(const StoredBatch& whole) {
  if (whole.slices.size() != 1) return {whole};
  const RingSlice& slice = whole.slices[0];
  const uint64_t most = (slice.records + kPiecesOfAStep - 1) / kPiecesOfAStep;
  std::vector<StoredBatch> parts;
  uint64_t position = slice.from;
  RecordReader records(whole.plain);
  while (records.Next()) {
    if (parts.empty() || parts.back().slices[0].records == most) {
      parts.emplace_back().slices = {{slice.ring, position, position, 0}};
    }
    parts.back().plain += records.bytes();
    position += records.bytes().size();
    parts.back().slices[0].to = position;
    ++parts.back().slices[0].records;
  }
  return parts;
}

// Behind what has gathered so far.
void Append(const StoredBatch& piece, StoredBatch* gathered) {
  gathered->plain += piece.plain;
  for (const RingSlice& slice : piece.slices) {
    RingSlice* const last =
        gathered->slices.empty() ? nullptr : &gathered->slices.back();
    if (last == nullptr || last->ring != slice.ring) {
      gathered->slices.push_back(slice);
      continue;
    }
    last->to = slice.to;
    last->records += slice.records;
  }
}

}  // namespace

// One rank and its relay.
class PacedJob::Rank {
 public:
  // `moment`: of its pieces within their share of a step, from 0 to 1.
  Rank(const std::shared_ptr<grpc::Channel>& channel, const v1::Hello& hello,
       std::vector<StoredBatch> steps, double moment)
      : stream_(channel, hello), moment_(moment) {
    for (const StoredBatch& step : steps) {
      for (StoredBatch& piece : InPieces(step)) {
        pieces_.push_back(std::move(piece));
      }
      ends_.push_back(pieces_.size());
    }
  }

  // When something is to be done next: the next piece of a step before
  // `steps`, or the end of the time in which records gather. None: all is sent.
  std::optional<Clock::duration> NextAt(size_t steps) const {
    std::optional<Clock::duration> at;
    if (next_ < EndOf(steps)) at = PieceAt(next_);
    if (since_.has_value()) {
      const Clock::duration due = *since_ + Gather();
      at = at.has_value() ? std::min(*at, due) : due;
    }
    return at;
  }

  // `now`: since the job's begin, as NextAt said.
  void Do(Clock::duration now, size_t steps) {
    if (next_ < EndOf(steps) && PieceAt(next_) <= now) {
      if (!since_.has_value()) since_ = now;
      Append(pieces_[next_++], &gathered_);
    }
    if (since_.has_value() && now - *since_ >= Gather()) Send(now);
  }

  void Await() { stream_.Await(batches_); }
  void End() { stream_.End(); }
  uint64_t batches() const { return batches_; }

 private:
  // Of the pieces of so many steps.
  size_t EndOf(size_t steps) const {
    return ends_[std::min(steps, ends_.size()) - 1];
  }

  // The pieces of a step are spread over it, at another moment for each rank.
  Clock::duration PieceAt(size_t piece) const {
    const auto step = static_cast<size_t>(
        std::upper_bound(ends_.begin(), ends_.end(), piece) - ends_.begin());
    const size_t first = step == 0 ? 0 : ends_[step - 1];
    const auto of_step = static_cast<double>(ends_[step] - first);
    const double share =
        (static_cast<double>(piece - first) + moment_) / of_step;
    return std::chrono::duration_cast<Clock::duration>(
        (static_cast<double>(step) + share) *
        std::chrono::duration<double>(kStep));
  }

  Clock::duration Gather() const {
    return std::max(stream_.gather(), agent::kMaxLie);
  }

  void Send(Clock::duration now) {
    for (const RingSlice& slice : gathered_.slices) {
      v1::RingReport& ring = sent_[slice.ring];
      ring.set_ring(slice.ring);
      ring.set_head(slice.to);
      ring.set_committed_records(ring.committed_records() + slice.records);
      ring.set_offered_records(ring.committed_records());
    }
    gathered_.number = batches_++;
    stream_.Send(RequestOf(gathered_));
    gathered_ = {};
    since_.reset();
    // As relays do.
    if (now - reported_at_ <
        std::max<Clock::duration>(agent::kReportPeriod,
                                  agent::kBatchesAReport * Gather())) {
      return;
    }
    reported_at_ = now;
    v1::IngestRequest reports;
    for (const auto& [ring, report] : sent_) {
      *reports.mutable_ring_reports()->add_rings() = report;
    }
    stream_.Send(reports);
  }

  RankStream stream_;
  const double moment_;
  std::vector<StoredBatch> pieces_;
  std::vector<size_t> ends_;  // of steps, in pieces_
  size_t next_ = 0;
  StoredBatch gathered_;
  std::optional<Clock::duration> since_;     // when the first of it came
  std::map<uint32_t, v1::RingReport> sent_;  // by ring
  Clock::duration reported_at_{0};
  uint64_t batches_ = 0;
};

PacedJob::PacedJob(const Channels& channels, const TrainingOptions& options,
                   const v1::Hello& hello) {
  std::mt19937 random(1);
  std::uniform_real_distribution<> moment(0, 1);
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    v1::Hello mine = hello;
    mine.mutable_process()->set_pid(1000 + static_cast<uint32_t>(rank));
    std::vector<StoredBatch> steps = TrainRank(options, rank);
    for (const StoredBatch& step : steps) {
      for (const RingSlice& slice : step.slices) records_ += slice.records;
    }
    ranks_.push_back(std::make_unique<Rank>(
        channels[static_cast<size_t>(rank) % channels.size()], mine,
        std::move(steps), moment(random)));
  }
}

PacedJob::~PacedJob() = default;

uint64_t PacedJob::batches() const {
  uint64_t batches = 0;
  for (const auto& rank : ranks_) batches += rank->batches();
  return batches;
}

void PacedJob::SendPieces(Clock::time_point begin, size_t steps) {
  struct Due {
    Clock::duration at;
    size_t rank;
    bool operator>(const Due& other) const { return at > other.at; }
  };
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due;
  const auto add = [&](size_t rank) {
    if (const auto at = ranks_[rank]->NextAt(steps)) due.push({*at, rank});
  };
  for (size_t rank = 0; rank < ranks_.size(); ++rank) add(rank);
  while (!due.empty()) {
    const Due next = due.top();
    due.pop();
    std::this_thread::sleep_until(begin + next.at);
    ranks_[next.rank]->Do(next.at, steps);
    add(next.rank);
  }
}

void PacedJob::Stream() {
  const auto begin = Clock::now();
  // The first answers say how long records are to gather.
  SendPieces(begin, 1);
  for (const auto& rank : ranks_) rank->Await();
  SendPieces(begin, kAll);
  for (const auto& rank : ranks_) rank->Await();
}

void PacedJob::End() {
  for (const auto& rank : ranks_) rank->End();
}

}  // namespace traincheck::server
