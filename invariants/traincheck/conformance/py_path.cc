#include "invariants/traincheck/conformance/py_path.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

namespace {

const PyValue* FindMember(const PyValue& object, const PyValue& key) {
  // All keys of an object are texts in JSON, so an integer in a path finds
  // none.
  if (key.kind() != PyValue::Kind::kText) return nullptr;
  const PyValue* found = object.Find(key.text());
  if (found != nullptr) return found;
  const std::optional<std::string> other = WithOtherPrefix(key.text());
  return other ? object.Find(*other) : nullptr;
}

}  // namespace

PyLookup PyItem(const PyValue& container, const PyValue& key) {
  if (container.kind() == PyValue::Kind::kObject) {
    const PyValue* found = FindMember(container, key);
    if (found == nullptr) return {std::nullopt, /*missing=*/true};
    return {*found, false};
  }
  // A bool is an index in Python, too; CheckRuleForm lets none into a path.
  const bool index = container.kind() == PyValue::Kind::kList &&
                     key.kind() == PyValue::Kind::kInteger;
  if (!index) return {};
  const PyList& list = container.list();
  const auto size = static_cast<int64_t>(list.size());
  // -1 is the last.
  const int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
  if (at < 0 || at >= size) return {std::nullopt, /*missing=*/true};
  return {list[static_cast<size_t>(at)], false};
}

// Keys of a dict, items of a list, parts of a text: `in` of anything else
// raises.
PyContained PyContains(const PyValue& container, const PyValue& key) {
  bool has = false;
  switch (container.kind()) {
    case PyValue::Kind::kObject:
      has = FindMember(container, key) != nullptr;
      break;
    case PyValue::Kind::kList:
      has = std::find(container.list().begin(), container.list().end(), key) !=
            container.list().end();
      break;
    case PyValue::Kind::kText:
      if (key.kind() != PyValue::Kind::kText) return PyContained::kError;
      has = absl::StrContains(container.text(), key.text());
      break;
    default:
      return PyContained::kError;
  }
  return has ? PyContained::kYes : PyContained::kNo;
}

}  // namespace traincheck
