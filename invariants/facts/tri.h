// Yes, no, or not known.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_FACTS_TRI_H_
#define TRAINCHECK_INVARIANTS_FACTS_TRI_H_

#include <cstdint>

namespace traincheck {

enum class Tri : uint8_t { kUnknown, kNo, kYes };

inline Tri ToTri(bool value) { return value ? Tri::kYes : Tri::kNo; }

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_TRI_H_
