#include "checker/compare/recorded_run_for_testing.h"

#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

// As an agent would number and place things, whatever they are.
class Recording {
 public:
  explicit Recording(const RecordedRunOptions& options) : options_(options) {
    if (options.other_ids) {
      trace_.Object("Something", {.kind = ObjectKind::kOther});
      trace_.Function("something", "user", {});
    }
    model_ = trace_.Object("pkg.Net", {});
    loader_ = trace_.Object("DataLoader", {.kind = ObjectKind::kLoader});
    sgd_ =
        trace_.Object("torch.optim.sgd.SGD", {.kind = ObjectKind::kOptimizer});
    weight_ = trace_.Variable(model_, "Net", "fc.weight", {.shape = {2, 3}});
    bias_ = trace_.Variable(model_, "Net", "fc.bias", {.shape = {2}});
    generator_ = trace_.Variable(0, "generator", "torch.cpu",
                                 {.kind = VariableKind::kGenerator});
    indices_ = trace_.Variable(loader_, "DataLoader", "indices",
                               {.kind = VariableKind::kLoaderState});
    forward_ = trace_.Function("pkg.Net.forward", "forward", {});
    relu_ = trace_.Function("torch.nn.functional.relu", "operation", {});
    backward_ = trace_.Function("torch.Tensor.backward", "backward", {});
    clear_ = trace_.Function("torch.optim.sgd.SGD.zero_grad", "zero_grad", {});
    step_ = trace_.Function("torch.optim.sgd.SGD.step", "optimizer_step", {});
    reduce_ = trace_.Function("torch.distributed.all_reduce", "collective", {});
    trace_.ProcessGroup(1, {0, 1});
    trace_.ProcessGroup(2, {0});
  }

  std::vector<StoredBatch> Run() {
    Begin();
    for (now_ = 0; now_ < options_.steps; ++now_) {
      Step();
      if ((now_ + 1) % options_.steps_per_batch == 0) trace_.Cut();
    }
    trace_.Mark(MarkKind::kCleanExit, 0, 0);
    return trace_.TakeBatches();
  }

 private:
  bool Faulty(RunFault fault) const {
    return options_.fault == fault && now_ == options_.fault_step;
  }
  // Was there a fault that changes what is trained?
  bool Spoilt() const {
    return options_.fault != RunFault::kNone &&
           options_.fault != RunFault::kCheckpoint &&
           options_.fault != RunFault::kUnseeded && now_ >= options_.fault_step;
  }
  // A digest that is the same in two runs until one is spoilt.
  uint64_t Digest(uint64_t of, bool other) const {
    return 1000 * (now_ + 1) + 10 * of + (other ? 1 : 0);
  }
  bool is_less() const {
    return options_.less_behind && now_ > options_.lost_in.value_or(now_);
  }
  bool skeleton() const {
    return now_ < options_.skeleton_until.value_or(0) ||
           (options_.skeleton_until && is_less());
  }

  void Begin() {
    trace_.Place(0, 1);
    const bool all = options_.fault != RunFault::kHeld;
    trace_.Hold(sgd_, 0,
                all ? std::vector{weight_, bias_} : std::vector{weight_});
    for (const uint32_t function : {clear_, step_, backward_, reduce_}) {
      trace_.Mark(MarkKind::kFunctionOn, 0, function);
    }
    if (options_.records_relu) trace_.Mark(MarkKind::kFunctionOn, 0, relu_);
    if (options_.skeleton_until) trace_.Mark(MarkKind::kCaptureMode, 0, 2);
  }

  void State(StatePoint point, uint32_t variable, const StateOptions& options) {
    if (skeleton()) return;
    StateOptions read = options;
    if (options_.unreadable_in == now_) read = {.unreadable = true};
    trace_.State(point, variable, read);
  }

  void Clear() {
    trace_.Begin(clear_, {.object = sgd_, .site = "train.py:3"});
    trace_.End();
  }

  void Forward() {
    const bool spoilt_before = Spoilt() && now_ > options_.fault_step;
    const bool written = Faulty(RunFault::kWeights);
    const bool unseeded =
        options_.fault == RunFault::kUnseeded && now_ >= options_.fault_step;
    State(StatePoint::kForwardBegin, weight_,
          {.data = Digest(1, spoilt_before || written)});
    State(StatePoint::kForwardBegin, generator_,
          {.data = Digest(2, Faulty(RunFault::kGenerator) || unseeded)});
    uint8_t flags = kOutermost | kGradEnabled | kRootModuleCall;
    if (!Faulty(RunFault::kMode)) flags |= kModuleTraining;
    trace_.Begin(forward_,
                 {.object = model_, .site = "train.py:4", .flags = flags});
    if (options_.records_relu && !skeleton() && !is_less()) {
      trace_.Begin(
          relu_,
          {.site = "net.py:8",
           .arguments = {{"slope", Faulty(RunFault::kArgument) ? 0.2 : 0.1}},
           .storages = {{"input", options_.other_ids ? 7u : 5u}}});
      trace_.Return(Faulty(RunFault::kResult) ? 2.0 : 1.0);
    }
    trace_.End(kOutputSearched | kOutputHasGradFn);
  }

  void Backward() {
    trace_.Begin(backward_, {.site = "train.py:5"});
    trace_.Begin(reduce_, {.site = "train.py:5"});
    trace_.Collective(Faulty(RunFault::kCollective) ? 2 : 1, now_);
    trace_.End();
    State(StatePoint::kBackwardEnd, weight_,
          {.grad = Digest(3, Spoilt() && options_.fault != RunFault::kUpdate &&
                                 options_.fault != RunFault::kRate)});
    trace_.End();
  }

  void Optimize() {
    trace_.Begin(step_, {.object = sgd_, .site = "train.py:6"});
    const bool other = options_.fault == RunFault::kRate && Spoilt();
    trace_.LearningRate(sgd_, 0, other ? 0.2 : 0.1);
    trace_.End();
    State(StatePoint::kPostStep, weight_, {.data = Digest(4, Spoilt())});
  }

  void Step() {
    trace_.Mark(MarkKind::kBatchFetched, loader_, now_);
    if (now_ > 0) trace_.Mark(MarkKind::kStepClosed, 0, now_ - 1);
    if (options_.skeleton_until == now_) {
      trace_.Mark(MarkKind::kCaptureMode, 0, 1);
    }
    State(StatePoint::kFetch, indices_,
          {.data = Digest(5, Faulty(RunFault::kData))});
    const bool late = Faulty(RunFault::kOrder);
    if (!late && !Faulty(RunFault::kNoClear)) Clear();
    Forward();
    Backward();
    if (options_.lost_in == now_) trace_.Lose();
    if (late) Clear();
    Optimize();
    if (now_ == 5) {
      trace_.CheckpointEntry(
          StatePoint::kSave, "fc.weight",
          {.digest = Digest(6, options_.fault == RunFault::kCheckpoint)});
    }
  }

  const RecordedRunOptions options_;
  TraceBuilder trace_;
  int now_ = 0;
  uint32_t model_, loader_, sgd_;
  uint32_t weight_, bias_, generator_, indices_;
  uint32_t forward_, relu_, backward_, clear_, step_, reduce_;
};

}  // namespace

std::vector<StoredBatch> Record(const RecordedRunOptions& options) {
  return Recording(options).Run();
}

}  // namespace traincheck
