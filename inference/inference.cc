#include "inference/inference.h"

#include <algorithm>

#include "inference/learning.h"
#include "inference/recorded_run.h"

namespace traincheck {

class Inference::Impl {
 public:
  explicit Impl(const InferenceOptions& options) : options_(options) {}

  void BeginRun(const ReferenceRun& run) {
    runs_.push_back(std::make_unique<RecordedRun>(run));
  }

  RecordedRun& current() { return *runs_.back(); }

  // The runs are kept whole until here, because each is read up to three times
  // (learning.h).
  InferenceResult Finish(const std::function<void(double)>& progress) const {
    std::vector<const RecordedRun*> sorted;
    for (const auto& run : runs_) sorted.push_back(run.get());
    // By name, so that the order in which runs were fed does not show in the
    // result.
    std::sort(sorted.begin(), sorted.end(),
              [](const RecordedRun* a, const RecordedRun* b) {
                return a->info().run < b->info().run;
              });
    return Learning(sorted, options_, progress).Learn();
  }

 private:
  const InferenceOptions options_;
  std::vector<std::unique_ptr<RecordedRun>> runs_;
};

Inference::Inference(const InferenceOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

Inference::~Inference() = default;

void Inference::BeginRun(const ReferenceRun& run) { impl_->BeginRun(run); }

void Inference::SetAttempt(uint32_t process, uint32_t attempt) {
  impl_->current().SetAttempt(process, attempt);
}

void Inference::Consume(uint32_t process, const StoredBatch& batch) {
  impl_->current().Add(process, batch);
}

void Inference::EndProcess(uint32_t process, ProcessEnd end) {
  impl_->current().End(process, end);
}

// A run is read as a whole in Finish: nothing is left to do here.
void Inference::EndRun() {}

InferenceResult Inference::Finish(const std::function<void(double)>& progress) {
  return impl_->Finish(progress);
}

}  // namespace traincheck
