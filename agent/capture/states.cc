#include "agent/capture/states.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "agent/capture/capture_mode.h"
#include "agent/capture/device_states.h"
#include "agent/capture/model_definitions.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/unwritten_contents.h"
#include "agent/capture/zoom.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Reading below this size takes less time than handing the GIL over.
constexpr uint64_t kReleaseGilBytes = 1u << 20;

// One record has at most this many rows, 16 KiB; a table of 50,000 rows takes
// 25 records.
constexpr size_t kRowsPerRecord = 2048;

struct StateWithDigests {
  StateRecord state;
  uint64_t words[3];  // two digests, and the number of those that come later
};

struct RowsWithDigests {
  RowDigestsRecord rows;
  uint64_t digests[kRowsPerRecord];
};

// What was read of one tensor. An optional is empty if the content was not
// asked for or could not be read.
struct VariableState {
  uint8_t content = 0;    // StateContent
  uint8_t deferred = 0;   // likewise: StateRecord::deferred
  uint8_t unwritten = 0;  // likewise: the record's flags
  uint64_t number = 0;    // of the first deferred digest
  std::optional<ContentSummary> data;
  std::optional<ContentSummary> grad;
};

// None: not in the memory of a device, or devices are not read.
std::optional<DeviceView> OnDevice(PyObject* tensor) {
  const DeviceStates& devices = DeviceStates::Get();
  if (!devices.wanted()) return std::nullopt;
  return DeviceView::Of(LocalTensor(tensor).get(),
                        devices.cpu_is_device_for_testing());
}

// Large tensors are read without the GIL, so that the program's other threads
// go on.
ContentDigest DigestOf(const TensorView& view) {
  if (view.bytes() < kReleaseGilBytes) return view.Digest();
  PyThreadState* thread = PyEval_SaveThread();
  const ContentDigest digest = view.Digest();
  PyEval_RestoreThread(thread);
  return digest;
}

// Reads the data and the gradient of a tensor, or has a device read them.
class VariableReader {
 public:
  VariableReader(uint32_t variable, StatePoint point, int what,
                 DeviceStates::Call* devices)
      : variable_(variable),
        point_(point),
        what_(what),
        zoomed_(IsZoomedInOn(variable)),
        devices_(*devices) {}

  // Data first, then the gradient: deferred numbers are consecutive in this
  // order.
  VariableState Read(PyObject* tensor) {
    if (!TorchApi::IsTensor(tensor)) {
      read_.content = kUnreadable;
      return std::move(read_);
    }
    const bool is_leaf = IsLeaf(tensor);
    if (is_leaf) read_.content |= kIsLeaf;
    if (RequiresGrad(tensor)) read_.content |= kRequiresGrad;
    if ((what_ & kStateData) != 0) {
      read_.data =
          Summary(tensor, kHasData, kStateDataStatistics, kStateDataRows);
      Note(tensor, read_.data, kHasData, kDataIsZero);
    }
    if ((what_ & kStateGrad) != 0) ReadGrad(tensor, is_leaf);
    // A reader that does not know of deferred digests takes these for contents
    // that could not be read.
    if (read_.deferred != 0) {
      read_.deferred |= read_.content & kUnreadable;
      read_.content |= kUnreadable;
    }
    return std::move(read_);
  }

 private:
  // The tests' device holds this process's memory; reading it here would leave
  // nothing to the device.
  std::optional<ContentSummary> Summary(PyObject* tensor, StateContent of,
                                        int statistics, int rows) {
    if (DeviceStates::Get().cpu_is_device_for_testing()) return std::nullopt;
    // Statistics and rows are read whatever was asked for.
    if (zoomed_) return SummaryOf(tensor, {true, true}, kMaxZoomedRows);
    if ((what_ & (statistics | rows)) == 0) return DigestAlone(tensor, of);
    return SummaryOf(tensor, {(what_ & statistics) != 0, (what_ & rows) != 0});
  }

  // Digests alone can be left out if nobody has written the content since it
  // was digested last.
  std::optional<ContentSummary> DigestAlone(PyObject* tensor, StateContent of) {
    const Ref local = LocalTensor(tensor);
    const std::optional<TensorView> view = TensorView::Of(local.get());
    if (!view) return std::nullopt;
    // Before it is read: what somebody writes while the GIL is released shows
    // in the next look.
    const auto look = UnwrittenContents::LookAt(local.get(), *view);
    if (!look) return ContentSummary{DigestOf(*view), std::nullopt, {}};
    if (UnwrittenContents::PrecedesWrites(point_)) {
      const auto known =
          UnwrittenContents::Get().Unwritten(variable_, of, *look);
      if (known) {
        read_.unwritten |= of;
        return ContentSummary{*known, std::nullopt, {}};
      }
    }
    const ContentDigest digest = DigestOf(*view);
    UnwrittenContents::Get().Digested(variable_, of, point_, *look, digest);
    return ContentSummary{digest, std::nullopt, {}};
  }

  void ReadGrad(PyObject* tensor, bool is_leaf) {
    const Ref grad = GradOf(tensor, is_leaf);
    // That there is none is a finding of its own and no failure to read.
    if (grad.get() == Py_None) {
      read_.content |= kGradIsNone;
    } else if (!grad) {
      read_.content |= kUnreadable;
    } else {
      read_.grad =
          Summary(grad.get(), kHasGrad, kStateGradStatistics, kStateGradRows);
      Note(grad.get(), read_.grad, kHasGrad, kGradIsZero);
    }
  }

  // A content is read here, or on its device, or reported as unreadable: a rule
  // must never take "not read" for "unchanged".
  void Note(PyObject* tensor, const std::optional<ContentSummary>& summary,
            uint8_t has, uint8_t is_zero) {
    if (summary) {
      read_.content |= summary->content.all_zero ? has | is_zero : has;
    } else if (Defer(tensor)) {
      read_.deferred |= has;
    } else {
      read_.content |= kUnreadable;
    }
  }

  // Asks the device for the digest; false: it is not on a device, or the device
  // cannot do it.
  bool Defer(PyObject* tensor) {
    const std::optional<DeviceView> view = OnDevice(tensor);
    const uint64_t number = view ? devices_.Add(*view) : 0;
    if (number == 0) return false;
    if (read_.deferred == 0) read_.number = number;
    // The gradient's comes right after that of the data, or nobody finds it.
    return read_.deferred == 0 || number == read_.number + 1;
  }

  const uint32_t variable_;
  const StatePoint point_;
  const int what_;
  const bool zoomed_;
  DeviceStates::Call& devices_;
  VariableState read_;
};

// Writes the records of one variable: the State, then statistics and rows of
// the same content.
class StateWriter {
 public:
  StateWriter(ThreadRecorder* thread, StatePoint point, uint32_t variable)
      : thread_(thread),
        point_(static_cast<uint8_t>(point)),
        variable_(variable) {}

  void Write(const VariableState& read) {
    StateWithDigests record = {};
    record.state.variable = variable_;
    record.state.point = point_;
    record.state.content = read.content;
    record.state.deferred = read.deferred;
    int words = 0;
    // In the order of the format: data, gradient, the number of what comes
    // later.
    for (const auto* summary : {&read.data, &read.grad}) {
      if (*summary) record.words[words++] = (*summary)->content.digest;
    }
    if (read.deferred != 0) record.words[words++] = read.number;
    thread_->Append(&record.state.header,
                    sizeof(StateRecord) + words * sizeof(uint64_t),
                    RecordType::kState, read.unwritten);
    WriteMore(kHasData, read.data);
    WriteMore(kHasGrad, read.grad);
  }

 private:
  void WriteMore(uint8_t of, const std::optional<ContentSummary>& summary) {
    if (!summary) return;
    if (summary->statistics) WriteStatistics(of, *summary->statistics);
    if (!summary->rows.empty()) WriteRows(of, summary->rows);
  }

  void WriteStatistics(uint8_t of, const TensorStatistics& statistics) {
    StatisticsRecord record = {};
    record.variable = variable_;
    record.point = point_;
    record.of = of;
    record.norm = statistics.norm;
    record.absmax = statistics.absmax;
    record.nan_count = statistics.nan_count;
    record.inf_count = statistics.inf_count;
    thread_->Append(record, RecordType::kStatistics);
  }

  // All parts carry the whole number of rows, so that a reader knows when it
  // has them all.
  void WriteRows(uint8_t of, const std::vector<uint64_t>& digests) {
    RowsWithDigests record = {};
    record.rows.variable = variable_;
    record.rows.point = point_;
    record.rows.of = of;
    record.rows.rows = digests.size();
    for (size_t first = 0; first < digests.size(); first += kRowsPerRecord) {
      const size_t count = std::min(kRowsPerRecord, digests.size() - first);
      record.rows.first_row = first;
      std::memcpy(record.digests, &digests[first], count * sizeof(uint64_t));
      thread_->Append(&record.rows.header,
                      sizeof(RowDigestsRecord) + count * sizeof(uint64_t),
                      RecordType::kRowDigests, 0);
    }
  }

  ThreadRecorder* thread_;
  uint8_t point_;
  uint32_t variable_;
};

// The size decides about turns, and is found without reading the content.
uint64_t BytesOf(PyObject* tensor) {
  if (const auto view = TensorView::Of(LocalTensor(tensor).get())) {
    return view->bytes();
  }
  const std::optional<DeviceView> view = OnDevice(tensor);
  return view ? view->content.bytes() : 0;
}

// Where large tensors take turns: is there something to digest and is it
// another's turn?
bool HasToWait(int what, uint32_t variable, PyObject* tensor) {
  if (g_rotation.HasTurn(VariableHash(variable))) return false;
  if (!TorchApi::IsTensor(tensor)) return false;
  // Only the gradient is asked for, and there is none: nothing has to wait.
  const Ref grad = (what & kStateData) == 0 ? GradOf(tensor) : Ref();
  if (grad.get() == Py_None) return false;
  return BytesOf(tensor) >= kRotatedBytes;
}

}  // namespace

// For contents that are read whenever they are asked for: entries of
// checkpoints, digests for hooks, statistics and rows.
std::optional<ContentSummary> SummaryOf(PyObject* tensor, ContentWanted wanted,
                                        uint64_t max_rows) {
  const Ref local = LocalTensor(tensor);
  const std::optional<TensorView> view = TensorView::Of(local.get());
  if (!view) return std::nullopt;
  if (view->rows() > max_rows) wanted.rows = false;
  if (!wanted.statistics && !wanted.rows) {
    return ContentSummary{DigestOf(*view), std::nullopt, {}};
  }
  if (view->bytes() < kReleaseGilBytes) return view->Summarize(wanted);
  PyThreadState* thread = PyEval_SaveThread();
  ContentSummary summary = view->Summarize(wanted);
  PyEval_RestoreThread(thread);
  return summary;
}

bool RecordStates(StatePoint point, int what,
                  const std::vector<uint32_t>& variables, PyObject* tensors) {
  if (CurrentThread() == nullptr) return true;
  const TorchApi::WithoutOverrides direct;
  DeviceStates::Get().Poll();
  DeviceStates::Call devices(variables.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    const Ref tensor(PySequence_GetItem(tensors, static_cast<Py_ssize_t>(i)));
    if (!tensor) return false;
    if (variables[i] == 0) continue;
    const bool waits = HasToWait(what, variables[i], tensor.get());
    VariableReader reader(variables[i], point, waits ? 0 : what, &devices);
    VariableState read = reader.Read(tensor.get());
    // Recorded all the same, so that the variable's windows at this step are
    // unknown and not passed.
    if (waits) read.content |= kUnreadable;
    // Asked for again: while the GIL was released anything may have happened.
    ThreadRecorder* thread = CurrentThread();
    if (thread == nullptr) return true;
    StateWriter(thread, point, variables[i]).Write(read);
  }
  // Behind the records that name the numbers: entries for what is refused are
  // written at once.
  devices.Begin();
  return true;
}

}  // namespace traincheck::agent
