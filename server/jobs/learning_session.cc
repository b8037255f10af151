#include "server/jobs/learning_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "invariants/sets/set_json.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

// Share of the bar that reading fills; the rest is learning.
constexpr double kReadingShare = 0.5;
// Read from the store at once. Nothing is sent while the store is read: a
// process that takes its time must not keep the store from its other work.
constexpr size_t kPageBytes = 4 << 20;

struct Page {
  std::vector<std::string> batches;  // values
  uint64_t next_batch = 0;
};

absl::StatusOr<Page> ReadPage(const Store& store, const BatchId& from,
                              uint64_t to) {
  Page page;
  // Quarantined numbers at the end have no entry: the page ends behind them.
  page.next_batch = to;
  size_t bytes = 0;
  absl::Status scanned = store.Scan(
      Table::kBatches, BatchKey(from), BatchKey({from.run, from.process, to}),
      [&](std::string_view key, std::string_view value) {
        page.batches.emplace_back(value);
        bytes += value.size();
        // Behind the batch and not before it: a page has at least one, however
        // large that is.
        if (bytes < kPageBytes) return true;
        BatchId last;
        ParseBatchKey(key, &last);
        page.next_batch = last.batch + 1;
        return false;
      });
  if (!scanned.ok()) return scanned;
  return page;
}

worker::End ToMessage(ProcessEnd end) {
  switch (end) {
    case ProcessEnd::kClean:
      return worker::END_CLEAN;
    case ProcessEnd::kDied:
    case ProcessEnd::kRaised:
    case ProcessEnd::kInterrupted:
      return worker::END_DIED;  // all the same to who learns
    case ProcessEnd::kLost:
      break;
  }
  return worker::END_LOST;
}

// The version that the first rank has reported; "" if there is no rank.
std::string TorchOf(const RunView& run) {
  for (const RunView::Process& process : run.processes) {
    if (process.is_main) return process.torch_version;
  }
  return "";
}

// "; pid 7 on host a died at step 3: ..." for every process that did not end
// in order: its rules come from the part that there is.
std::string Shortcomings(const RunView& run) {
  std::string text;
  for (const RunView::Process& process : run.processes) {
    if (process.end.has_value() && *process.end != ProcessEnd::kClean) {
      absl::StrAppend(&text, "; ", process.name, " ", process.reason);
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<LearningSession::Learned> LearningSession::Learn(
    const std::vector<RunView>& runs, const v1::InferRequest& request) {
  absl::Status fed = Feed(runs, request);
  // The process may have said why before it went.
  if (absl::IsUnavailable(fed)) return WhyGone();
  if (!fed.ok()) return fed;
  progress_("learning", kReadingShare);
  return TakeAnswer();
}

// The order of messages is that of the engine's calls: Begin, then each run
// with its processes one after the other, then Finish.
absl::Status LearningSession::Feed(const std::vector<RunView>& runs,
                                   const v1::InferRequest& request) {
  for (const RunView& run : runs) {
    for (const RunView::Process& process : run.processes) {
      if (!process.refused) batches_ += process.next_batch;
    }
  }
  worker::ToWorker begin;
  begin.mutable_begin()->set_request(request.SerializeAsString());
  if (absl::Status s = process_.channel().Send(begin); !s.ok()) return s;
  for (const RunView& run : runs) {
    if (absl::Status s = FeedRun(run); !s.ok()) return s;
  }
  worker::ToWorker finish;
  finish.mutable_finish();
  return process_.channel().Send(finish);
}

absl::Status LearningSession::FeedRun(const RunView& run) {
  ReportReading(run);
  worker::ToWorker begin;
  begin.mutable_begin_run()->set_run(run.id);
  begin.mutable_begin_run()->set_experiment(run.experiment);
  begin.mutable_begin_run()->set_torch_version(TorchOf(run));
  if (absl::Status s = process_.channel().Send(begin); !s.ok()) return s;
  for (const RunView::Process& process : run.processes) {
    if (process.refused) continue;
    if (absl::Status s = FeedProcess(run, process); !s.ok()) return s;
  }
  worker::ToWorker end;
  end.mutable_end_run();
  return process_.channel().Send(end);
}

absl::Status LearningSession::FeedProcess(const RunView& run,
                                          const RunView::Process& process) {
  const uint64_t fed_before = fed_;
  for (uint64_t next = 0; next < process.next_batch;) {
    absl::StatusOr<Page> page = ReadPage(
        store_, {run.number, process.number, next}, process.next_batch);
    // The store's Unavailable is not the channel's.
    if (!page.ok()) {
      return absl::InternalError(absl::StrCat(
          "reading run ", run.id, ": ", std::string(page.status().message())));
    }
    for (std::string& value : page->batches) {
      worker::ToWorker message;
      message.mutable_batch()->set_process(process.number);
      message.mutable_batch()->set_attempt(process.attempt);
      message.mutable_batch()->set_value(std::move(value));
      if (absl::Status s = process_.channel().Send(message); !s.ok()) return s;
    }
    // Beside what the process says of itself: one that is killed says nothing.
    process_.MeasurePeak();
    next = page->next_batch;
    fed_ = fed_before + next;
    ReportReading(run);
  }
  worker::ToWorker end;
  end.mutable_end_process()->set_process(process.number);
  end.mutable_end_process()->set_end(
      // An end that is not known is never taken for a clean one, by which
      // windows at the end would count as complete.
      ToMessage(process.end.value_or(ProcessEnd::kLost)));
  return process_.channel().Send(end);
}

void LearningSession::ReportReading(const RunView& run) {
  progress_(absl::StrCat("reading ", run.id, Shortcomings(run)),
            kReadingShare * fed_ / std::max<uint64_t>(1, batches_));
}

absl::StatusOr<LearningSession::Learned> LearningSession::TakeAnswer() {
  while (true) {
    worker::FromWorker message;
    absl::Status received = process_.channel().Receive(&message);
    // It went without a last word, so its exit status is asked for the reason.
    if (absl::IsUnavailable(received)) {
      return absl::AbortedError(process_.AwaitEnd());
    }
    if (!received.ok()) return received;
    process_.NotePeak(message.peak_bytes());
    if (message.has_failed()) return absl::AbortedError(message.failed());
    if (message.has_result()) {
      // The process has read strangers' records, so its answer is trusted no
      // more than an import.
      absl::StatusOr<InvariantSet> set =
          SetFromJsonUntrusted(message.result().set_json());
      if (!set.ok()) return set.status();
      return Learned{.set = *std::move(set),
                     .dropped = {message.result().dropped().begin(),
                                 message.result().dropped().end()}};
    }
    progress_("learning",
              kReadingShare + (1 - kReadingShare) * message.learned());
  }
}

absl::Status LearningSession::WhyGone() {
  // What it said before it went still lies in the socket.
  const absl::StatusOr<Learned> answer = TakeAnswer();
  if (!answer.ok()) return answer.status();
  return absl::InternalError("its process answered before it was asked");
}

}  // namespace traincheck::server
