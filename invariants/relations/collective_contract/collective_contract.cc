#include "invariants/relations/collective_contract/collective_contract.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/hash.h"
#include "base/json_reader.h"
#include "invariants/relations/collective_contract/collective_splits.h"
#include "invariants/rules/plain_value.h"
#include "invariants/rules/rank_groups.h"
#include "invariants/rules/rank_relation.h"
#include "invariants/rules/tensor_words.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

enum class What { kOperation, kTensors, kRoot, kSplits };

// A row for each thing that the members of a group agree on: its name in a
// rule, what a finding calls the values, and the rule in English.
struct WhatWords {
  What what;
  const char* name;
  const char* compared;
  const char* text;
};

constexpr WhatWords kWhats[] = {
    {What::kOperation, "operation", "collective",
     "The members of a process group call the same collectives in the same "
     "order."},
    {What::kTensors, "tensors", "tensor",
     "The members of a process group give a collective tensors of equal type "
     "and shape."},
    {What::kRoot, "root", "root",
     "The members of a process group name the same source or destination of a "
     "collective."},
    {What::kSplits, "splits", "part",
     "In a collective with split sizes, each rank sends each peer the part "
     "that the peer expects."},
};

// Each value of What has a row.
const WhatWords& WordsOf(What what) {
  return *std::find_if(std::begin(kWhats), std::end(kWhats),
                       [what](const WhatWords& w) { return w.what == what; });
}

// What a collective of torch.distributed asks its members to agree on.
struct Operation {
  const char* name;
  const char* tensor;  // argument; null: none, or each may bring its own
  const char* root;    // argument; null: none
};

constexpr Operation kOperations[] = {
    {"all_gather", "tensor", nullptr},
    {"all_gather_into_tensor", "input_tensor", nullptr},
    {"all_reduce", "tensor", nullptr},
    {"all_to_all_single", "input", nullptr},
    {"broadcast", "tensor", "src"},
    {"broadcast_object_list", nullptr, "src"},
    {"gather", "tensor", "dst"},
    {"gather_object", nullptr, "dst"},
    {"reduce", "tensor", "dst"},
    // Its input is a list of tensors, each of which has the form of the output.
    {"reduce_scatter", "output", nullptr},
    {"reduce_scatter_tensor", "input", nullptr},
    {"scatter", "tensor", "src"},
    {"scatter_object_list", nullptr, "src"},
};

constexpr char kModule[] = "torch.distributed.distributed_c10d.";
// Lengths that the members agree on pairwise, in place of equal shapes.
constexpr const char* kSplits[] = {"input_split_sizes", "output_split_sizes"};

const Operation* FindOperation(const std::string& function) {
  for (const Operation& operation : kOperations) {
    if (function == std::string(kModule) + operation.name) return &operation;
  }
  return nullptr;
}

// What is compared of the collectives of a group.
struct CollectiveSpec {
  What what = What::kOperation;

  static absl::StatusOr<CollectiveSpec> Parse(const nlohmann::json& parameters,
                                              const std::string& path) {
    JsonReader reader(parameters, path);
    const std::string name = reader.String("what");
    CollectiveSpec spec;
    bool found = false;
    for (const WhatWords& words : kWhats) {
      if (name != words.name) continue;
      spec.what = words.what;
      found = true;
    }
    if (!found) {
      reader.Fail("what",
                  "none of \"operation\", \"tensors\", \"root\", \"splits\"");
    }
    return reader.Finish(spec);
  }

  std::string Describe() const { return WordsOf(what).text; }
  RankComparison::Words Words() const {
    // Parts are compared by pairs of ranks, and not by groups.
    return {.what = WordsOf(what).compared,
            .each_window_counts = true,
            .ordinals = what == What::kSplits
                            ? RankComparison::Ordinals::kOther
                            : RankComparison::Ordinals::kProcessGroups};
  }
  static std::vector<const Fact*> Facts() { return {}; }

  void AddNeeds(CaptureNeeds* needs) const {
    if (what == What::kSplits) return AddExchangeNeeds(needs);
    for (const Operation& operation : kOperations) {
      PlannedCall& content =
          needs->Calls(kModule + std::string(operation.name));
      const char* argument =
          what == What::kTensors ? operation.tensor : operation.root;
      if (what == What::kOperation || !argument) continue;
      content.arguments.insert(argument);
      if (what == What::kRoot) continue;
      for (const char* splits : kSplits) content.arguments.insert(splits);
    }
    // These bring nothing that is compared here, and have a place in the order
    // of collectives all the same.
    needs->Calls(kModule + std::string("barrier"));
    needs->Calls(kModule + std::string("all_gather_object"));
    needs->Calls(kModule + std::string("all_to_all"));
  }
};

std::string LastPart(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// What a member brings; nullopt: nothing to agree on. `unknown` says why it is
// not known.
std::optional<std::string> Brought(const ProcessFacts& facts, const Call& call,
                                   What what, std::string* unknown) {
  const std::string& name = call.function->name;
  if (what == What::kOperation) return LastPart(name);
  const Operation* operation = FindOperation(name);
  // Splits are compared by pairs of members (AddExchanges), and a function
  // without a row asks for nothing but its place in the order.
  if (!operation || what == What::kSplits) return std::nullopt;
  const char* argument =
      what == What::kTensors ? operation->tensor : operation->root;
  if (!argument) return std::nullopt;
  const ToldArguments told = ArgumentsOf(call, facts.definitions());
  if (what == What::kTensors) {
    for (const char* splits : kSplits) {
      const CallValue* value = told.Find(splits);
      // With splits the members agree pair by pair, and their tensors may
      // differ in length.
      if (value && !value->Get<NoneValue>()) return std::nullopt;
    }
  }
  const CallValue* value = told.Find(argument);
  const auto* tensor = value ? value->Get<TensorValue>() : nullptr;
  if (what == What::kTensors && tensor) return TensorWords(*tensor);
  const auto plain = value ? PlainValue(*value) : std::nullopt;
  if (what == What::kRoot && plain) return PythonText(*plain);
  *unknown = NotRecordedWords(argument, LastPart(name), facts);
  return std::nullopt;
}

// A group of one agrees with itself, and a group whose definition is missing
// has no members that are known.
bool IsComparable(const CollectiveEvent& event) {
  return event.info && event.info->ranks.size() >= 2 && event.call &&
         event.call->function;
}

// A rule is made for each thing that some collective of the run asked its
// members to agree on. All are general: torch.distributed demands them of every
// program.
class CollectivesSeen : public ProcessObserver {
 public:
  void OnCollective(const ProcessFacts& facts,
                    const CollectiveEvent& event) override {
    if (!IsComparable(event)) return;
    for (const WhatWords& words : kWhats) {
      std::string unknown;
      if (Brought(facts, *event.call, words.what, &unknown)) {
        seen_.insert(words.what);
      }
    }
    // Parts are not what one member brings to the group, so Brought does not
    // know them.
    if (ExchangesOf(*event.call, facts.definitions(), *event.info,
                    facts.rank().value_or(-1))) {
      seen_.insert(What::kSplits);
    }
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const What what : seen_) {
      out->Add({{{"what", WordsOf(what).name}}, Scope::kGeneral, {}});
    }
  }

 private:
  std::set<What> seen_;
};

class CollectivesOfProcess : public ProcessObserver {
 public:
  explicit CollectivesOfProcess(RankRules<CollectiveSpec>* judged)
      : judged_(judged) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    groups_.OnDefinition(type);
  }
  void OnCollective(const ProcessFacts& facts,
                    const CollectiveEvent& event) override {
    if (!facts.rank() || !IsComparable(event)) return;
    const SortedGroups::Group* group = groups_.Of(facts, event.group);
    if (!group) return;
    RankWindow window;
    window.ranks = *group->ranks;
    window.ordinal = group->ordinal;
    // The group's own number of the collective: members are aligned by it, and
    // never by time.
    window.index = event.sequence;
    window.step = facts.clock().known_step();
    for (const auto& rule : judged_->rules) {
      if (rule.spec.what == What::kSplits) {
        AddExchanges(facts, event, rule.index, window);
      } else {
        Add(facts, event, rule, &window);
      }
    }
  }

 private:
  // One window for all rules, since a copy of its ranks for each would be most
  // of the cost. It is left without values.
  void Add(const ProcessFacts& facts, const CollectiveEvent& event,
           const SpecRule<CollectiveSpec>& rule, RankWindow* window) {
    const What what = rule.spec.what;
    const auto brought = Brought(facts, *event.call, what, &window->unknown);
    if (!brought && window->unknown.empty()) return;  // nothing to agree on
    // A window without a value is added as well if `unknown` says why: it tells
    // the comparison that this member did make the collective.
    if (brought) {
      window->values.push_back(
          ValueOf(facts, *event.call, WordsOf(what).compared, *brought));
    }
    judged_->comparison.Add(facts, rule.index, *window);
    window->values.clear();
    window->unknown.clear();
  }

  static RankValue ValueOf(const ProcessFacts& facts, const Call& call,
                           const std::string& name, const std::string& shown) {
    const std::string site = facts.definitions().Site(call.site);
    // The line is shown and not compared: members may call one collective from
    // different lines.
    return {.name = name,
            .digest = StableHash(shown),
            .shown = shown + " at " + site,
            .writer = {call.function_id, call.site}};
  }

  // A window for each pair of members: what one sends is what the other
  // expects; and one of the group for what pairs cannot know. It is the group's
  // otherwise.
  void AddExchanges(const ProcessFacts& facts, const CollectiveEvent& event,
                    size_t rule, RankWindow window) {
    const int32_t rank = *facts.rank();
    const auto exchanges =
        ExchangesOf(*event.call, facts.definitions(), *event.info, rank);
    if (!exchanges) return;
    const std::string me = std::to_string(rank);
    if (exchanges->all) {
      AddParts(facts, *event.call, rule,
               {*exchanges->all, "part to each other rank",
                "part from each other rank"},
               &window);
    }
    // Two members may belong to several groups, each of which counts its own
    // collectives. The ordinal keeps their windows apart.
    window.ordinal = static_cast<uint32_t>(StableHash(
        RankWords(window.ranks) + "#" + std::to_string(window.ordinal)));
    for (const Exchange& exchange : exchanges->pairs) {
      window.ranks = {std::min(rank, exchange.peer),
                      std::max(rank, exchange.peer)};
      // Both members give a part the same name, so that what one sends meets
      // what the other expects.
      const std::string peer = std::to_string(exchange.peer);
      AddParts(facts, *event.call, rule,
               {exchange, "part from rank " + me + " to rank " + peer,
                "part from rank " + peer + " to rank " + me},
               &window);
    }
  }

  struct NamedParts {
    Exchange exchange;
    std::string sent;
    std::string expected;
  };

  // `window` without the parts; it is left so.
  void AddParts(const ProcessFacts& facts, const Call& call, size_t rule,
                const NamedParts& parts, RankWindow* window) {
    const Exchange& exchange = parts.exchange;
    if (exchange.sent.empty() || exchange.expected.empty()) {
      window->unknown =
          NotRecordedWords("a part", LastPart(call.function->name), facts);
    } else {
      window->values = {
          ValueOf(facts, call, parts.sent, exchange.sent),
          ValueOf(facts, call, parts.expected, exchange.expected)};
    }
    judged_->comparison.Add(facts, rule, *window);
    window->values.clear();
    window->unknown.clear();
  }

  RankRules<CollectiveSpec>* const judged_;
  SortedGroups groups_;
};

}  // namespace

const Relation* CollectiveContract() {
  static const auto* const kRelation =
      new RankRelation<CollectiveSpec, CollectivesOfProcess>(
          "CollectiveContract", NewSeenGenerator<CollectivesSeen>);
  return kRelation;
}

}  // namespace traincheck
