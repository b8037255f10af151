#include "invariants/relations/collective_contract/collective_splits.h"

#include <algorithm>
#include <utility>

#include "invariants/rules/tensor_words.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

constexpr char kSingle[] =
    "torch.distributed.distributed_c10d.all_to_all_single";
constexpr char kLists[] = "torch.distributed.distributed_c10d.all_to_all";

// Null: not told.
const CallValue* ElementAt(const CallValue* list, size_t place) {
  if (!list || place >= list->elements.size()) return nullptr;
  const CallElement& element = list->elements[place];
  // Elements that did not fit are left out, so the place alone does not say
  // which one it is.
  return element.name == std::to_string(place) ? &element.value : nullptr;
}

// Part `place` of a tensor that is cut along its rows.
std::string PartOf(const ToldArguments& told, const char* tensor_name,
                   const char* splits_name, size_t place, size_t members) {
  const CallValue* splits = told.Find(splits_name);
  if (splits && splits->length && *splits->length > 0) {
    const CallValue* part = ElementAt(splits, place);
    const auto* rows = part ? part->Get<int64_t>() : nullptr;
    return rows ? std::to_string(*rows) + " rows" : "";
  }
  const CallValue* given = told.Find(tensor_name);
  const auto* tensor = given ? given->Get<TensorValue>() : nullptr;
  if (!tensor || tensor->sizes.empty()) return "";
  // Without splits torch cuts the tensor into equal parts. `members` is not 0:
  // a group of fewer than two is not compared.
  return std::to_string(tensor->sizes[0] / members) + " rows";
}

// Tensor `place` of a list.
std::string ElementOf(const ToldArguments& told, const char* list_name,
                      size_t place) {
  const CallValue* part = ElementAt(told.Find(list_name), place);
  const auto* tensor = part ? part->Get<TensorValue>() : nullptr;
  return tensor ? TensorWords(*tensor) : "";
}

// With the member at `place`; part i of what is sent and of what is received
// belongs to the group's i-th member.
Exchange ExchangeAt(const ToldArguments& told, bool single,
                    const ProcessGroupInfo& group, size_t place) {
  const size_t members = group.ranks.size();
  Exchange exchange{group.ranks[place], "", ""};
  if (single) {
    exchange.sent = PartOf(told, "input", "input_split_sizes", place, members);
    exchange.expected =
        PartOf(told, "output", "output_split_sizes", place, members);
  } else {
    exchange.sent = ElementOf(told, "input_tensor_list", place);
    exchange.expected = ElementOf(told, "output_tensor_list", place);
  }
  return exchange;
}

}  // namespace

std::optional<Exchanges> ExchangesOf(const Call& call,
                                     const ProcessDefinitions& definitions,
                                     const ProcessGroupInfo& group,
                                     int32_t rank) {
  // all_to_all_single cuts one tensor along its rows, all_to_all takes a list
  // with a tensor for each member.
  const bool single = call.function->name == kSingle;
  if (!single && call.function->name != kLists) return std::nullopt;
  const ToldArguments told = ArgumentsOf(call, definitions);
  Exchanges exchanges;
  const size_t told_parts = std::min(group.ranks.size(), kMostParts);
  const auto told_end = group.ranks.begin() + static_cast<int64_t>(told_parts);
  if (std::find(group.ranks.begin(), told_end, rank) != told_end) {
    for (size_t place = 0; place < told_parts; ++place) {
      // A member's part for itself meets nobody's expectation.
      if (group.ranks[place] == rank) continue;
      exchanges.pairs.push_back(ExchangeAt(told, single, group, place));
    }
  }
  if (group.ranks.size() > kMostParts) {
    // Known only where it is equal to all others.
    exchanges.all = ExchangeAt(told, single, group, kMostParts);
    exchanges.all->peer = -1;
  }
  return exchanges;
}

void AddExchangeNeeds(CaptureNeeds* needs) {
  for (const char* argument :
       {"input", "output", "input_split_sizes", "output_split_sizes"}) {
    needs->Calls(kSingle).arguments.insert(argument);
  }
  for (const char* argument : {"input_tensor_list", "output_tensor_list"}) {
    needs->Calls(kLists).arguments.insert(argument);
  }
}

}  // namespace traincheck
