#include "invariants/sets/set_json.h"

#include <gtest/gtest.h>

#include "invariants/sets/identity.h"
#include "invariants/sets/invariant_for_testing.h"

namespace traincheck {
namespace {

Invariant Sample() {
  Invariant invariant = NewInvariant(
      "EventContain",
      {{"window",
        {{"kind", "call"}, {"function", {{"name", "a.Net.forward"}}}}},
       {"event",
        {{"kind", "call"},
         {"function", {{"name", "a.Dropout.forward"}}},
         {"binding", "any"}}}},
      {{"all",
        {{{"clause", "constant"},
          {"fact", "call.module_training"},
          {"value", true}}}}});
  invariant.scope = Scope::kExperiment;
  invariant.experiments = {"cnn"};
  invariant.support = 12;
  return invariant;
}

InvariantSet SampleSet() {
  InvariantSet set;
  set.name = "set";
  set.version = 3;
  set.runs = {"run-1"};
  set.created_unix_ns = 1234567890123456789;
  set.invariants = {Sample()};
  return set;
}

// The set's JSON with one change.
std::string With(const std::string& pointer, const nlohmann::json& value) {
  nlohmann::json json = ToJson(SampleSet());
  json[nlohmann::json::json_pointer(pointer)] = value;
  return json.dump();
}

std::string ErrorOf(const std::string& text) {
  const auto set = SetFromJsonUntrusted(text);
  return set.ok() ? "none" : std::string(set.status().message());
}

TEST(InvariantJson, RoundTrip) {
  const std::string text = ToJson(SampleSet()).dump();
  const auto set = SetFromJsonUntrusted(text);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(ToJson(*set).dump(), text);
  EXPECT_EQ(set->created_unix_ns, 1234567890123456789u);
}

TEST(InvariantJson, OriginIsNoContent) {
  const Invariant plain = Sample();
  EXPECT_FALSE(ToJson(plain).contains("origin"));
  Invariant imported = Sample();
  imported.origin = {{"format", "traincheck"}, {"lines", {17}}};
  EXPECT_EQ(IdOf(imported), IdOf(plain));
  const auto again = InvariantFromJson(ToJson(imported));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->origin, imported.origin);
  nlohmann::json bad = ToJson(plain);
  bad["origin"] = "a file";
  EXPECT_EQ(InvariantFromJson(bad).status().message(), "origin: not an object");
}

TEST(InvariantJson, IdIsStable) {
  // Stored sets carry it: a change here breaks them.
  EXPECT_EQ(Sample().id, "f8f3569c18bfed2f");
}

TEST(InvariantJson, IdFollowsContentNotSupport) {
  Invariant invariant = Sample();
  invariant.support = 99;
  invariant.scope = Scope::kGeneral;
  EXPECT_EQ(IdOf(invariant), Sample().id);
  invariant.precondition = Precondition();
  EXPECT_NE(IdOf(invariant), Sample().id);
}

TEST(InvariantJson, TextIsPlainEnglish) {
  EXPECT_EQ(Sample().text,
            "a.Net.forward calls a.Dropout.forward. Holds where the module "
            "called is in training mode.");
}

TEST(InvariantJson, TextIsMadeFromTheRuleWhateverTheFileSays) {
  nlohmann::json forged = ToJson(Sample());
  forged["text"] = "All is well.\n2026-01-01 violation text=forged";
  EXPECT_EQ(InvariantFromJson(forged)->text, Sample().text);
  forged["text"] = 7;
  EXPECT_EQ(InvariantFromJson(forged).status().message(), "text: not a string");
  nlohmann::json odd = ToJson(Sample());
  odd.erase("id");
  odd["parameters"]["window"]["function"]["name"] = "a.\u202eNet\n.forward";
  EXPECT_EQ(
      InvariantFromJson(odd)->text.find("a.\\u{202e}Net\\u{a}.forward calls "),
      0u);
}

TEST(InvariantJson, DeepNestingIsRefusedAndEndsNobody) {
  std::string deep = ToJson(SampleSet()).dump();
  std::string arrays(1'000'000, '[');
  arrays += std::string(arrays.size(), ']');
  const std::string key = "\"parameters\":";
  deep.insert(deep.find(key) + key.size() + 1, "\"x\":" + arrays + ",");
  EXPECT_EQ(ErrorOf(deep), "document: nested deeper than 32");
  EXPECT_EQ(ErrorOf(std::string(1'000'000, '[')),
            "document: nested deeper than 32");
}

TEST(InvariantJson, ErrorsNameThePath) {
  EXPECT_EQ(ErrorOf("{"), "document: not valid JSON");
  EXPECT_EQ(ErrorOf("[]"), "document: not an object");
  EXPECT_EQ(ErrorOf(With("/format", "other")),
            "format: not \"traincheck-invariants\"");
  EXPECT_EQ(ErrorOf(With("/format_version", 2)),
            "format_version: not a version that this build reads");
  EXPECT_EQ(ErrorOf(With("/extra", 1)), "extra: unknown key");
  EXPECT_EQ(ErrorOf(With("/version", -1)), "version: not an unsigned integer");
  EXPECT_EQ(ErrorOf(With("/runs/0", 7)), "runs[0]: not a string");
  EXPECT_EQ(ErrorOf(With("/invariants/0", "x")),
            "invariants[0]: not an object");
  EXPECT_EQ(ErrorOf(With("/invariants/0/relation", "Foo")),
            "invariants[0].relation: \"Foo\" is not a relation of this "
            "version");
  EXPECT_EQ(ErrorOf(With("/invariants/0/scope", "all")),
            "invariants[0].scope: neither \"general\" nor \"experiment\"");
  EXPECT_EQ(ErrorOf(With("/invariants/0/parameters/window/kind", "epoch")),
            "invariants[0].parameters.window.kind: neither \"call\" nor "
            "\"span\"");
  EXPECT_EQ(ErrorOf(With("/invariants/0/parameters/event/function",
                         nlohmann::json::object())),
            "invariants[0].parameters.event.function: neither name, role nor "
            "category");
  EXPECT_EQ(ErrorOf(With("/invariants/0/parameters/event/binding", "held")),
            "invariants[0].parameters.event.binding: does not go with this "
            "kind of window");
  EXPECT_EQ(
      ErrorOf(With("/invariants/0/precondition/all/0/fact", "var.got_grad")),
      "invariants[0].precondition.all: var.got_grad is not a fact that "
      "this rule can read");
}

TEST(InvariantJson, IdMustFitTheContent) {
  EXPECT_EQ(
      ErrorOf(With("/invariants/0/id", "0123456789abcdef")),
      "invariants[0].id: does not fit its content, which has " + Sample().id);
}

TEST(InvariantJson, NoInvariantTwice) {
  nlohmann::json json = ToJson(SampleSet());
  json["invariants"].push_back(json["invariants"][0]);
  EXPECT_EQ(ErrorOf(json.dump()),
            "invariants: " + Sample().id + " is there twice");
}

// "none": such a rule is read.
std::string ErrorOfRule(const std::string& relation,
                        const nlohmann::json& parameters) {
  nlohmann::json json = ToJson(Sample());
  json.erase("id");
  json["relation"] = relation;
  json["parameters"] = parameters;
  json["precondition"] = {{"all", nlohmann::json::array()}};
  const auto read = InvariantFromJson(json);
  return read.ok() ? "none" : std::string(read.status().message());
}

TEST(InvariantJson, ConsistentParametersAreChecked) {
  EXPECT_EQ(ErrorOfRule("Consistent", {{"across", "ranks"},
                                       {"of", "parameter.grad"},
                                       {"point", "post_step"}}),
            "parameters.point: gradients are compared at pre_step only");
}

TEST(InvariantJson, StateChangeParametersAreChecked) {
  const nlohmann::json good = {{"of", "buffer.data"},
                               {"role", "my.Norm.mean"},
                               {"changes", "every"},
                               {"steps", 1},
                               {"after", "first_forward"}};
  const auto error_with = [&](const nlohmann::json& change) {
    nlohmann::json parameters = good;
    parameters.merge_patch(change);
    return ErrorOfRule("StateChange", parameters);
  };
  EXPECT_EQ(error_with(nlohmann::json::object()), "none");
  EXPECT_EQ(error_with({{"role", "mean"}}),
            "parameters.role: neither \"frozen\" nor CLASS.NAME");
  EXPECT_EQ(error_with({{"role", "frozen"}}),
            "parameters.role: only parameters are \"frozen\"");
  EXPECT_EQ(error_with({{"variable", "Net.mean"}}),
            "parameters.variable: unknown key");
  EXPECT_EQ(error_with({{"steps", 65}}), "parameters.steps: not 1 to 64");
  EXPECT_EQ(error_with({{"after", "backward"}}),
            "parameters.after: not \"first_forward\"");
  EXPECT_EQ(error_with({{"of", "parameter.data"}}),
            "parameters.after: only of buffers that change every so many "
            "steps");
  EXPECT_EQ(
      error_with(
          {{"of", "parameter.data"}, {"role", "frozen"}, {"after", nullptr}}),
      "parameters.changes: what is frozen only \"never\"");
}

}  // namespace
}  // namespace traincheck
