#include "agent/capture/device_states.h"

#include <time.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/capture/agent_settings.h"
#include "agent/capture/clock.h"
#include "agent/capture/log.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/tick_clock.h"
#include "agent/cpython/loaded_function.h"
#include "agent/device/digest_kernel_text.h"
#include "agent/torch/cuda_stream.h"

namespace traincheck::agent {
namespace {

constexpr long kPollNs = 200'000;
// The driver is asked this often whether results can still come.
constexpr uint64_t kProbeNs = 50'000'000;
// One record has at most this many digests, 16 KiB: below the limit of a
// record.
constexpr size_t kDigestsPerRecord = 1024;

struct DigestsRecord {
  DeferredDigestsRecord record;
  DeferredDigest digests[kDigestsPerRecord];
};

// A driver that tests have loaded says that this process's memory is a device.
bool DriverIsForTesting() {
  using Question = int (*)();
  const auto is_device = reinterpret_cast<Question>(
      LoadedFunction("libcuda.so.1", "traincheck_testing_cpu_is_device"));
  return is_device != nullptr && is_device() != 0;
}

// DeferredFlag.
uint64_t FlagsOf(const ContentDigest& found, const DigestWords& words,
                 Dtype dtype) {
  uint64_t flags = 0;
  if (found.all_zero) flags |= kDeferredIsZero;
  if (const std::optional<bool> is_finite = IsFinite(words, dtype)) {
    flags |= *is_finite ? kDeferredIsFinite : kDeferredNotFinite;
  }
  return flags;
}

// Waits without the GIL, so that other threads of the program go on.
void Sleep() {
  PyThreadState* thread = PyEval_SaveThread();
  const timespec pause = {0, kPollNs};
  nanosleep(&pause, nullptr);
  PyEval_RestoreThread(thread);
}

}  // namespace

DeviceStates::DeviceStates(bool forked)
    : generation_(g_generation),
      wanted_(SettingOf("TRAINCHECK_GPU") != "0"),
      for_testing_(DriverIsForTesting()),
      said_(forked),
      digester_(kDigestKernelText[0].text, LoadedFunction) {
  if (forked) digester_.SwitchOff("a forked child cannot use a device");
}

// One for each generation: a child of fork must not touch the launches of its
// parent. The parent's object is left as it is.
DeviceStates& DeviceStates::Get() {
  static constinit DeviceStates* states = nullptr;
  if (states == nullptr || states->generation_ != g_generation) {
    // The former object is the parent's. If it has handed out numbers, the
    // parent has used the driver, and a child cannot use the same devices.
    const bool forked = states != nullptr && states->next_number_ != 1;
    states = new DeviceStates(forked);
  }
  return *states;
}

// A batch is one launch: the tensors of one state point on one device.
DeviceStates::BatchPointer DeviceStates::Take(int device, size_t most) {
  BatchPointer batch;
  // Batches are used again, since their tables keep the memory that they have
  // grown to.
  if (free_.empty()) {
    batch = std::make_unique<Batch>();
  } else {
    batch = std::move(free_.back());
    free_.pop_back();
  }
  batch->device = device;
  batch->is_copied = false;
  // A range of its own: the numbers of a device rise by one, though the tensors
  // of several come mixed.
  batch->first = next_number_;
  next_number_ += most;
  batch->tables.Clear();
  batch->contents.clear();
  return batch;
}

// Called before the State record is written, which names the number.
uint64_t DeviceStates::Call::Add(const DeviceView& view) {
  const StridedContent& content = view.content;
  if (!DigestTables::Takes(content)) return 0;
  auto found = std::find_if(
      batches_.begin(), batches_.end(),
      [&](const BatchPointer& batch) { return batch->device == view.device; });
  if (found == batches_.end()) {
    batches_.push_back(DeviceStates::Get().Take(view.device, most_));
    found = batches_.end() - 1;
  }
  Batch& batch = **found;
  // What is beyond the room of one launch is unreadable and not split.
  if (batch.tables.chunks() + DigestTables::ChunksOf(content) >
      DigestTables::kMaxChunks) {
    return 0;
  }
  batch.tables.Add(content);
  batch.contents.push_back({content.bytes(), content.dtype()});
  return batch.first + batch.contents.size() - 1;
}

// One launch for each device that has tensors at this point, behind their State
// records.
void DeviceStates::Call::Begin() {
  for (BatchPointer& batch : batches_) {
    DeviceStates::Get().Begin(std::move(batch));
  }
  batches_.clear();
}

// Without Begin the call was broken off.
DeviceStates::Call::~Call() {
  DeviceStates& states = DeviceStates::Get();
  // Their numbers may be in records already, and each gets an entry.
  for (BatchPointer& batch : batches_) states.End(std::move(batch), nullptr);
}

// Copies are refused rather than split or delayed: a caller that gets 0 looks
// at nothing.
uint64_t DeviceStates::Copy(const std::vector<DeviceView>& views) {
  uint64_t bytes = 0;
  // Copies of one launch come together, so the tensors must lie on one device.
  for (const DeviceView& view : views) {
    if (view.device != views.front().device) return 0;
    if (!DigestTables::Takes(view.content)) return 0;
    bytes += (view.content.bytes() + 7) / 8 * 8;
  }
  if (views.empty() || bytes > DigestTables::kMaxCopied) return 0;
  BatchPointer batch = Take(views.front().device, views.size());
  batch->is_copied = true;
  for (const DeviceView& view : views) {
    batch->tables.AddCopied(view.content);
    batch->contents.push_back({view.content.bytes(), view.content.dtype()});
  }
  const uint64_t number = batch->first;
  return Begin(std::move(batch)) ? number : 0;
}

// The kernel runs on the program's stream, behind what the program has launched
// there.
bool DeviceStates::Begin(BatchPointer batch) {
  const auto stream = for_testing_ ? std::optional<void*>(nullptr)
                                   : CurrentCudaStream(batch->device);
  // On another stream the kernel could read what the program has not written
  // yet.
  if (!stream) digester_.SwitchOff("this torch does not name its stream");
  const DeviceDigester::Begun begun =
      digester_.Begin(batch->device, stream.value_or(nullptr), batch->tables);
  if (begun.refused == DeviceDigester::Refused::kNo) {
    batch->launch = begun.launch;
    batch->period = period_;
    ++periods_[period_].pending;
    // A program that never asks for times must not keep a period for each of
    // its steps.
    if (periods_.size() > kMaxPeriods) periods_.erase(periods_.begin());
    pending_.push_back(std::move(batch));
    return true;
  }
  // A caller that asked for copies gets the refusal as the return value;
  // digests whose numbers are in records get entries that say "unreadable".
  if (!batch->is_copied) Write(*batch, nullptr);
  free_.push_back(std::move(batch));
  if (begun.refused == DeviceDigester::Refused::kOff) SwitchOff();
  return false;
}

// Called at hooks and state points. Nothing is waited for.
void DeviceStates::PollPending() {
  digester_.Poll([this](const DeviceDigester::Result& result) {
    const auto found = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const BatchPointer& batch) {
                                      return batch->launch == result.launch;
                                    });
    // Given up meanwhile: its numbers have their entries already.
    if (found == pending_.end()) return;
    BatchPointer batch = std::move(*found);
    pending_.erase(found);
    CountTime(*batch, result.device_ns);
    End(std::move(batch), &result);
  });
}

// A launch that was given up adds no time, but no longer keeps its period open.
void DeviceStates::CountTime(const Batch& batch, uint64_t ns) {
  const auto found = periods_.find(batch.period);
  if (found == periods_.end()) return;  // forgotten
  --found->second.pending;
  found->second.ns += ns;
}

// The time of all periods up to this one. Overhead is decided by it, so a sum
// that lacks launches must not be returned.
std::optional<uint64_t> DeviceStates::TakeTicks(uint64_t period) {
  uint64_t ns = 0;
  const auto end = periods_.upper_bound(period);
  for (auto one = periods_.begin(); one != end; ++one) {
    // A launch that has not ended leaves the sum open: the same period is asked
    // for again.
    if (one->second.pending != 0) return std::nullopt;
    ns += one->second.ns;
  }
  periods_.erase(periods_.begin(), end);
  // The next chunk of records may be minutes away.
  CalibrateTicks();
  return TicksOf(ns);
}

// Each batch ends here once, so that each number gets exactly one entry.
void DeviceStates::End(BatchPointer batch,
                       const DeviceDigester::Result* result) {
  if (batch->is_copied) {
    KeepCopies(*batch, result == nullptr ? nullptr : result->copies);
  } else {
    Write(*batch, result == nullptr ? nullptr : result->words);
  }
  free_.push_back(std::move(batch));
}

// The words lie in the slot's memory, which is free for the next launch after
// this call.
void DeviceStates::KeepCopies(const Batch& batch, const DeviceWord* words) {
  Copies copies = {batch.first, words != nullptr, {}};
  for (const Content& content : batch.contents) {
    if (words == nullptr) break;
    copies.contents.emplace_back(reinterpret_cast<const char*>(words),
                                 content.bytes);
    // Each content begins on a word (DigestTables::AddCopied).
    words += (content.bytes + 7) / 8;
  }
  copies_.push_back(std::move(copies));
}

// DeferredDigests records: a run of numbers from `first` on. `words` is null if
// the results never come.
void DeviceStates::Write(const Batch& batch, const DigestWords* words) {
  ThreadRecorder* thread = CurrentThread();
  if (thread == nullptr) return;
  DigestsRecord record = {};
  const size_t all = batch.contents.size();
  for (size_t first = 0; first < all; first += kDigestsPerRecord) {
    const size_t count = std::min(kDigestsPerRecord, all - first);
    record.record.first = batch.first + first;
    for (size_t i = 0; i < count; ++i) {
      DeferredDigest& entry = record.digests[i];
      // Unreadable until there is a result: nothing is guessed.
      entry = {0, kDeferredUnreadable};
      if (words == nullptr) continue;
      const Content& content = batch.contents[first + i];
      const ContentDigest found =
          FinishWords(words[first + i], content.bytes, content.dtype);
      entry = {found.digest, FlagsOf(found, words[first + i], content.dtype)};
    }
    thread->Append(
        &record.record.header,
        sizeof(DeferredDigestsRecord) + count * sizeof(DeferredDigest),
        RecordType::kDeferredDigests, 0);
  }
}

// The records go into the calling thread's ring, whatever thread began the
// launches.
void DeviceStates::GiveUp() {
  auto pending = std::exchange(pending_, {});
  for (BatchPointer& batch : pending) {
    CountTime(*batch, 0);
    End(std::move(batch), nullptr);
  }
}

void DeviceStates::SwitchOff() {
  GiveUp();
  if (std::exchange(said_, true)) return;
  LogLine("tensors on devices are not read from now on: " +
          digester_.off_reason());
}

// At the process's end. It waits no longer than TRAINCHECK_EXIT_WAIT allows,
// since the exit of the training waits with it.
void DeviceStates::Finish(double seconds) {
  const uint64_t begin_ns = MonotonicNs();
  const uint64_t deadline_ns = begin_ns + static_cast<uint64_t>(seconds * 1e9);
  uint64_t probed_ns = begin_ns;
  while (true) {
    Poll();
    const uint64_t now_ns = MonotonicNs();
    if (pending_.empty() || now_ns >= deadline_ns) break;
    if (now_ns - probed_ns >= kProbeNs) {
      probed_ns = now_ns;
      // A device that has failed never answers: without a probe each exit would
      // wait to its deadline.
      if (!digester_.Probe()) return SwitchOff();
    }
    Sleep();
  }
  GiveUp();
}

}  // namespace traincheck::agent
