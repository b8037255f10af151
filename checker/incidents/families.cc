#include "checker/incidents/families.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace traincheck {
namespace {

// Texts that several families share. The first two are for rules on how a
// program is written: people may break these on purpose.
constexpr char kOtherProgram[] =
    "The program behaves differently from the reference runs. That is not an "
    "error by itself: an intended change looks the same.";
constexpr char kCompareProgram[] =
    "Compare the call site with the reference run's program. If the change is "
    "meant, record a new reference run.";
// The consequence of replicas that are not equal any more.
constexpr char kApart[] =
    "Each rank computes with values of its own from here on, and only one "
    "rank's are saved. Losses of single ranks look as before.";
constexpr char kFindFirst[] =
    "Look at what the ranks did differently before this point: other data are "
    "meant to differ, everything that is averaged is not.";
// The consequence of parameters that do not move as they should.
constexpr char kStands[] =
    "A step runs without an error whatever it changes. The loss may still "
    "fall, through other parameters.";
constexpr char kFindGradient[] =
    "Check that the parameter is in the optimizer, requires a gradient and is "
    "reached by the loss.";

// The first row that fits is a rule's own, so rows with a path stand before the
// general row of their relation.
constexpr Family kFamilies[] = {
    // The finding itself says what is wrong: a fact of the call is not what it
    // should be.
    {"APIArg",
     "/is",
     "fact",
     {Rung::kCall},
     "{seen}",
     "The call runs without an error in this state, too.",
     "Find what has changed the state before this call."},
    {"APIArg",
     "/across",
     "workers",
     {Rung::kMode},
     "workers of a loader draw equal random numbers: {seen}",
     "Each worker gives valid batches; only together they are less varied "
     "than they look.",
     "Seed each worker with torch.initial_seed() in worker_init_fn."},
    {"APIArg",
     "/is",
     "distinct",
     {Rung::kData},
     "{call} is given the same value again: {seen}",
     "The function accepts the repeated value, so no error is raised.",
     kCompareProgram},
    {"APIArg",
     "/across",
     "ranks",
     {Rung::kCall},
     "ranks call {call} with different arguments: {seen}",
     "Each rank's call works by itself.",
     kFindFirst},
    {"APIArg",
     "/is",
     "usage",
     {Rung::kCall},
     "{call} is not called as in the reference runs: {seen}",
     "A function takes many arguments without an error; what is trained "
     "depends on them.",
     "Compare the call with the reference run's. A setting that was changed on "
     "purpose is not an error: learn from a run that has it."},
    {"APIArg",
     "",
     "",
     {Rung::kCall},
     "{call} gets other arguments than in the reference runs: {seen}",
     kOtherProgram,
     kCompareProgram},
    {"APIOutput",
     "/is",
     "at_most",
     {Rung::kResult},
     "{call} returns more than it was asked for: {seen}",
     "A longer result is valid output and raises no error.",
     kCompareProgram},
    {"APIOutput",
     "/to/context",
     "autocast_dtype",
     {Rung::kMode},
     "{call} does not compute in the type that autocast asks for: {seen}",
     "Computation in another precision raises no error; it is only less exact "
     "or slower.",
     "Call the layer within the autocast region."},
    {"APIOutput",
     "",
     "",
     {Rung::kResult},
     "{call} returns something else than in the reference runs: {seen}",
     kOtherProgram,
     kCompareProgram},
    {"APISequence",
     "",
     "",
     {Rung::kCall},
     "calls come in another order than in the reference runs: {seen}",
     kOtherProgram,
     kCompareProgram},
    {"CallCount",
     "",
     "",
     {Rung::kCall},
     "{call} is not called as often as in the reference runs: {seen}",
     kOtherProgram,
     kCompareProgram},
    // The second number of a place is its moment, by which rules of one rung
    // are ordered: that ranks are in different calls explains that a call does
    // not come back.
    {"CallReturns",
     "",
     "",
     {Rung::kCollective, 2},
     "a call that waits for others does not come back: {seen}",
     "A call that waits raises nothing while it waits.",
     "Look at the ranks that are elsewhere, or have not begun the call."},
    {"CollectiveContract",
     "/what",
     "operation",
     {Rung::kCollective, 0},
     "ranks of a process group call different collectives: {seen}",
     "Each member waits for the others, or takes what belongs to another "
     "call.",
     "Make every rank take the same way through the code around the call."},
    {"CollectiveContract",
     "",
     "",
     {Rung::kCollective, 1},
     "ranks of a process group give a collective different tensors: {seen}",
     "Backends do not compare what the members give.",
     "Make type, sizes and roots equal on all ranks."},
    // On the rung of replicas the moments follow a step: what a forward begins
    // with (0), what the optimizer's step begins with (1), what it leaves
    // behind (2, 3), what a checkpoint holds (4).
    {"Consistent",
     "/of",
     "inputs",
     {Rung::kData},
     "ranks train on the same samples: {seen}",
     "Equal gradients average to themselves.",
     "Give each rank its part: DistributedSampler, with set_epoch."},
    {"Consistent",
     "/of",
     "optimizer.lr",
     {Rung::kSetup},
     "ranks step with different learning rates: {seen}",
     kApart,
     kFindFirst},
    {"Consistent",
     "/of",
     "parameter.grad",
     {Rung::kGradient, 0},
     "replicas step with different gradients: {seen}",
     kApart,
     "Check that every forward goes through the wrapper, and that whatever is "
     "reduced by hand is reduced on all ranks."},
    {"Consistent",
     "/of",
     "return",
     {Rung::kGradient, 1},
     "{call} returns different values on the ranks: {seen}",
     kApart,
     kFindFirst},
    {"Consistent",
     "/across",
     "variables",
     {Rung::kReplicas, 0},
     "two variables that were equal are not any more: {seen}",
     "Both are valid tensors, and nothing compares them.",
     "Check that ties are made again after a load, a copy or a move."},
    {"Consistent",
     "/of",
     "optimizer_state.data",
     {Rung::kReplicas, 3},
     "replicas hold different optimizer state: {seen}",
     kApart,
     kFindFirst},
    {"Consistent",
     "/of",
     "buffer.data",
     {Rung::kReplicas, 0},
     "replicas hold different buffers: {seen}",
     kApart,
     kFindFirst},
    {"Consistent",
     "/point",
     "forward_begin",
     {Rung::kReplicas, 0},
     "replicas begin a forward with different parameters: {seen}",
     kApart,
     kFindFirst},
    {"Consistent",
     "/point",
     "pre_step",
     {Rung::kReplicas, 1},
     "replicas begin a step with different parameters: {seen}",
     kApart,
     kFindFirst},
    {"Consistent",
     "",
     "",
     {Rung::kReplicas, 2},
     "replicas hold different parameters: {seen}",
     kApart,
     kFindFirst},
    {"DeclaredTotal",
     "",
     "",
     {Rung::kTotals},
     "another number of steps was made than was declared: {seen}",
     "A schedule does not know how long the training is.",
     "Give the schedule the number of optimizer steps, not of batches."},
    // Calls that a step needs: what goes wrong without them can be said.
    {"EventContain",
     "/event/function/category",
     "zero_grad",
     {Rung::kCall},
     "gradients are not cleared between two steps: {seen}",
     "Each step uses the sum of all gradients since the last clearing.",
     "Call optimizer.zero_grad() once a step."},
    {"EventContain",
     "/event/function/category",
     "backward",
     {Rung::kCall},
     "an optimizer steps without a backward: {seen}",
     "The step applies old gradients once more, or none.",
     "Call loss.backward() before each step."},
    // Other calls are the program's own. Windows of the kind "span" lie between
    // two calls, all others within one.
    {"EventContain",
     "/event/kind",
     "call",
     {Rung::kCall},
     "a call that the reference runs make is left out: {seen}",
     kOtherProgram,
     kCompareProgram,
     "span"},
    {"EventContain",
     "/event/kind",
     "call",
     {Rung::kCall},
     "{call} does not work as in the reference runs: {seen}",
     kOtherProgram,
     kCompareProgram},
    // What optimizers hold, and what of it gets gradients and changes.
    {"EventContain",
     "/event/is",
     "trainable",
     {Rung::kSetup, 0},
     "an optimizer holds frozen parameters only: {seen}",
     kStands,
     kFindGradient},
    {"EventContain",
     "/event/is",
     "current",
     {Rung::kSetup, 1},
     "an optimizer holds parameters that the model has replaced: {seen}",
     kStands,
     "Construct the optimizer after the last change of the model."},
    {"EventContain",
     "/event/is",
     "held",
     {Rung::kSetup, 2},
     "parameters that get gradients are in no optimizer: {seen}",
     kStands,
     "Give them to the optimizer, or freeze them."},
    {"EventContain",
     "/event/of",
     "parameter.grad",
     {Rung::kGradient, 0},
     "gradients are missing: {seen}",
     kStands,
     kFindGradient},
    {"EventContain",
     "/event/is",
     "kept",
     {Rung::kUpdate, 0},
     "parameters change outside of optimizer steps: {seen}",
     "Any code may write to a parameter, and a write raises no error.",
     "Look for copies that are put into the model and not taken back: "
     "averaged weights after an evaluation, most often."},
    {"EventContain",
     "",
     "",
     {Rung::kUpdate, 0},
     "a step does not change what it changed in the reference runs: {seen}",
     kStands,
     kFindGradient},
    {"OptimizerProgress",
     "",
     "",
     {Rung::kCall},
     "backwards run and no optimizer steps: {seen}",
     "Gradients pile up without an error.",
     "Call optimizer.step()."},
    {"RateSchedule",
     "",
     "",
     {Rung::kUpdate},
     "the learning rate is not that of the reference runs: {seen}",
     "Every learning rate is accepted. A wrong one only makes training slower, "
     "unstable or too short.",
     "Compare the scheduler's settings, and how often it is stepped, with the "
     "reference run's. If the change is meant, record a new reference run."},
    {"ReproducedSteps",
     "",
     "",
     {Rung::kTotals},
     "{seen}",
     "Nothing compares this run with the reference, so a different computation "
     "raises no error.",
     "If nothing was changed on purpose, compare the two runs (traincheckctl "
     "compare). Another version of torch or of a library may round otherwise. "
     "If the change is meant, record a new reference run."},
    {"SavedEqualsLive",
     "/what",
     "loaded",
     {Rung::kSetup},
     "a loaded checkpoint is not what the training goes on with: {seen}",
     "What was not taken over keeps its initial values.",
     "Load with strict=True, and after everything that initialises."},
    {"SavedEqualsLive",
     "/what",
     "resumed",
     {Rung::kSetup},
     "the training goes on without its optimizer's state: {seen}",
     "The optimizer starts with empty moments and raises no error; the loss "
     "rises for a while.",
     "Load the optimizer's state, too."},
    {"SavedEqualsLive",
     "",
     "",
     {Rung::kReplicas, 4},
     "a checkpoint does not hold what was trained: {seen}",
     "The file can be loaded without an error; what it holds shows in an "
     "evaluation at the earliest.",
     "Save the model that the optimizer steps, after its step."},
    {"StateChange",
     "",
     "",
     {Rung::kUpdate, 1},
     "a variable does not do what it did in the reference runs: {seen}",
     "No call fails because a variable stands still, or moves.",
     "Check what the optimizer holds, what is frozen, and who writes to it."},
    // Rules of imported files say what calls and variables did.
    {"", "", "", {Rung::kCall}, "{seen}", kOtherProgram, kCompareProgram}};

// Rules of files have any parameters: a path that is not there, or leads to
// something else than a text, fits no row.
std::string TextAt(const nlohmann::json& parameters, const char* path) {
  const nlohmann::json::json_pointer pointer(path);
  if (!parameters.contains(pointer)) return "";
  const nlohmann::json& value = parameters.at(pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

// The conditions of a row, the cheapest first. The last row has none, so that
// every rule is of some family.
bool IsOf(const Rule& rule, const Family& family) {
  if (*family.relation == '\0') return true;
  if (family.relation != std::string_view(rule.relation_name())) return false;
  if (*family.window != '\0' &&
      TextAt(rule.parameters(), "/window/kind") != family.window) {
    return false;
  }
  return *family.path == '\0' ||
         TextAt(rule.parameters(), family.path) == family.value;
}

// "Adam.step" of "torch.optim.adam.Adam.step".
std::string_view ClassAndMethod(std::string_view api) {
  const size_t method = api.rfind('.');
  if (method == std::string_view::npos || method == 0) return api;
  const size_t before = api.rfind('.', method - 1);
  return before == std::string_view::npos ? api : api.substr(before + 1);
}

// Its first clauses, as many as fit.
std::string Cut(std::string_view text, size_t room) {
  if (text.size() <= room) return std::string(text);
  constexpr std::string_view kMore = " ...";
  const std::string_view head = text.substr(0, room - kMore.size() + 1);
  size_t end = 0;
  for (const std::string_view mark : {"; ", ", ", ": ", " ("}) {
    const size_t at = head.rfind(mark);
    if (at != std::string_view::npos) end = std::max(end, at);
  }
  // A clause that is very short says nothing.
  if (end < room / 3) end = head.rfind(' ');
  if (end == std::string_view::npos || end == 0) {
    end = head.size() - 1;
    // Not within a character of several bytes.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;
    }
  }
  return std::string(text.substr(0, end)) + std::string(kMore);
}

}  // namespace

absl::Span<const Family> Families() { return kFamilies; }

// In the order of the table, whose rows go from the special to the general.
const Family& FamilyOf(const Rule& rule) {
  for (const Family& family : Families()) {
    if (IsOf(rule, family)) return family;
  }
  return Families().back();
}

Place PlaceOf(const Rule& rule) {
  // A fact says more than the relation does: "is never ..." of a setting and of
  // an update are the same kind of rule on different rungs.
  for (const char* path : {"/fact", "/event/fact"}) {
    const auto rung = RungOfFact(TextAt(rule.parameters(), path));
    if (rung) return {*rung};
  }
  Place place = FamilyOf(rule).place;
  place.structure = rule.is_structure();
  return place;
}

// A headline has to fit into one line of a terminal. The words of the family
// are kept whole; what was seen is cut, or left out with its colon.
std::string HeadlineOf(const Family& family, const std::string& seen,
                       const std::vector<std::string>& apis) {
  constexpr size_t kMostOfCall = 40;
  // Less of what was seen would only puzzle.
  constexpr size_t kLeastOfSeen = 16;
  constexpr std::string_view kSeen = "{seen}";
  const std::string call =
      Cut(apis.empty() ? "a function" : ClassAndMethod(apis[0]), kMostOfCall);
  std::string headline =
      absl::StrReplaceAll(family.headline, {{"{call}", call}});
  const size_t at = headline.rfind(kSeen);
  if (at == std::string::npos) return headline;
  const size_t others = headline.size() - kSeen.size();
  if (others + std::min(seen.size(), kLeastOfSeen) > kMostOfHeadline) {
    // Rows with words of their own have what was seen behind a colon; the
    // clause in front of it stands alone.
    return headline.substr(0, headline.rfind(": ", at));
  }
  return headline.replace(at, kSeen.size(),
                          Cut(seen, kMostOfHeadline - others));
}

}  // namespace traincheck
