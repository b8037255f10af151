#include "agent/capture/content.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "agent/capture/process_recorder.h"
#include "agent/capture/states.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/digest.h"
#include "agent/torch/tensor_view.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// One entry has at most 64 dimensions of 11 bytes each, and a few fields.
constexpr size_t kMaxEntryBytes = 1024;

// The layout of a State record with data alone.
struct StateWithDigest {
  StateRecord state;
  uint64_t digest;
};

// One entry of a checkpoint while it is read. Reading may release the GIL, so
// the record is put together first and appended afterwards.
class Entry {
 public:
  Entry(StatePoint point, uint32_t key) {
    record_.key = key;
    record_.point = static_cast<uint8_t>(point);
  }

  // What the loaded or saved value is: a tensor by digest, a number by value,
  // anything else by its key alone.
  void Read(PyObject* value, Definitions& definitions) {
    if (TorchApi::IsTensor(value)) {
      if (const auto summary = SummaryOf(value)) {
        const ContentDigest& digest = summary->content;
        record_.digest = digest.digest;
        record_.content = kHasData | (digest.all_zero ? kDataIsZero : 0);
      } else {
        record_.content = kUnreadable;
      }
      // Also of a tensor that cannot be read.
      TensorFacts facts = FactsOf(value);
      dtype_ = definitions.String(facts.dtype);
      shape_ = std::move(facts.shape);
    } else if (PyFloat_Check(value) || PyLong_Check(value)) {
      // True and False are integers to Python and become 1 and 0.
      number_ = PyFloat_AsDouble(value);
      if (PyErr_Occurred() != nullptr) {
        DropException();  // an integer beyond all doubles
        number_.reset();
      }
    }
  }

  void Append(ThreadRecorder* thread, uint32_t variable, uint64_t left_out) {
    alignas(8) char buffer[kMaxEntryBytes];
    FieldWriter out(buffer, sizeof buffer, record_);
    if (dtype_ != 0) out.Unsigned(Field::kDtype, dtype_);
    for (const int64_t size : shape_) {
      out.Unsigned(Field::kDimension, static_cast<uint64_t>(size));
    }
    if (number_) out.Double(Field::kValueDouble, *number_);
    if (variable != 0) out.Unsigned(Field::kVariable, variable);
    if (left_out != 0) out.Unsigned(Field::kLeftOut, left_out);
    thread->Append(out, buffer, RecordType::kCheckpointEntry, 0);
  }

 private:
  CheckpointEntryRecord record_ = {};
  uint32_t dtype_ = 0;
  std::vector<int64_t> shape_;
  std::optional<double> number_;
};

}  // namespace

// The digest is that of a tensor of these bytes, so that a generator's state is
// compared like any variable.
void RecordBytes(StatePoint point, uint32_t variable, std::string_view bytes,
                 std::string_view dtype) {
  ThreadRecorder* thread = CurrentThread();
  // A state without a variable could be found by nobody.
  if (thread == nullptr || variable == 0) return;
  const DigestSum sum = SumWords(bytes.data(), bytes.size());
  StateWithDigest record = {};
  record.state.variable = variable;
  record.state.point = static_cast<uint8_t>(point);
  record.state.content = kHasData | (sum.any_bits == 0 ? kDataIsZero : 0);
  record.digest = FinishDigest(sum.sum, bytes.size(), DtypeOfName(dtype));
  thread->Append(&record.state.header, sizeof record, RecordType::kState, 0);
}

// For hooks that compare contents themselves, such as batches. It writes no
// record.
DigestsRead ReadDigests(PyObject* tensors, std::string* digests) {
  const TorchApi::WithoutOverrides direct;
  const Py_ssize_t size = PySequence_Size(tensors);
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Ref tensor(PySequence_GetItem(tensors, i));
    if (!tensor) return DigestsRead::kNoSequence;
    if (!TorchApi::IsTensor(tensor.get())) return DigestsRead::kNotAll;
    const auto summary = SummaryOf(tensor.get());
    // A digest that is left out would move all behind it.
    if (!summary) return DigestsRead::kNotAll;
    char bytes[sizeof(uint64_t)];
    std::memcpy(bytes, &summary->content.digest, sizeof bytes);
    digests->append(bytes, sizeof bytes);
  }
  return size < 0 ? DigestsRead::kNoSequence : DigestsRead::kAll;
}

bool RecordCheckpoint(StatePoint point, const CheckpointContent& content,
                      PyObject* values) {
  const TorchApi::WithoutOverrides direct;
  // Entries come one by one, each with its own record: a checkpoint has more of
  // them than a record has room.
  const size_t size = std::min(content.keys.size(), content.variables.size());
  for (size_t i = 0; i < size; ++i) {
    const Ref value(PySequence_GetItem(values, static_cast<Py_ssize_t>(i)));
    if (!value) return false;
    if (CurrentThread() == nullptr) return true;
    Definitions& definitions = ProcessRecorder::GetIfMade()->definitions();
    Entry entry(point, definitions.String(content.keys[i]));
    entry.Read(value.get(), definitions);
    // Asked for again: while the GIL was released anything may have happened.
    ThreadRecorder* thread = CurrentThread();
    if (thread == nullptr) return true;
    entry.Append(thread, content.variables[i], 0);
  }
  ThreadRecorder* thread = CurrentThread();
  if (thread != nullptr && content.left_out != 0) {
    // A record without a key, since no entry stands for those beyond.
    Entry(point, 0).Append(thread, 0, content.left_out);
  }
  return true;
}

}  // namespace traincheck::agent
