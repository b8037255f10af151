#include "agent/capture/states.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "agent/capture/capture_mode.h"
#include "agent/capture/model_definitions.h"
#include "agent/capture/process_recorder.h"
#include "agent/capture/zoom.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Reading below this size takes less time than handing the GIL over.
constexpr uint64_t kReleaseGilBytes = 1u << 20;

// In one record. A table of 50,000 rows takes 25 of them.
constexpr size_t kRowsPerRecord = 2048;

struct StateWithDigests {
  StateRecord state;
  uint64_t digests[2];
};

struct RowsWithDigests {
  RowDigestsRecord rows;
  uint64_t digests[kRowsPerRecord];
};

// What was read of one tensor. A content that was not asked for or could not
// be read is none.
struct VariableState {
  uint8_t content = 0;  // StateContent
  std::optional<ContentSummary> data;
  std::optional<ContentSummary> grad;
};

std::optional<ContentSummary> ReadContent(int what, int statistics, int rows,
                                          bool zoomed, PyObject* tensor) {
  if (zoomed) return SummaryOf(tensor, {true, true}, kMaxZoomedRows);
  return SummaryOf(tensor, {(what & statistics) != 0, (what & rows) != 0});
}

VariableState Read(int what, bool zoomed, PyObject* tensor) {
  VariableState read;
  if (!TorchApi::IsTensor(tensor)) {
    read.content = kUnreadable;
    return read;
  }
  if (IsLeaf(tensor)) read.content |= kIsLeaf;
  if (RequiresGrad(tensor)) read.content |= kRequiresGrad;
  if ((what & kStateData) != 0) {
    read.data =
        ReadContent(what, kStateDataStatistics, kStateDataRows, zoomed, tensor);
    read.content |= !read.data                    ? kUnreadable
                    : read.data->content.all_zero ? kHasData | kDataIsZero
                                                  : kHasData;
  }
  if ((what & kStateGrad) != 0) {
    const Ref grad = GradOf(tensor);
    if (grad.get() == Py_None) {
      read.content |= kGradIsNone;
      return read;
    }
    if (grad) {
      read.grad = ReadContent(what, kStateGradStatistics, kStateGradRows,
                              zoomed, grad.get());
    }
    read.content |= !read.grad                    ? kUnreadable
                    : read.grad->content.all_zero ? kHasGrad | kGradIsZero
                                                  : kHasGrad;
  }
  return read;
}

// Writes the records of one variable.
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
    int digests = 0;
    for (const auto* summary : {&read.data, &read.grad}) {
      if (*summary) record.digests[digests++] = (*summary)->content.digest;
    }
    thread_->Append(&record.state.header,
                    sizeof(StateRecord) + digests * sizeof(uint64_t),
                    RecordType::kState, 0);
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

// Where large tensors take turns: is there something to digest and is it
// another's turn?
bool HasToWait(int what, uint32_t variable, PyObject* tensor) {
  if (g_rotation.HasTurn(VariableHash(variable))) return false;
  if (!TorchApi::IsTensor(tensor)) return false;
  const Ref grad = (what & kStateData) == 0 ? GradOf(tensor) : Ref();
  if (grad.get() == Py_None) return false;
  const std::optional<TensorView> view =
      TensorView::Of(LocalTensor(tensor).get());
  return view && view->bytes() >= kRotatedBytes;
}

}  // namespace

std::optional<ContentSummary> SummaryOf(PyObject* tensor, ContentWanted wanted,
                                        uint64_t max_rows) {
  const Ref local = LocalTensor(tensor);
  const std::optional<TensorView> view = TensorView::Of(local.get());
  if (!view) return std::nullopt;
  if (view->rows() > max_rows) wanted.rows = false;
  const bool plain = !wanted.statistics && !wanted.rows;
  const auto read = [&] {
    return plain ? ContentSummary{view->Digest(), std::nullopt, {}}
                 : view->Summarize(wanted);
  };
  if (view->bytes() < kReleaseGilBytes) return read();
  PyThreadState* thread = PyEval_SaveThread();
  ContentSummary summary = read();
  PyEval_RestoreThread(thread);
  return summary;
}

bool RecordStates(StatePoint point, int what,
                  const std::vector<uint32_t>& variables, PyObject* tensors) {
  if (CurrentThread() == nullptr) return true;
  const TorchApi::WithoutOverrides direct;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Ref tensor(PySequence_GetItem(tensors, static_cast<Py_ssize_t>(i)));
    if (!tensor) return false;
    if (variables[i] == 0) continue;
    const bool waits = HasToWait(what, variables[i], tensor.get());
    VariableState read =
        Read(waits ? 0 : what, IsZoomedInOn(variables[i]), tensor.get());
    if (waits) read.content |= kUnreadable;
    // Asked for again: while the GIL was released anything may have happened.
    ThreadRecorder* thread = CurrentThread();
    if (thread == nullptr) return true;
    StateWriter(thread, point, variables[i]).Write(read);
  }
  return true;
}

}  // namespace traincheck::agent
