#include "invariants/relations/event_contain/contain_spec.h"

#include <algorithm>
#include <utility>

#include "base/json_reader.h"
#include "invariants/facts/fact_value.h"
#include "invariants/rules/fact_needs.h"
#include "invariants/rules/plain_value.h"

namespace traincheck {

namespace {

template <typename Enum>
struct Named {
  Enum value;
  const char* name;
};

constexpr Named<Binding> kBindings[] = {
    {Binding::kAny, "any"},         {Binding::kSelf, "self"},
    {Binding::kWrapped, "wrapped"}, {Binding::kHeld, "held"},
    {Binding::kWrapper, "wrapper"},
};

template <typename Enum, size_t n>
const char* NameOf(const Named<Enum> (&table)[n], Enum value) {
  for (const Named<Enum>& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

// What a rule may ask of states, and the words in which it then says so. One
// table for reading, writing and describing, so that a new kind of state is one
// row.
struct StateRow {
  StateKind kind;
  const char* of;
  const char* is;
  bool span;          // else a call is its window
  const char* some;   // null: it cannot be asked for
  const char* every;  // likewise
};

constexpr StateRow kStates[] = {
    {StateKind::kDataChanged, "parameter.data", "changed", /*span=*/false,
     "at least one of the optimizer's parameters (unless all learning rates "
     "are 0)",
     "every parameter that the optimizer holds (unless its learning rate is "
     "0)"},
    {StateKind::kDataKept, "parameter.data", "kept", /*span=*/true, nullptr,
     "no parameter that the optimizer holds changes outside of its steps"},
    {StateKind::kGradReached, "parameter.grad", "reached", /*span=*/false,
     nullptr,
     "every trainable parameter that the optimizer holds and whose module is "
     "called has had a gradient by the third step"},
    {StateKind::kEndReached, "parameter.grad", "reached_at_ends",
     /*span=*/false, nullptr,
     "every trainable parameter that the optimizer holds in the last submodule "
     "that a module calls has had a gradient by the third step"},
    {StateKind::kGradCleared, "parameter.grad", "cleared", /*span=*/false,
     nullptr,
     "the gradient of every parameter that the optimizer holds becomes None or "
     "zero"},
    {StateKind::kHeld, "parameter", "held", /*span=*/false, nullptr,
     "every parameter of its models that got a gradient is held by an "
     "optimizer"},
    {StateKind::kTrainable, "parameter", "trainable", /*span=*/false,
     "at least one parameter that the optimizer holds requires a gradient",
     nullptr},
    {StateKind::kCurrent, "parameter", "current", /*span=*/false, nullptr,
     "the model still uses all parameters that the optimizer holds, or another "
     "optimizer holds the new ones"},
    {StateKind::kGradNonzero, "parameter.grad", "nonzero", /*span=*/true,
     "at least one parameter that the optimizer holds gets a non-zero gradient",
     nullptr},
    {StateKind::kGradChanged, "parameter.grad", "changed", /*span=*/false,
     "the gradient of at least one parameter changes", nullptr},
};

// Each kind has a row.
const StateRow& RowOf(StateKind kind) {
  return *std::find_if(
      std::begin(kStates), std::end(kStates),
      [kind](const StateRow& row) { return row.kind == kind; });
}

CallWith ReadWith(bool span, JsonReader* parent) {
  const nlohmann::json& json = parent->Object("with");
  if (!json.is_object()) return {};
  JsonReader reader(json, parent->PathOf("with"));
  CallWith with;
  with.argument = reader.String("argument");
  if (with.argument.empty()) reader.Fail("argument", "empty");
  // A span keeps no calls, only when they were: their arguments are gone when
  // it ends.
  if (span) parent->Fail("with", "does not go with this kind of window");
  if (reader.Has("fact")) {
    with.fact = FindFact(reader.String("fact"));
    if (!with.fact || with.fact->of != FactOf::kCall || with.fact->at_end) {
      reader.Fail("fact", "no fact of a call");
    }
  } else {
    with.value = reader.Any("value");
    if (!IsPlain(with.value)) {
      reader.Fail("value", "no number, bool, text or null");
    }
  }
  parent->Adopt(reader.Finish());
  return with;
}

Binding ReadBinding(bool span, JsonReader* reader) {
  const std::string name = reader->String("binding");
  const auto* found =
      std::find_if(std::begin(kBindings), std::end(kBindings),
                   [&name](const Named<Binding>& b) { return name == b.name; });
  if (found == std::end(kBindings)) {
    reader->Fail("binding", "not a binding of this version");
    return Binding::kAny;
  }
  const Binding binding = found->value;
  // A span belongs to an optimizer and a call to its own object, so each has
  // bindings of its own.
  const bool of_span =
      binding == Binding::kHeld || binding == Binding::kWrapper;
  const bool of_call =
      binding == Binding::kSelf || binding == Binding::kWrapped;
  if ((of_span && !span) || (of_call && span)) {
    reader->Fail("binding", "does not go with this kind of window");
  }
  return binding;
}

CallInWindow ReadCallEvent(bool span, JsonReader* reader) {
  CallInWindow event;
  event.function = ReadFunctionMatch(reader);
  event.binding = ReadBinding(span, reader);
  if (reader->Has("with")) event.with = ReadWith(span, reader);
  if (!reader->Has("happens")) return event;
  event.never = true;
  if (reader->String("happens") != "never") {
    reader->Fail("happens", "not \"never\"");
  } else if (IsClear(event.function) && span) {
    reader->Fail("happens", "clearing gradients always may");
  }
  return event;
}

// A fact of each variable at a step. ReadEvent has found the key "fact".
FactInWindow ReadFactEvent(bool span, JsonReader* reader) {
  FactInWindow event;
  const std::string of = reader->String("of");
  event.of_buffers = of == "buffer";
  if (!event.of_buffers && of != "parameter") {
    reader->Fail("of", "neither \"parameter\" nor \"buffer\"");
  }
  event.wanted.fact = ReadFact("fact", reader);
  event.wanted.value = ReadFactValue(event.wanted.fact, reader);
  if (event.wanted.fact && event.wanted.fact->of != FactOf::kVariable) {
    reader->Fail("fact", "no fact of a variable");
  }
  // Facts are read at one moment, the end of a step.
  if (span) reader->Fail("fact", "does not go with this kind of window");
  if (reader->String("which") != "every") {
    reader->Fail("which", "only \"every\" here");
  }
  return event;
}

StateInWindow ReadStateEvent(bool span, JsonReader* reader) {
  const std::string of = reader->String("of");
  const std::string is = reader->String("is");
  const auto* found =
      std::find_if(std::begin(kStates), std::end(kStates),
                   [&](const StateRow& s) { return of == s.of && is == s.is; });
  if (found == std::end(kStates)) {
    reader->Fail("is", "not a change of state of this version");
    return {};
  }
  StateInWindow event{found->kind};
  if (span != found->span) {
    reader->Fail("is", "does not go with this kind of window");
  }
  const std::string which = reader->String("which");
  event.every = which == "every";
  if (which != "some" && which != "every") {
    reader->Fail("which", "neither \"some\" nor \"every\"");
  } else if (event.every && !found->every) {
    reader->Fail("which", "only \"some\" here");
  } else if (!event.every && !found->some) {
    reader->Fail("which", "only \"every\" here");
  }
  return event;
}

void ReadWindow(const nlohmann::json& json, JsonReader* parent,
                ContainSpec* spec) {
  JsonReader reader(json, parent->PathOf("window"));
  const std::string kind = reader.String("kind");
  spec->span = kind == "span";
  if (kind != "span" && kind != "call") {
    reader.Fail("kind", "neither \"call\" nor \"span\"");
  }
  spec->window = ReadFunctionMatch(&reader);
  parent->Adopt(reader.Finish());
}

void ReadEvent(const nlohmann::json& json, JsonReader* parent,
               ContainSpec* spec) {
  JsonReader reader(json, parent->PathOf("event"));
  const std::string kind = reader.String("kind");
  if (kind == "call") {
    spec->event = ReadCallEvent(spec->span, &reader);
  } else if (kind != "state") {
    reader.Fail("kind", "neither \"call\" nor \"state\"");
  } else if (reader.Has("fact")) {
    spec->event = ReadFactEvent(spec->span, &reader);
  } else {
    spec->event = ReadStateEvent(spec->span, &reader);
  }
  parent->Adopt(reader.Finish());
}

nlohmann::json EventJson(const CallInWindow& event) {
  nlohmann::json json = {{"kind", "call"},
                         {"function", ToJson(event.function)},
                         {"binding", NameOf(kBindings, event.binding)}};
  if (event.never) json["happens"] = "never";
  if (event.with.argument.empty()) return json;
  json["with"] = {{"argument", event.with.argument}};
  if (event.with.fact) {
    json["with"]["fact"] = event.with.fact->name;
  } else {
    json["with"]["value"] = event.with.value;
  }
  return json;
}

nlohmann::json EventJson(const StateInWindow& event) {
  const StateRow& row = RowOf(event.kind);
  return {{"kind", "state"},
          {"which", event.every ? "every" : "some"},
          {"of", row.of},
          {"is", row.is}};
}

nlohmann::json EventJson(const FactInWindow& event) {
  return {{"kind", "state"},
          {"which", "every"},
          {"of", event.of_buffers ? "buffer" : "parameter"},
          {"fact", event.wanted.fact->name},
          {"value", FactToJson(event.wanted.value)}};
}

std::string DescribeWith(const CallWith& with) {
  if (with.argument.empty()) return "";
  if (!with.fact) {
    return " with " + with.argument + " = " + PythonText(with.value);
  }
  return " with " + with.argument + " = whether " + with.fact->text;
}

const char* OnWhat(Binding binding) {
  switch (binding) {
    case Binding::kAny:
      return "";
    case Binding::kSelf:
      return " on the same object";
    case Binding::kWrapped:
      return " on the module that it wraps";
    case Binding::kHeld:
      return " on a model whose parameters it holds";
    case Binding::kWrapper:
      return " on the wrapper of the parameters it holds";
  }
  return "";
}

std::string DescribeEvent(const CallInWindow& event) {
  const std::string never = event.never ? "never " : "";
  // Says nothing of a call, because gradients may be cleared by hand.
  if (IsClear(event.function)) {
    return "the optimizer's gradients are " + never + "cleared";
  }
  if (event.function.level == Level::kCategory) {
    return (event.never ? "it never happens that " : "") +
           event.function.DescribeCalled() + DescribeWith(event.with);
  }
  return event.function.Describe() + " is " + never + "called" +
         OnWhat(event.binding) + DescribeWith(event.with);
}

std::string DescribeEvent(const FactInWindow& event) {
  const std::string of = event.of_buffers
                             ? "buffer of the models that it trains"
                             : "parameter that the optimizer holds";
  return "for every " + of + ": " + event.wanted.Expected();
}

std::string DescribeEvent(const StateInWindow& event) {
  const StateRow& row = RowOf(event.kind);
  return event.every ? row.every : row.some;
}

void AddUpdates(CaptureNeeds* needs) {
  needs->State("parameter.data", "pre_step");
  needs->State("parameter.data", "post_step");
}

void AddNeedsOf(const CallInWindow& event, CaptureNeeds* needs) {
  AddCalls(event.function, needs);
  if (!event.with.argument.empty()) {
    PlannedCall& content = needs->Calls(event.function.text);
    content.arguments.insert(event.with.argument);
    // Texts are recorded only where a plan asks for them.
    if (event.with.value.is_string()) content.texts.insert(event.with.argument);
  }
  // A program that sets p.grad to None by hand clears as well, which only
  // gradients show.
  if (IsClear(event.function)) needs->Gradients();
}

void AddNeedsOf(const FactInWindow& event, CaptureNeeds* needs) {
  AddNeeds(*event.wanted.fact, needs);
}

void AddNeedsOf(const StateInWindow& event, CaptureNeeds* needs) {
  // Rules on data need gradients too: whether there was one decides if a change
  // is due, and gradients that went elsewhere are evidence.
  needs->Gradients();
  const bool of_data = event.kind == StateKind::kDataChanged ||
                       event.kind == StateKind::kDataKept;
  if (!of_data) return;
  AddUpdates(needs);
}

using FactNames = std::vector<const char*>;

// What a precondition may ask, known when the window opens: a span's is read
// for its optimizer, a call's for its call.
FactNames FactsOf(const CallInWindow&, bool span) {
  if (span) return {"opt.has_stepped"};
  return {"call.stage", "call.module_training", "call.is_root", "ctx.grad_mode",
          "call.inside_backward"};
}

FactNames FactsOf(const StateInWindow& event, bool) {
  // The parts that judge the other kinds decide when they apply
  // (contain_updates.h and its neighbours).
  if (event.kind != StateKind::kDataChanged || !event.every) return {};
  // A precondition on a gradient would silence the rule where gradients fail.
  // GuardsOf names the rule that reports this case.
  return {"var.role", "var.replica_group", "var.got_grad", "grad.zero",
          "grad.present"};
}

FactNames FactsOf(const FactInWindow& event, bool) {
  if (event.of_buffers) return {"opt.has_stepped", "buffer.written_by_forward"};
  return {"opt.has_stepped", "var.role", "var.replica_group"};
}

}  // namespace

bool IsClear(const FunctionMatch& match) {
  return match.level == Level::kCategory && match.text == "zero_grad";
}

bool IsBackward(const FunctionMatch& match) {
  return match.level == Level::kCategory && match.text == "backward";
}

absl::StatusOr<ContainSpec> ContainSpec::Parse(const nlohmann::json& parameters,
                                               const std::string& path) {
  ContainSpec spec;
  JsonReader reader(parameters, path);
  const nlohmann::json& window = reader.Object("window");
  if (window.is_object()) ReadWindow(window, &reader, &spec);
  const nlohmann::json& event = reader.Object("event");
  if (event.is_object()) ReadEvent(event, &reader, &spec);
  return reader.Finish(std::move(spec));
}

nlohmann::json ContainSpec::ToJson() const {
  return {{"window",
           {{"kind", span ? "span" : "call"},
            {"function", traincheck::ToJson(window)}}},
          {"event",
           std::visit([](const auto& it) { return EventJson(it); }, event)}};
}

std::string ContainSpec::Describe() const {
  const std::string happens =
      std::visit([](const auto& it) { return DescribeEvent(it); }, event);
  if (span) {
    return "Between two consecutive calls of " + window.Describe() + ", " +
           happens + ".";
  }
  const auto* const call = std::get_if<CallInWindow>(&event);
  if (call && window.level != Level::kCategory &&
      call->function.level != Level::kCategory && !IsClear(call->function)) {
    return window.Describe() + (call->never ? " never calls " : " calls ") +
           call->function.Describe() + OnWhat(call->binding) +
           DescribeWith(call->with) + ".";
  }
  const auto* const state = std::get_if<StateInWindow>(&event);
  if (state && state->kind == StateKind::kDataChanged) {
    return window.Describe() + " changes " + happens + ".";
  }
  const char* article = window.level == Level::kCategory ? "a " : "";
  return "During " + (article + window.Describe()) + ", " + happens + ".";
}

void ContainSpec::AddNeeds(CaptureNeeds* needs) const {
  AddCalls(window, needs);
  std::visit([needs](const auto& it) { AddNeedsOf(it, needs); }, event);
  // A span without a backward matters where its step changes something.
  if (span && call() && IsBackward(call()->function)) AddUpdates(needs);
}

// Rules that say how a program is written advise; rules that say what a
// training needs are alerts (docs/decisions.md, "How a program is written is
// advice").
bool ContainSpec::is_structure() const {
  const CallInWindow* made = call();
  if (!made || IsClear(made->function) || IsBackward(made->function)) {
    return false;
  }
  // Calls that each step needs, on what the optimizer trains, are not habits of
  // the program: their absence is an error.
  const bool trains =
      made->binding == Binding::kHeld || made->binding == Binding::kWrapper;
  return !trains && made->with.argument.empty();
}

std::vector<const Fact*> ContainSpec::Facts() const {
  const auto* of_fact = std::get_if<FactInWindow>(&event);
  std::vector<const Fact*> facts;
  for (const char* name : std::visit(
           [this](const auto& it) { return FactsOf(it, span); }, event)) {
    const Fact* fact = FindFact(name);
    // The fact that a rule asks for cannot be a condition of the same rule.
    if (!of_fact || fact != of_fact->wanted.fact) facts.push_back(fact);
  }
  return facts;
}

// Where no gradient flows, a rule on parameters that got one is silent; then
// the one that some gradient of the span is not zero speaks.
std::vector<nlohmann::json> ContainSpec::GuardsOf(const Fact& fact) const {
  if (fact.need != FactNeed::kGradients) return {};
  return {ContainSpec{.span = true,
                      .window = window,
                      .event = StateInWindow{StateKind::kGradNonzero}}
              .ToJson()};
}

}  // namespace traincheck
