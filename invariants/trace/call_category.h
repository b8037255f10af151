// What a function is to training, as the agent tells it by a word. The words
// that facts ask for have numbers: they are asked for at every call.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_TRACE_CALL_CATEGORY_H_
#define TRAINCHECK_INVARIANTS_TRACE_CALL_CATEGORY_H_

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "invariants/trace/archive.h"

namespace traincheck {

class CallCategory {
 public:
  enum Number : uint8_t {
    kForward,
    kBackward,
    kOptimizerStep,
    kOptimizerInit,
    kZeroGrad,
    kCheckpoint,
    kClipGrad,
    kLoadStateDict,
    kDestroyProcessGroup,
    kTrainMode,
    kCollective,
    kLoaderNext,
    kSave,
    kOther,  // any other word
  };

  CallCategory() = default;
  // Implicit: it is the word.
  CallCategory(std::string text)
      : text_(std::move(text)), number_(NumberOf(text_)) {}
  CallCategory(const char* text) : CallCategory(std::string(text)) {}

  const std::string& text() const { return text_; }
  Number number() const { return number_; }

  void Fields(Archive& archive) {
    archive(text_);
    if (archive.reading()) number_ = NumberOf(text_);
  }

 private:
  static Number NumberOf(std::string_view text) {
    constexpr std::string_view kWords[] = {"forward",
                                           "backward",
                                           "optimizer_step",
                                           "optimizer_init",
                                           "zero_grad",
                                           "checkpoint",
                                           "clip_grad",
                                           "load_state_dict",
                                           "destroy_process_group",
                                           "train_mode",
                                           "collective",
                                           "loader_next",
                                           "save"};
    static_assert(std::size(kWords) == kOther);
    for (size_t number = 0; number < std::size(kWords); ++number) {
      if (kWords[number] == text) return static_cast<Number>(number);
    }
    return kOther;
  }

  std::string text_;
  Number number_ = kOther;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_CALL_CATEGORY_H_
