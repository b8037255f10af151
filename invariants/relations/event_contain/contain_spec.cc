#include "invariants/relations/event_contain/contain_spec.h"

#include <algorithm>

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

struct StateWords {
  StateKind kind;
  const char* of;
  const char* is;
};

constexpr StateWords kStates[] = {
    {StateKind::kDataChanged, "parameter.data", "changed"},
    {StateKind::kDataKept, "parameter.data", "kept"},
    {StateKind::kGradCleared, "parameter.grad", "cleared"},
    {StateKind::kHeld, "parameter", "held"},
    {StateKind::kGradNonzero, "parameter.grad", "nonzero"},
    {StateKind::kGradChanged, "parameter.grad", "changed"},
};

void ReadWith(JsonReader* parent, ContainSpec* spec) {
  if (!parent->Has("with")) return;
  const nlohmann::json& json = parent->Object("with");
  if (!json.is_object()) return;
  JsonReader reader(json, parent->PathOf("with"));
  spec->with.argument = reader.String("argument");
  if (spec->with.argument.empty()) reader.Fail("argument", "empty");
  if (spec->span) parent->Fail("with", "does not go with this kind of window");
  if (reader.Has("fact")) {
    spec->with.fact = FindFact(reader.String("fact"));
    const Fact* fact = spec->with.fact;
    if (!fact || fact->of != FactOf::kCall || fact->at_end)
      reader.Fail("fact", "no fact of a call");
  } else {
    spec->with.value = reader.Any("value");
    if (!IsPlain(spec->with.value)) {
      reader.Fail("value", "no number, bool, text or null");
    }
  }
  parent->Adopt(reader.Finish());
}

void ReadCallEvent(JsonReader* reader, ContainSpec* spec) {
  spec->event = ReadFunctionMatch(reader);
  const std::string binding = reader->String("binding");
  const auto* found = std::find_if(
      std::begin(kBindings), std::end(kBindings),
      [&binding](const Named<Binding>& b) { return binding == b.name; });
  if (found == std::end(kBindings)) {
    reader->Fail("binding", "not a binding of this version");
    return;
  }
  spec->binding = found->value;
  const bool of_span =
      spec->binding == Binding::kHeld || spec->binding == Binding::kWrapper;
  const bool of_call =
      spec->binding == Binding::kSelf || spec->binding == Binding::kWrapped;
  if ((of_span && !spec->span) || (of_call && spec->span)) {
    reader->Fail("binding", "does not go with this kind of window");
  }
  ReadWith(reader, spec);
  if (!reader->Has("happens")) return;
  spec->never = true;
  if (reader->String("happens") != "never") {
    reader->Fail("happens", "not \"never\"");
  } else if (IsClear(spec->event) && spec->span) {
    reader->Fail("happens", "clearing gradients always may");
  }
}

void ReadFactEvent(const std::string& of, JsonReader* reader,
                   ContainSpec* spec) {
  spec->state = StateKind::kFact;
  spec->every = true;
  spec->of_buffers = of == "buffer";
  if (!spec->of_buffers && of != "parameter") {
    reader->Fail("of", "neither \"parameter\" nor \"buffer\"");
  }
  spec->wanted.fact = ReadFact("fact", reader);
  spec->wanted.value = ReadFactValue(spec->wanted.fact, reader);
  if (spec->wanted.fact && spec->wanted.fact->of != FactOf::kVariable) {
    reader->Fail("fact", "no fact of a variable");
  }
  if (spec->span) {
    reader->Fail("fact", "does not go with this kind of window");
  }
  if (reader->String("which") != "every") {
    reader->Fail("which", "only \"every\" here");
  }
}

void ReadStateEvent(JsonReader* reader, ContainSpec* spec) {
  const std::string of = reader->String("of");
  if (reader->Has("fact")) return ReadFactEvent(of, reader, spec);
  const std::string is = reader->String("is");
  const auto* found = std::find_if(
      std::begin(kStates), std::end(kStates),
      [&](const StateWords& s) { return of == s.of && is == s.is; });
  if (found == std::end(kStates)) {
    reader->Fail("is", "not a change of state of this version");
    return;
  }
  spec->state = found->kind;
  const bool of_span = spec->state == StateKind::kGradNonzero ||
                       spec->state == StateKind::kDataKept;
  if (spec->span != of_span) {
    reader->Fail("is", "does not go with this kind of window");
  }
  const std::string which = reader->String("which");
  spec->every = which == "every";
  const bool only_some = spec->state == StateKind::kGradNonzero ||
                         spec->state == StateKind::kGradChanged;
  if (which != "some" && which != "every") {
    reader->Fail("which", "neither \"some\" nor \"every\"");
  } else if (spec->every && only_some) {
    reader->Fail("which", "only \"some\" here");
  } else if (!spec->every && !only_some &&
             spec->state != StateKind::kDataChanged) {
    reader->Fail("which", "only \"every\" here");
  }
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
  spec->is_call = kind == "call";
  if (spec->is_call) {
    ReadCallEvent(&reader, spec);
  } else if (kind == "state") {
    ReadStateEvent(&reader, spec);
  } else {
    reader.Fail("kind", "neither \"call\" nor \"state\"");
  }
  parent->Adopt(reader.Finish());
}

std::string DescribeWith(const CallWith& with) {
  if (with.argument.empty()) return "";
  if (!with.fact) {
    return " with " + with.argument + " = " + PythonText(with.value);
  }
  return " with " + with.argument + " = whether " + with.fact->text;
}

std::string DescribeCallEvent(const ContainSpec& spec) {
  // By a call, or by hand.
  if (IsClear(spec.event)) return "the gradients it holds are cleared";
  if (spec.event.level == Level::kCategory) return spec.event.DescribeCalled();
  const std::string event = spec.event.Describe();
  switch (spec.binding) {
    case Binding::kAny:
      return event + " is called";
    case Binding::kSelf:
      return event + " is called on the same object";
    case Binding::kWrapped:
      return event + " is called on the module that it wraps";
    case Binding::kHeld:
      return event + " is called on a model whose parameters it holds";
    case Binding::kWrapper:
      return event + " is called on the wrapper of the parameters it holds";
  }
  return "";
}

std::string DescribeFactEvent(const ContainSpec& spec) {
  const std::string of = spec.of_buffers ? "buffer of the models that it trains"
                                         : "parameter that the optimizer holds";
  const WantedFact& wanted = spec.wanted;
  if (wanted.value == FactValue(false)) {
    return "for no " + of + ": " + wanted.fact->text;
  }
  return "for every " + of + ": " + Describe(*wanted.fact, wanted.value);
}

std::string DescribeStateEvent(const ContainSpec& spec) {
  switch (spec.state) {
    case StateKind::kDataChanged:
      return spec.every
                 ? "every parameter that the optimizer holds changes, unless "
                   "its learning rate is 0"
                 : "at least one parameter that the optimizer holds changes, "
                   "unless its learning rates are 0";
    case StateKind::kGradNonzero:
      return "at least one parameter that the optimizer holds gets a "
             "non-zero gradient";
    case StateKind::kGradChanged:
      return "the gradient of at least one parameter changes";
    case StateKind::kDataKept:
      return "no parameter that the optimizer holds changes outside of its "
             "steps";
    case StateKind::kGradCleared:
      return "the gradient of every parameter that the optimizer holds becomes "
             "None or zero";
    case StateKind::kHeld:
      return "every parameter of its models that got a gradient is held by an "
             "optimizer";
    case StateKind::kFact:
      return DescribeFactEvent(spec);
  }
  return "";
}

}  // namespace

bool IsClear(const FunctionMatch& match) {
  return match.level == Level::kCategory && match.text == "zero_grad";
}

nlohmann::json ContainSpec::ToJson() const {
  nlohmann::json event_json;
  if (is_call) {
    event_json = {{"kind", "call"},
                  {"function", traincheck::ToJson(event)},
                  {"binding", NameOf(kBindings, binding)}};
    if (never) event_json["happens"] = "never";
    if (!with.argument.empty()) {
      event_json["with"] = {{"argument", with.argument}};
      if (with.fact) {
        event_json["with"]["fact"] = with.fact->name;
      } else {
        event_json["with"]["value"] = with.value;
      }
    }
  } else {
    event_json = {{"kind", "state"}, {"which", every ? "every" : "some"}};
    if (state == StateKind::kFact) {
      event_json["of"] = of_buffers ? "buffer" : "parameter";
      event_json["fact"] = wanted.fact->name;
      event_json["value"] = FactToJson(wanted.value);
    }
    for (const StateWords& words : kStates) {
      if (words.kind != state) continue;
      event_json["of"] = words.of;
      event_json["is"] = words.is;
    }
  }
  return {{"window",
           {{"kind", span ? "span" : "call"},
            {"function", traincheck::ToJson(window)}}},
          {"event", std::move(event_json)}};
}

std::string ContainSpec::Describe() const {
  std::string event = is_call ? DescribeCallEvent(*this) + DescribeWith(with)
                              : DescribeStateEvent(*this);
  if (never) event = "it never happens that " + event;
  if (span) {
    return "Between one step of an optimizer (" + window.Describe() +
           ") and the end of its next, " + event + ".";
  }
  const char* article = window.level == Level::kCategory ? "a " : "";
  return "During " + (article + window.Describe()) + ", " + event + ".";
}

absl::StatusOr<ContainSpec> ContainSpecFromJson(const nlohmann::json& json,
                                                const std::string& path) {
  ContainSpec spec;
  JsonReader reader(json, path);
  const nlohmann::json& window = reader.Object("window");
  if (window.is_object()) ReadWindow(window, &reader, &spec);
  const nlohmann::json& event = reader.Object("event");
  if (event.is_object()) ReadEvent(event, &reader, &spec);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  return spec;
}

void AddContainNeeds(const ContainSpec& spec, CaptureNeeds* needs) {
  AddCalls(spec.window, needs);
  if (spec.is_call) {
    AddCalls(spec.event, needs);
    if (!spec.with.argument.empty()) {
      PlannedCall& content = needs->Calls(spec.event.text);
      content.arguments.insert(spec.with.argument);
      if (spec.with.value.is_string()) {
        content.texts.insert(spec.with.argument);
      }
    }
    // Who sets p.grad = None by hand clears as well.
    if (IsClear(spec.event)) needs->Gradients();
    return;
  }
  if (spec.state == StateKind::kFact) return AddNeeds(*spec.wanted.fact, needs);
  // For those of data, who got a gradient in vain is evidence.
  needs->Gradients();
  const bool of_data = spec.state == StateKind::kDataChanged ||
                       spec.state == StateKind::kDataKept;
  if (!of_data) return;
  needs->State("parameter.data", "pre_step");
  needs->State("parameter.data", "post_step");
}

std::vector<const Fact*> ContainFacts(const ContainSpec& spec) {
  std::vector<const char*> names;
  if (spec.is_call && !spec.span) {
    names = {"call.stage", "call.module_training", "call.is_root",
             "ctx.grad_mode", "call.inside_backward"};
  } else if (spec.is_call) {
    names = {"opt.has_stepped"};
  } else if (spec.state == StateKind::kDataChanged && spec.every) {
    // That a gradient is there is itself guarded by the rule that one of the
    // span's gradients is not zero.
    names = {"var.role", "var.replica_group", "var.got_grad", "grad.zero",
             "grad.present"};
  } else if (spec.state == StateKind::kFact && spec.of_buffers) {
    names = {"opt.has_stepped", "buffer.written_by_forward"};
  } else if (spec.state == StateKind::kFact) {
    names = {"opt.has_stepped", "var.role", "var.replica_group"};
  }
  std::vector<const Fact*> facts;
  for (const char* name : names) {
    const Fact* fact = FindFact(name);
    if (fact != spec.wanted.fact) facts.push_back(fact);
  }
  return facts;
}

}  // namespace traincheck
