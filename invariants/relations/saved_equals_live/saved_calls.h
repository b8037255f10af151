// What the forms ask of calls and entries: which category, of which model, how
// large.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CALLS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CALLS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "invariants/trace/definitions.h"
#include "invariants/trace/events.h"

namespace traincheck {

inline bool IsOfCategory(const Call& call, std::string_view category) {
  return call.function && call.function->category.text() == category;
}

// Of a module: the outermost one that it is a part of, or itself. 0: the object
// is not known, or no module.
inline uint32_t RootModuleOf(const ProcessDefinitions& definitions,
                             uint32_t object) {
  const ObjectInfo* info = definitions.Object(object);
  if (!info || info->kind != ObjectKind::kModule) return 0;
  return info->root != 0 ? info->root : object;
}

inline bool IsFloating(std::string_view dtype) {
  return dtype.find("float") != std::string_view::npos;
}

inline uint64_t Elements(const std::vector<uint64_t>& shape) {
  uint64_t elements = 1;
  for (const uint64_t size : shape) elements *= size;
  return elements;
}

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CALLS_H_
