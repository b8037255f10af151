#include "checker/incidents/families.h"

#include <optional>
#include <string_view>

#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace traincheck {
namespace {

constexpr char kOtherProgram[] =
    "The program does something else here than in the reference runs. That is "
    "no error by itself: a changed program does so, too.";
constexpr char kCompareProgram[] =
    "Compare the call site with the reference run's program. If the change is "
    "meant, record a new reference run.";
constexpr char kApart[] =
    "Each rank computes with values of its own from here on, and only one "
    "rank's are saved. Losses of single ranks look as before.";
constexpr char kFindFirst[] =
    "Look at what the ranks did differently before this point: other data are "
    "meant to differ, everything that is averaged is not.";
constexpr char kStands[] =
    "A step runs without an error whatever it changes. The loss may still "
    "fall, through other parameters.";
constexpr char kFindGradient[] =
    "Check that the parameter is in the optimizer, requires a gradient and is "
    "reached by the loss.";

// The first row that fits is a rule's own, so rows with a path stand before the
// general row of their relation.
constexpr Family kFamilies[] = {
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
     "The call works with any value.",
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
     "{call} is called with another argument than in the reference runs: "
     "{seen}",
     kOtherProgram,
     kCompareProgram},
    {"APIOutput",
     "/is",
     "at_most",
     {Rung::kResult},
     "{call} returns more than it was asked for: {seen}",
     "The result is valid, and longer.",
     kCompareProgram},
    {"APIOutput",
     "/to/context",
     "autocast_dtype",
     {Rung::kMode},
     "{call} does not compute in the type that autocast asks for: {seen}",
     "Results of another precision are results.",
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
     "{call} is called another number of times than in the reference runs: "
     "{seen}",
     kOtherProgram,
     kCompareProgram},
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
     "members of a process group make different collectives: {seen}",
     "Each member waits for the others, or takes what belongs to another "
     "call.",
     "Make every rank take the same way through the code around the call."},
    {"CollectiveContract",
     "",
     "",
     {Rung::kCollective, 1},
     "members of a process group give a collective different tensors: "
     "{seen}",
     "Backends do not compare what the members give.",
     "Make type, sizes and roots equal on all ranks."},
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
     "Both are valid tensors.",
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
     "{call} does not do what it did in the reference runs: {seen}",
     kOtherProgram,
     kCompareProgram},
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
     "Any code may write to a parameter.",
     "Look for copies that are put into the model and not taken back: "
     "averaged weights after an evaluation, most often."},
    {"EventContain",
     "",
     "",
     {Rung::kUpdate, 0},
     "an optimizer step does not change what it did in the reference runs: "
     "{seen}",
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
     "the learning rate takes another course than in the reference runs: "
     "{seen}",
     "Any rate is a rate. A wrong one trains too slowly, or not for as long as "
     "was meant.",
     "Compare the scheduler's settings, and how often it is stepped, with the "
     "reference run's. If the change is meant, record a new reference run."},
    {"ReproducedSteps",
     "",
     "",
     {Rung::kTotals},
     "the training leaves the course of the reference run: {seen}",
     "A program that computes something else is a program like another.",
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
     "Fresh moments train, too.",
     "Load the optimizer's state, too."},
    {"SavedEqualsLive",
     "",
     "",
     {Rung::kReplicas, 4},
     "a checkpoint does not hold what was trained: {seen}",
     "The file is valid and can be loaded.",
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

std::string TextAt(const nlohmann::json& parameters, const char* path) {
  const nlohmann::json::json_pointer pointer(path);
  if (!parameters.contains(pointer)) return "";
  const nlohmann::json& value = parameters.at(pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

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

}  // namespace

absl::Span<const Family> Families() { return kFamilies; }

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

std::string HeadlineOf(const Family& family, const std::string& seen,
                       const std::vector<std::string>& apis) {
  const std::string call(apis.empty() ? "a function" : ClassAndMethod(apis[0]));
  return absl::StrReplaceAll(family.headline,
                             {{"{seen}", seen}, {"{call}", call}});
}

}  // namespace traincheck
