// A tensor as people are shown it: "torch.float32 [3, 2]".
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_TENSOR_WORDS_H_
#define TRAINCHECK_INVARIANTS_RULES_TENSOR_WORDS_H_

#include <string>

#include "invariants/trace/call_values.h"

namespace traincheck {

inline std::string TensorWords(const TensorValue& tensor) {
  std::string text = tensor.dtype + " [";
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.sizes[i]);
  }
  return text + "]";
}

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_TENSOR_WORDS_H_
