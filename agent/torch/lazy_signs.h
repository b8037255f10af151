// Negation and conjugation that torch does only when an element is read.
//
// Threads: pure functions.
#ifndef TRAINCHECK_AGENT_TORCH_LAZY_SIGNS_H_
#define TRAINCHECK_AGENT_TORCH_LAZY_SIGNS_H_

#include <cstddef>

#include "proto/torch_types.h"

namespace traincheck::agent {

// Does torch negate elements of this type?
bool CanNegate(Dtype dtype);

// Does negation flip sign bits only? Of integers it is two's complement.
bool FlipsSignBits(Dtype dtype);

// Makes elements what a reader of the tensor sees. Whole elements.
void Negate(Dtype dtype, char* data, size_t bytes);
void Conjugate(Dtype dtype, char* data, size_t bytes);  // of complex types only

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_LAZY_SIGNS_H_
