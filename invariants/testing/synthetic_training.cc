#include "invariants/testing/synthetic_training.h"

#include <cmath>

#include "invariants/testing/trace_builder.h"

namespace traincheck {

namespace {

constexpr char kModule[] = "torch.nn.modules.module.Module";
constexpr char kDdp[] = "torch.nn.parallel.distributed.DistributedDataParallel";
constexpr uint8_t kTrainingCall = kOutermost | kGradEnabled | kModuleTraining;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x7f4a7c15;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9;
  // Never 0, which stands for no gradient.
  return (x ^ (x >> 32)) | 1;
}

struct Parameter {
  uint32_t id = 0;
  uint64_t value = 0;
  uint64_t grad = 0;  // 0: None
  bool trainable = true;
  bool used = true;
};

class Rank {
 public:
  Rank(const TrainingOptions& options, int32_t rank)
      : options_(options), rank_(rank) {}

  std::vector<StoredBatch> Train();

 private:
  void Define();
  void DefineFunctions();
  void DefineModel();
  void DefineOptimizer();
  void Step(int step);
  // The first event of a step has closed the one before it.
  void ChooseWhatToRecord(int step);
  void State(StatePoint point, uint32_t variable, const StateOptions& options) {
    if (sampled_) trace_.State(point, variable, options);
  }
  void MicroBatch(int step, int micro);
  void Forward(int step, bool training);
  void InnerForward(bool root, uint8_t flags, const std::string& site);
  void Backward(int step, int micro);
  void Clear(int step);
  void Clip();
  void Update(int step);
  bool Faulty(TrainingFault fault, int step) const {
    return options_.fault == fault && step >= options_.fault_step;
  }
  // Gradients of ranks that synchronise are equal.
  uint64_t Sample(int step) const;
  double RateOf(int step) const;

  const TrainingOptions options_;
  const int32_t rank_;
  TraceBuilder trace_;
  uint32_t model_ = 0;
  uint32_t layer_ = 0;
  uint32_t ddp_ = 0;
  uint32_t optimizer_ = 0;
  uint32_t forward_ = 0, layer_forward_ = 0, ddp_forward_ = 0;
  uint32_t backward_ = 0, step_ = 0, zero_grad_ = 0, next_ = 0, clip_ = 0;
  uint32_t init_ = 0;
  std::vector<Parameter> parameters_;
  std::vector<size_t> held_;
  uint32_t buffer_ = 0;
  uint64_t buffer_value_ = 1;
  uint64_t fetched_ = 0;
  int chosen_ = -1;  // for this step
  bool sampled_ = true;
};

void Rank::DefineFunctions() {
  const std::string module_forward = std::string(kModule) + ".forward";
  forward_ = trace_.Function("__main__." + options_.model + ".forward",
                             "forward", {module_forward});
  layer_forward_ =
      trace_.Function(options_.layer + ".forward", "forward", {module_forward});
  ddp_forward_ = trace_.Function(std::string(kDdp) + ".forward", "forward",
                                 {module_forward});
  backward_ = trace_.Function("torch._tensor.Tensor.backward", "backward", {});
  step_ = trace_.Function(options_.optimizer + ".step", "optimizer_step",
                          {"torch.optim.optimizer.Optimizer.step"});
  init_ = trace_.Function("torch.optim.optimizer.Optimizer.__init__",
                          "optimizer_init", {});
  zero_grad_ = trace_.Function("torch.optim.optimizer.Optimizer.zero_grad",
                               "zero_grad", {});
  next_ = trace_.Function(
      "torch.utils.data.dataloader._BaseDataLoaderIter.__next__", "loader_next",
      {});
  clip_ = trace_.Function("torch.nn.utils.clip_grad.clip_grad_norm_",
                          "clip_grad", {});
}

void Rank::DefineModel() {
  model_ = trace_.Object("__main__." + options_.model, {.bases = {kModule}});
  layer_ = trace_.Object(options_.layer, {.bases = {kModule}, .root = model_});
  std::vector<std::string> names = {"backbone.weight", "backbone.bias",
                                    "head.weight", "head.bias"};
  if (options_.unused_parameter) names.push_back("unused.weight");
  if (options_.tied) names.push_back("tied.weight");
  std::vector<uint32_t> ids;
  for (const std::string& name : names) {
    Parameter parameter;
    const bool backbone = name.rfind("backbone", 0) == 0;
    const bool frozen_model = options_.frozen_backbone ||
                              options_.fault == TrainingFault::kWrongParameters;
    parameter.trainable = !(backbone && frozen_model);
    parameter.used = name != "unused.weight";
    parameter.value = Mix(options_.seed, parameters_.size());
    parameter.id = trace_.Variable(model_, options_.model, name,
                                   {.trainable = parameter.trainable});
    ids.push_back(parameter.id);
    parameters_.push_back(parameter);
  }
  if (options_.tied) parameters_.back().value = parameters_[2].value;
  buffer_ = trace_.Variable(model_, options_.model, "norm.running_mean",
                            {.kind = VariableKind::kBuffer});
  ids.push_back(buffer_);
  if (!options_.wrapped) return;
  ddp_ = trace_.Object(kDdp, {.bases = {kModule}, .wrapped = model_});
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < options_.ranks; ++rank) ranks.push_back(rank);
  trace_.Replicas(1, ddp_, ranks, ids);
}

void Rank::DefineOptimizer() {
  optimizer_ = trace_.Object(options_.optimizer,
                             {.kind = ObjectKind::kOptimizer,
                              .bases = {"torch.optim.optimizer.Optimizer"}});
  trace_.Begin(init_, {.site = "train.py:9"});
  trace_.End();
  const bool wrong = options_.fault == TrainingFault::kWrongParameters;
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].trainable == wrong) continue;
    held_.push_back(i);
    ids.push_back(parameters_[i].id);
  }
  trace_.Hold(optimizer_, 0, ids);
}

void Rank::Define() {
  trace_.Process(ProcessKind::kMain, options_.attempt);
  trace_.Place(rank_, options_.ranks);
  DefineFunctions();
  DefineModel();
  DefineOptimizer();
}

uint64_t Rank::Sample(int step) const {
  const int32_t faulty =
      options_.fault_rank < 0 ? options_.ranks - 1 : options_.fault_rank;
  const bool apart =
      Faulty(TrainingFault::kBypassWrapper, step) ||
      (Faulty(TrainingFault::kNoSyncOnOneRank, step) && rank_ == faulty);
  const bool synchronised = options_.wrapped && !apart;
  return Mix(static_cast<uint64_t>(step),
             synchronised ? 0 : static_cast<uint64_t>(rank_) + 1);
}

double Rank::RateOf(int step) const {
  if (step < options_.warm_up) return 0;
  return options_.rate * std::pow(options_.rate_decay, step - options_.warm_up);
}

void Rank::InnerForward(bool root, uint8_t flags, const std::string& site) {
  if (root) flags |= kRootModuleCall;
  trace_.Begin(forward_, {.object = model_, .site = site, .flags = flags});
  trace_.Begin(layer_forward_,
               {.object = layer_,
                .flags = static_cast<uint8_t>(flags & ~kRootModuleCall)});
  trace_.End();
  trace_.End(root ? kOutputSearched | kOutputHasGradFn : 0);
}

void Rank::Forward(int step, bool training) {
  const uint8_t flags = training ? kTrainingCall : uint8_t{kOutermost};
  const bool around = Faulty(TrainingFault::kBypassWrapper, step);
  if (!options_.wrapped || around || !training) {
    InnerForward(true, flags, training ? "train.py:20" : "train.py:40");
    return;
  }
  trace_.Begin(ddp_forward_,
               {.object = ddp_,
                .site = "train.py:20",
                .flags = static_cast<uint8_t>(flags | kRootModuleCall)});
  for (const Parameter& parameter : parameters_) {
    State(StatePoint::kForwardBegin, parameter.id, {.data = parameter.value});
  }
  State(StatePoint::kForwardBegin, buffer_, {.data = buffer_value_});
  InnerForward(false, flags, "");
  trace_.End(kOutputSearched | kOutputHasGradFn);
  buffer_value_ = Mix(buffer_value_, 3);
}

void Rank::Backward(int step, int micro) {
  trace_.Begin(backward_, {.site = "train.py:22"});
  for (Parameter& parameter : parameters_) {
    if (parameter.trainable && parameter.used &&
        !Faulty(TrainingFault::kNoGradient, step)) {
      const uint64_t part = Mix(Sample(step), static_cast<uint64_t>(micro));
      // Of the value as well, so that ranks that have drifted apart get
      // different gradients.
      parameter.grad = Mix(parameter.grad + part, parameter.value);
    }
  }
  // Tied by value only: the two get one gradient, as one tensor would.
  if (options_.tied) parameters_.back().grad = parameters_[2].grad;
  for (const Parameter& parameter : parameters_) {
    StateOptions state;
    if (parameter.grad != 0) state.grad = parameter.grad;
    state.no_grad = parameter.grad == 0;
    state.requires_grad = parameter.trainable;
    State(StatePoint::kBackwardEnd, parameter.id, state);
  }
  trace_.End();
}

void Rank::ChooseWhatToRecord(int step) {
  if (chosen_ == step) return;
  chosen_ = step;
  const int every = options_.ranks_sample_alike
                        ? options_.sample_every
                        : options_.sample_every << rank_;
  const bool sampled = step % every == 0;
  if (sampled == sampled_) return;
  sampled_ = sampled;
  const auto mode = sampled ? CaptureMode::kAll : CaptureMode::kSkeleton;
  trace_.Mark(MarkKind::kCaptureMode, 0, static_cast<uint64_t>(mode));
}

void Rank::Clear(int step) {
  trace_.Begin(zero_grad_, {.object = optimizer_, .site = "train.py:19"});
  ChooseWhatToRecord(step);
  for (size_t i : held_) {
    parameters_[i].grad = 0;
    State(StatePoint::kGradClear, parameters_[i].id, {.no_grad = true});
  }
  trace_.End();
}

void Rank::Clip() {
  trace_.Begin(clip_, {.site = "train.py:23"});
  trace_.End();
}

void Rank::Update(int step) {
  trace_.Begin(step_, {.object = optimizer_, .site = "train.py:24"});
  const double rate = RateOf(step);
  trace_.LearningRate(optimizer_, 0, rate);
  for (size_t i : held_) {
    const Parameter& parameter = parameters_[i];
    StateOptions state;
    state.data = parameter.value;
    if (parameter.grad != 0) state.grad = parameter.grad;
    state.no_grad = parameter.grad == 0;
    state.requires_grad = parameter.trainable;
    State(StatePoint::kPreStep, parameter.id, state);
  }
  for (size_t i : held_) {
    Parameter& parameter = parameters_[i];
    if (parameter.grad != 0 && rate != 0) {
      parameter.value = Mix(parameter.value, parameter.grad);
    }
    State(StatePoint::kPostStep, parameter.id, {.data = parameter.value});
  }
  trace_.End();
}

void Rank::MicroBatch(int step, int micro) {
  if (options_.loader) {
    trace_.Begin(next_, {.object = 99, .site = "train.py:18"});
    trace_.Mark(MarkKind::kBatchFetched, 99, fetched_++);
    ChooseWhatToRecord(step);
    trace_.End();
  }
  if (micro == 0 && options_.fault != TrainingFault::kNoClear) Clear(step);
  Forward(step, /*training=*/true);
  Backward(step, micro);
}

void Rank::Step(int step) {
  for (int micro = 0; micro < options_.micro_batches; ++micro) {
    MicroBatch(step, micro);
  }
  if (options_.clip) Clip();
  Update(step);
  if (options_.evaluate_every > 0 &&
      step % options_.evaluate_every == options_.evaluate_every - 1) {
    Forward(step, /*training=*/false);
  }
}

std::vector<StoredBatch> Rank::Train() {
  Define();
  for (int step = 0; step < options_.steps; ++step) {
    Step(step);
    if ((step + 1) % options_.steps_per_batch == 0) trace_.Cut();
  }
  trace_.Mark(MarkKind::kCleanExit, 0, 0);
  return trace_.TakeBatches();
}

}  // namespace

std::vector<StoredBatch> TrainRank(const TrainingOptions& options,
                                   int32_t rank) {
  return Rank(options, rank).Train();
}

}  // namespace traincheck
