// Which contents nobody has written since they were digested last, so that the
// same bytes are not read a second time: a parameter before a step has the
// digest that it had after the step before, a gradient before a step that which
// it had after the backward.
//
// torch's version counter says so, but it counts no write through .data, numpy
// or another process. It is believed under these conditions only:
//   - The content is asked for right before something writes it. What a
//     backward, a clip, a step or a load has left is always read.
//   - Words spread over the content are as they were, and most are not zero: a
//     few rows of an embedding could change between them.
//   - The counter has told the truth of this content kProbation times, and
//     never anything else.
//   - Of kMostLeftOut + 1 digests in a row one is read, which bounds the time
//     until a write that all of this misses is noticed.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_UNWRITTEN_CONTENTS_H_
#define TRAINCHECK_AGENT_CAPTURE_UNWRITTEN_CONTENTS_H_

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "agent/cpython/python_api.h"
#include "agent/torch/tensor_view.h"
#include "proto/record_format.h"

namespace traincheck::agent {

class UnwrittenContents {
 public:
  static constexpr int kProbation = 8;
  static constexpr int kMostLeftOut = 15;

  // What a content was like just before it was digested.
  struct Look {
    const void* data = nullptr;
    uint64_t bytes = 0;
    uint64_t version = 0;
    ContentSample sample;
  };

  // This process's; a forked child begins anew.
  static UnwrittenContents& Get();

  // None: it is read wherever it is asked for, since that is no slower, or
  // since nothing counts its writes.
  // REQUIRES: a TorchApi::WithoutOverrides lives.
  static std::optional<Look> LookAt(PyObject* tensor, const TensorView& view);

  // Is something about to be written where this point's contents lie?
  static bool PrecedesWrites(StatePoint point) {
    return point == StatePoint::kPreStep || point == StatePoint::kPreClip;
  }

  // Of the variable's data (kHasData) or gradient (kHasGrad). None: read it,
  // and say what it was.
  std::optional<ContentDigest> Unwritten(uint32_t variable, StateContent of,
                                         const Look& look);
  void Digested(uint32_t variable, StateContent of, StatePoint point,
                const Look& look, const ContentDigest& digest);

 private:
  struct Known {
    Look look;
    ContentDigest digest;
    int truths = 0;  // of the counter, in a row
    bool deceives = false;
    int left_out = 0;  // in a row
  };

  explicit UnwrittenContents(uint32_t generation) : generation_(generation) {}
  Known& Of(uint32_t variable, StateContent of);

  const uint32_t generation_;
  std::unordered_map<uint64_t, Known> known_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_UNWRITTEN_CONTENTS_H_
