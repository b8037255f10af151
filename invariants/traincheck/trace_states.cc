#include "invariants/traincheck/trace_states.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/match.h"
#include "base/hash.h"
#include "invariants/relations/traincheck_rules/names.h"

namespace traincheck {

namespace {

using nlohmann::json;

// Attributes of every tensor that repeat what records have anyway, or that no
// check reads.
constexpr const char* kOfEveryTensor[] = {
    "itemsize", "name",   "nbytes", "ndim",  "retains_grad", "grad_fn",
    "layout",   "device", "names",  "shape", "output_nr"};
constexpr const char* kRecorded[] = {"data", "grad", "dtype", "requires_grad",
                                     "is_leaf"};

template <size_t n>
bool IsOneOf(const char* const (&names)[n], const std::string& name) {
  return std::find_if(std::begin(names), std::end(names),
                      [&name](const char* one) { return name == one; }) !=
         std::end(names);
}

// TrainCheck records as content a hash, some statistics or all numbers. A hash
// is taken as it is, bit for bit; of the rest a hash is made here.
uint64_t DigestOf(const json& content) {
  if (content.is_number_unsigned()) return content.get<uint64_t>();
  if (content.is_number_integer()) {
    return static_cast<uint64_t>(content.get<int64_t>());
  }
  if (content.is_number_float()) {
    return std::bit_cast<uint64_t>(content.get<double>());
  }
  return StableHash(content.dump());
}

bool IsTrue(const json& attributes, const char* key) {
  const auto found = attributes.find(key);
  return found != attributes.end() && *found == true;
}

// As Python prints it, which is how the agent records such attributes.
std::string PythonText(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void TakeShape(const json& shape, VariableTraits* traits) {
  traits->has_shape =
      shape.is_array() &&
      std::all_of(shape.begin(), shape.end(),
                  [](const json& size) { return size.is_number_unsigned(); });
  if (traits->has_shape) traits->shape = shape.get<std::vector<uint64_t>>();
}

// Attributes that parallel training gives a tensor (partition_dim and the like)
// become attributes of the variable. Of those that every tensor has few are
// recorded.
VariableTraits TraitsOf(const json& attributes, Conversion* conversion) {
  VariableTraits traits;
  for (const auto& [key, value] : attributes.items()) {
    const std::string name(WithoutFieldPrefix(key));
    // Names with TrainCheck's prefix are its own bookkeeping, such as ids.
    const bool own = name == key;
    if (own && name == "dtype" && value.is_string()) {
      traits.dtype = value.get<std::string>();
    } else if (own && name == "shape") {
      TakeShape(value, &traits);
    } else if (own && IsOneOf(kRecorded, name)) {
      continue;
    } else if (!own || IsOneOf(kOfEveryTensor, name) ||
               absl::StartsWith(name, "is_") ||
               absl::StartsWith(name, "has_") || !value.is_primitive() ||
               value.is_null() || value.is_number_float()) {
      conversion->LeaveOut("attributes." + name);
    } else {
      traits.attributes.push_back(name + "=" + PythonText(value));
    }
  }
  return traits;
}

}  // namespace

// A trace does not record at which point of a step a state was read: the open
// calls decide.
StatePoint TraceStates::PointOf(const TraceThread& thread, bool is_new,
                                bool stepped) const {
  // Whatever call is open: nothing is known of the variable before.
  if (is_new) return StatePoint::kConstruction;
  if (thread.Inside(CallCategory::kOptimizerStep)) return StatePoint::kPostStep;
  if (thread.Inside(CallCategory::kBackward)) return StatePoint::kBackwardEnd;
  if (thread.Inside(CallCategory::kZeroGrad)) return StatePoint::kGradClear;
  // Outside of these calls: the state after the last step, or, before the first
  // one, still that of the construction.
  return stepped || !has_calls_ ? StatePoint::kPostStep
                                : StatePoint::kConstruction;
}

// One line becomes a definition, if it shows something new of the variable, and
// a state.
void TraceStates::Take(const TraceLine& line, const TraceThread& thread,
                       bool stepped) {
  const json& attributes = line.Object("attributes");
  const bool trainable = IsTrue(attributes, "requires_grad");
  bool is_new = false;
  StateRecord state = {};
  state.variable = conversion_.definitions().Variable(
      {line.json.at("var_name"), line.json.at("var_type")},
      TraitsOf(attributes, &conversion_), trainable, &is_new);
  state.point = static_cast<uint8_t>(PointOf(thread, is_new, stepped));
  uint64_t digests[2] = {};
  size_t count = 0;
  if (trainable) state.content |= kRequiresGrad;
  if (IsTrue(attributes, "is_leaf")) state.content |= kIsLeaf;
  const auto data = attributes.find("data");
  if (data != attributes.end() && !data->is_null()) {
    state.content |= kHasData;
    digests[count++] = DigestOf(*data);
  } else {
    state.content |= kUnreadable;
  }
  // Null is Python's None. Without the key nothing is said of the gradient.
  const auto grad = attributes.find("grad");
  if (grad != attributes.end() && grad->is_null()) {
    state.content |= kGradIsNone;
  } else if (grad != attributes.end()) {
    state.content |= kHasGrad;
    digests[count++] = DigestOf(*grad);
  }
  conversion_.records().WriteState(thread.ring, state, digests, count);
}

}  // namespace traincheck
