// What is known of one variable of one process: facts var.changed,
// var.overwritten,
// var.got_grad, grad.zero, grad.finite, loaded.consumed, buffer.* and the call
// that wrote it last.
//
// Inputs: state records and their statistics. A digest is unknown before the
// first state record, where the tensor was unreadable, and after a gap.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_VARIABLE_STATE_H_
#define TRAINCHECK_INVARIANTS_FACTS_VARIABLE_STATE_H_

#include <cstdint>
#include <optional>

#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

// Stand-in digests of gradients that are None, or zero and not digested.
inline constexpr uint64_t kNoGradientDigest = 0x4e6f6e65;
inline constexpr uint64_t kZeroGradientDigest = 0x5a65726f;

// A function and a site of this process; 0, 0: not known.
struct Writer {
  uint32_t function = 0;
  uint32_t site = 0;
  bool operator==(const Writer& other) const = default;
  void Fields(Archive& archive);
};

class VariableState {
 public:
  // Takes over a state record. REQUIRES: event.variable is known.
  void Apply(const StateEvent& event);
  // Takes over what follows one.
  void Apply(const StatisticsEvent& event);
  // Its optimizer's step begins: what follows belongs to that call.
  void BeginStep();
  // The step is the first of an optimizer, which takes it as it is: what it was
  // made to be before is no accident.
  void OptimizerIsNew();
  // Its optimizer's step has ended.
  void EndStep();
  // Something may have been loaded into it.
  void MayBeLoaded() { after_step_.reset(); }
  void Forget();
  // Has nothing been learned since Forget, so that another would change
  // nothing? Not saved: after a restore it is no.
  bool is_forgotten() const { return is_forgotten_; }
  // Is there something that EndStep ends?
  bool is_open() const { return in_step_ || got_grad_ || loaded_.has_value(); }

  void Fields(Archive& archive);

  // Digest of the tensor; of its gradient, kNoGradientDigest for None.
  std::optional<uint64_t> data() const { return data_; }
  std::optional<uint64_t> grad() const { return grad_; }
  Tri trainable() const { return trainable_; }

  // Since the last BeginStep: data at post_step differs from data at pre_step.
  Tri changed_in_step() const { return changed_in_step_; }
  // Gradient that the step uses is there / has a non-zero element: that at
  // pre_step, or what its closure has computed since.
  Tri has_grad_at_step() const { return has_grad_; }
  Tri grad_nonzero_at_step() const { return nonzero_; }
  Tri grad_finite_at_step() const { return finite_; }
  // A backward changed it to a non-zero gradient since the last EndStep.
  bool got_grad() const { return got_grad_; }
  // The last Apply changed the gradient to something that is there; unknown
  // where it was not read, or what it was before is not known any more.
  Tri grad_written() const { return grad_written_; }

  // Other data than at first, or data that was loaded; unknown where it was not
  // recorded when it became known.
  Tri updated_or_loaded() const {
    return updated_ ? Tri::kYes : first_ ? Tri::kNo : Tri::kUnknown;
  }
  // Some training forward changed it.
  bool forward_writes() const { return forward_writes_; }
  // Was it loaded since its optimizer's last step?
  bool loaded() const { return loaded_.has_value(); }
  // Is what was loaded still there at the step?
  Tri loaded_kept_at_step() const { return loaded_kept_; }

  // Did something else than steps and loads change it since the last step, and
  // was it never so before, in a few steps at least? Unknown: not yet, or not
  // any more, or it was not recorded at the last step and at this.
  Tri overwritten() const { return overwritten_; }

  Writer data_writer() const { return data_writer_; }
  Writer grad_writer() const { return grad_writer_; }

 private:
  void ApplyData(const StateEvent& event);
  void FollowContent(const StateEvent& event);
  void CompareWithLastStep(uint64_t data);
  void ApplyGrad(const StateEvent& event);
  bool IsOfClosure(StatePoint point) const;

  std::optional<uint64_t> data_;
  std::optional<uint64_t> grad_;
  std::optional<uint64_t> pre_step_data_;
  Tri trainable_ = Tri::kUnknown;
  Tri changed_in_step_ = Tri::kUnknown;
  Tri has_grad_ = Tri::kUnknown;
  Tri nonzero_ = Tri::kUnknown;
  Tri finite_ = Tri::kUnknown;
  bool is_forgotten_ = false;
  bool in_step_ = false;  // its optimizer's
  bool got_grad_ = false;
  Tri grad_written_ = Tri::kNo;
  bool forgotten_ = false;  // there was a gradient's digest
  std::optional<uint64_t> first_;
  bool updated_ = false;
  std::optional<uint64_t> at_forward_;  // as the open step's forward found it
  bool forward_writes_ = false;
  std::optional<uint64_t> loaded_;
  Tri loaded_kept_ = Tri::kUnknown;
  // As its optimizer's last step left it, and within a step as the one before
  // did; nullopt: that step was not recorded.
  std::optional<uint64_t> after_step_;
  std::optional<uint64_t> after_step_before_;
  // Times in a row that it was found so; nullopt: once it was not, or that is
  // not known, so that whoever changes it may do so on purpose.
  std::optional<uint32_t> kept_ = 0;
  Tri overwritten_ = Tri::kUnknown;
  Writer data_writer_;
  Writer grad_writer_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_VARIABLE_STATE_H_
