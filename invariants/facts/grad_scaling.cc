#include "invariants/facts/grad_scaling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "invariants/trace/call_contexts.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

constexpr char kScaler[] = "torch.amp.grad_scaler.GradScaler.";

// A scaler that is disabled returns the loss itself.
Tri IsScaled(const Call& call, const ProcessDefinitions& definitions) {
  const ToldArguments told = ArgumentsOf(call, definitions);
  const auto result = ResultOf(call, definitions);
  const uint64_t from = StorageOf(told.Find("outputs"));
  const uint64_t to = StorageOf(result ? &*result : nullptr);
  if (from == 0 || to == 0) return Tri::kUnknown;
  return ToTri(from != to);
}

}  // namespace

GradScaling::Thread& GradScaling::Find(uint32_t ring) {
  const Tri scaled = missed_ ? Tri::kUnknown : Tri::kNo;
  return threads_.try_emplace(ring, Thread{scaled, 0}).first->second;
}

void GradScaling::OnGap() {
  missed_ = true;
  for (auto& [ring, thread] : threads_) {
    if (thread.scaled_loss == Tri::kNo) thread.scaled_loss = Tri::kUnknown;
  }
  // A scaled backward may be among what is missing, and so may an unscale_ of
  // any optimizer.
  doubtful_ = some_unscaled_ = ++now_;
  scale_.reset();
}

void GradScaling::OnDefinition(RecordType type, uint32_t id) {
  if (type != RecordType::kFunctionDef) return;
  // A definition may replace another one under its id.
  methods_.erase(id);
  const FunctionInfo* function = inputs().definitions.Function(id);
  if (!function) return;
  // A scaler's class that overrides a method has it under a name of its own,
  // and under the base's as a role.
  const auto is = [&](const char* method) {
    const std::string name = std::string(kScaler) + method;
    return function->name == name ||
           std::find(function->roles.begin(), function->roles.end(), name) !=
               function->roles.end();
  };
  if (is("scale")) methods_[id] = Method::kScale;
  if (is("unscale_")) methods_[id] = Method::kUnscale;
  if (is("step")) methods_[id] = Method::kStep;
}

void GradScaling::OnCallBegin(const Call& call) {
  if (HasCategory(call, CallCategory::kBackward) && call.Is(kOutermost)) {
    return Backward(&Find(call.ring));
  }
  if (HasCategory(call, CallCategory::kZeroGrad)) ZeroGrad(call.object);
  // A scaled backward from before this may have been of another model: see
  // Scaled.
  if (HasCategory(call, CallCategory::kOptimizerInit)) {
    made_[call.object] = now_;
  }
  const auto method = methods_.find(call.function_id);
  if (method == methods_.end() || method->second != Method::kStep) return;
  ++Find(call.ring).open_steps;
}

void GradScaling::OnCallEnd(const Call& call) {
  const auto method = methods_.find(call.function_id);
  if (method == methods_.end()) return;
  // At the end of the call: only then its result, which says whether a loss was
  // scaled, is recorded.
  Thread& thread = Find(call.ring);
  switch (method->second) {
    case Method::kStep:
      if (thread.open_steps > 0) --thread.open_steps;
      return;
    case Method::kScale: {
      const Tri scaled = IsScaled(call, inputs().definitions);
      // Several losses may be scaled for one backward. One that was not takes
      // nothing back.
      if (thread.scaled_loss == Tri::kYes || scaled == Tri::kNo) return;
      thread.scaled_loss = scaled;
      return;
    }
    case Method::kUnscale: {
      const ToldArguments told = ArgumentsOf(call, inputs().definitions);
      const CallValue* given = told.Find("optimizer");
      const auto* optimizer = given ? given->Get<ObjectValue>() : nullptr;
      ++now_;
      // It may be any optimizer's: of none it is certain any more that its
      // gradients are scaled.
      if (optimizer) {
        unscaled_[optimizer->object] = now_;
      } else {
        some_unscaled_ = now_;
      }
      return;
    }
  }
}

// The object may be an optimizer, a model or a wrapper: zero_grad of a model
// clears the gradients of all optimizers that hold parameters of it.
void GradScaling::ZeroGrad(uint32_t object) {
  for (const auto& [key, held] : inputs().definitions.holds()) {
    if (inputs().ownership.Clears(object, key.first)) OnCleared(key.first);
  }
}

// Would a call of GradScaler.scale have been recorded? Only then a backward
// without one is known to be unscaled.
bool GradScaling::IsRecorded() const {
  const RecordedSteps& recorded = inputs().recorded;
  if (!recorded.whole()) return false;
  const RecordedFunctions& functions = recorded.functions();
  // An agent of an earlier version records all calls.
  if (!functions.told()) return true;
  return std::any_of(methods_.begin(), methods_.end(), [&](const auto& method) {
    return method.second == Method::kScale &&
           functions.RecordsSince(method.first, functions.plans());
  });
}

void GradScaling::Backward(Thread* thread) {
  ++now_;
  if (thread->scaled_loss == Tri::kYes) {
    scaled_ = now_;
  } else if (thread->scaled_loss == Tri::kUnknown || !IsRecorded()) {
    // As unseen as calls that unscale.
    doubtful_ = some_unscaled_ = now_;
  } else {
    plain_ = now_;
  }
  // The next backward is scaled only if a loss is scaled for it again.
  thread->scaled_loss = Tri::kNo;
}

void GradScaling::OnScalar(const ScalarEvent& event) {
  if (event.point != StatePoint::kPostStep || *event.name != "scale") return;
  scale_.reset();
  if (!std::isnan(event.value)) scale_ = event.value;
}

Tri GradScaling::Scaled(uint32_t ring, uint32_t optimizer) const {
  const auto thread = threads_.find(ring);
  // The scaler's own step unscales, or its optimizer takes the scale with it.
  if (thread != threads_.end() && thread->second.open_steps > 0) {
    return Tri::kNo;
  }
  const auto found = unscaled_.find(optimizer);
  const uint64_t since = found == unscaled_.end() ? 0 : found->second;
  if (scaled_ > since) {
    const auto made = made_.find(optimizer);
    const bool was_there = made == made_.end() || made->second < scaled_;
    // The scaled backward was this optimizer's for certain if there was no
    // other kind of backward since its gradients were unscaled or cleared. An
    // unscale_ of an unknown optimizer behind it may have been of this one. In
    // a step that is not sampled a call of the scaler's step is not recorded.
    const bool sure = was_there && plain_ <= since &&
                      some_unscaled_ <= scaled_ && inputs().recorded.whole();
    return sure ? Tri::kYes : Tri::kUnknown;
  }
  return doubtful_ > since ? Tri::kUnknown : Tri::kNo;
}

void GradScaling::Fields(Archive& archive) {
  archive(methods_, threads_, missed_, unscaled_, made_, now_, scaled_, plain_,
          doubtful_, some_unscaled_, scale_);
}

void GradScaling::Thread::Fields(Archive& archive) {
  archive(scaled_loss, open_steps);
}

}  // namespace traincheck
