#include "checker/incidents/incidents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace traincheck {
namespace {

using Parts = std::vector<IncidentPart>;

IncidentPart Part(const std::string& id, Rung rung, int64_t first,
                  int64_t last) {
  IncidentPart part;
  part.id = id;
  part.first_step = first;
  part.last_step = last;
  part.ranks = {0};
  part.place.rung = rung;
  return part;
}

IncidentPart On(std::vector<std::string> variables, IncidentPart part) {
  part.variables = std::move(variables);
  return part;
}

IncidentPart About(std::vector<std::string> subjects, IncidentPart part) {
  part.subjects = std::move(subjects);
  return part;
}

IncidentPart Advice(IncidentPart part) {
  part.advice = true;
  return part;
}

IncidentPart Structure(IncidentPart part) {
  part.place.structure = true;
  return part;
}

IncidentPart OnRanks(std::vector<int32_t> ranks, IncidentPart part) {
  part.ranks = std::move(ranks);
  return part;
}

// "lead<-cause" of the violation with this id; "lead<-" where no cause is
// known.
std::string RoleOf(const std::string& id, const Parts& parts) {
  const std::vector<IncidentRole> roles = FindIncidents(parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].id != id) continue;
    const std::optional<size_t> cause = roles[i].cause;
    return parts[roles[i].lead].id + "<-" + (cause ? parts[*cause].id : "");
  }
  return "";
}

size_t CountIncidents(const Parts& parts) {
  size_t count = 0;
  const std::vector<IncidentRole> roles = FindIncidents(parts);
  for (size_t i = 0; i < roles.size(); ++i) count += roles[i].lead == i;
  return count;
}

TEST(Incidents, NoneOfNoViolations) { EXPECT_TRUE(FindIncidents({}).empty()); }

TEST(Incidents, OneViolationLeadsItself) {
  EXPECT_EQ(RoleOf("a", {Part("a", Rung::kUpdate, 3, 9)}), "a<-a");
}

// Whatever is on a rung explains what begins with it on the next one.
class Neighbours : public testing::TestWithParam<int> {};

TEST_P(Neighbours, TheLowerRungLeads) {
  const Rung lower = static_cast<Rung>(GetParam());
  const Rung upper = static_cast<Rung>(GetParam() + 1);
  // The ids would decide the other way round.
  const Parts parts = {On({"w"}, Part("a", upper, 5, 9)),
                       On({"w"}, Part("b", lower, 5, 9))};
  EXPECT_EQ(RoleOf("a", parts), "b<-b")
      << NameOf(lower) << " before " << NameOf(upper);
  EXPECT_EQ(RoleOf("b", parts), "b<-b");
}

INSTANTIATE_TEST_SUITE_P(Ladder, Neighbours,
                         testing::Range(0, static_cast<int>(Rung::kTotals)),
                         [](const testing::TestParamInfo<int>& info) {
                           return std::string(
                                      NameOf(static_cast<Rung>(info.param))) +
                                  "_before_" +
                                  NameOf(static_cast<Rung>(info.param + 1));
                         });

TEST(Incidents, WhatBeginsLaterWithoutACommonVariableIsAnother) {
  EXPECT_EQ(CountIncidents({Part("a", Rung::kSetup, 0, 900),
                            Part("b", Rung::kUpdate, 500, 900)}),
            2u);
}

TEST(Incidents, ALaterConsequenceOnTheSameVariableIsOfTheIncident) {
  EXPECT_EQ(RoleOf("b", {On({"w"}, Part("a", Rung::kGradient, 0, 900)),
                         On({"w", "v"}, Part("b", Rung::kReplicas, 500, 900))}),
            "a<-a");
}

TEST(Incidents, WhatBeginsAfterTheEndIsAnother) {
  EXPECT_EQ(CountIncidents({On({"w"}, Part("a", Rung::kGradient, 0, 9)),
                            On({"w"}, Part("b", Rung::kReplicas, 11, 20))}),
            2u);
}

// A cause that is found later must not be hidden below an old symptom.
TEST(Incidents, ALaterAlertOnALowerRungIsAnother) {
  EXPECT_EQ(CountIncidents({On({"w"}, Part("a", Rung::kReplicas, 0, 900)),
                            On({"w"}, Part("b", Rung::kMode, 500, 900))}),
            2u);
}

TEST(Incidents, StateOfAnOptimizerBelongsToItsParameter) {
  EXPECT_EQ(RoleOf("b", {On({"w"}, Part("a", Rung::kGradient, 3, 9)),
                         On({"w/exp_avg"}, Part("b", Rung::kReplicas, 6, 9))}),
            "a<-a");
}

TEST(Incidents, OtherRanksAreOtherIncidents) {
  EXPECT_EQ(CountIncidents({OnRanks({0}, Part("a", Rung::kMode, 3, 9)),
                            OnRanks({1}, Part("b", Rung::kMode, 3, 9))}),
            2u);
  EXPECT_EQ(CountIncidents({OnRanks({0}, Part("a", Rung::kMode, 3, 9)),
                            OnRanks({0, 1}, Part("c", Rung::kReplicas, 3, 9)),
                            OnRanks({1}, Part("b", Rung::kMode, 3, 9))}),
            1u);
}

TEST(Incidents, OtherAttemptsAreOtherIncidents) {
  Parts parts = {Part("a", Rung::kMode, 3, 9), Part("b", Rung::kMode, 3, 9)};
  parts[1].attempt = 1;
  EXPECT_EQ(CountIncidents(parts), 2u);
}

TEST(Incidents, AnAlertLeadsBeforeAdvice) {
  const Parts parts = {Advice(Part("a", Rung::kSetup, 3, 9)),
                       Part("b", Rung::kUpdate, 3, 9)};
  EXPECT_EQ(RoleOf("a", parts), "b<-");
  for (const IncidentRole& role : FindIncidents(parts)) {
    EXPECT_TRUE(role.alert);
  }
  EXPECT_FALSE(FindIncidents({parts[0]})[0].alert);
}

TEST(Incidents, StructureExplainsNothing) {
  const Parts parts = {Structure(Part("a", Rung::kCall, 3, 9)),
                       Advice(Part("b", Rung::kTotals, 4, 9))};
  EXPECT_EQ(RoleOf("a", parts), "b<-");
}

TEST(Incidents, StructureDuringAnAlertGoesToIt) {
  EXPECT_EQ(RoleOf("b", {Part("a", Rung::kMode, 3, 90),
                         Structure(Part("b", Rung::kCall, 40, 90))}),
            "a<-");
  // Advice that lasts must not hide what is found later.
  EXPECT_EQ(RoleOf("b", {Advice(Part("a", Rung::kMode, 3, 90)),
                         Structure(Part("b", Rung::kCall, 40, 90))}),
            "b<-b");
}

TEST(Incidents, StructureThatLastsGoesToTheAlertThatFollows) {
  EXPECT_EQ(RoleOf("a", {Structure(Part("a", Rung::kCall, 1, 3)),
                         Part("b", Rung::kUpdate, 4, 9)}),
            "b<-");
  EXPECT_EQ(RoleOf("a", {Structure(Part("a", Rung::kCall, 1, 3)),
                         Part("b", Rung::kUpdate, 6, 9)}),
            "a<-a");
}

TEST(Incidents, OfEqualPlacesTheRuleThatHasWordsLeads) {
  Parts parts = {Part("a", Rung::kUpdate, 3, 9),
                 Part("b", Rung::kUpdate, 3, 9)};
  parts[0].learned = true;
  EXPECT_EQ(RoleOf("a", parts), "b<-");
}

TEST(Incidents, StructureAloneIsAnIncident) {
  EXPECT_EQ(CountIncidents({Structure(Part("a", Rung::kCall, 3, 9)),
                            Structure(Part("b", Rung::kCall, 4, 9)),
                            Structure(Part("c", Rung::kCall, 20, 20))}),
            2u);
}

TEST(Incidents, TheNearestCauseIsShown) {
  const Parts parts = {On({"w", "v"}, Part("a", Rung::kSetup, 3, 9)),
                       On({"w"}, Part("b", Rung::kGradient, 3, 9)),
                       On({"w"}, Part("c", Rung::kReplicas, 3, 9)),
                       On({"v"}, Part("d", Rung::kUpdate, 3, 9))};
  EXPECT_EQ(RoleOf("c", parts), "a<-b");
  EXPECT_EQ(RoleOf("b", parts), "a<-a");
  EXPECT_EQ(RoleOf("d", parts), "a<-a");
}

// Two parameters of the optimizer, one of which is replaced; the loss is also
// given softmax twice.
TEST(Incidents, TwoErrorsOfTheFirstStepDoNotExplainEachOther) {
  const Parts parts = {On({"w"}, Part("replaced", Rung::kSetup, 0, 9)),
                       Part("softmax", Rung::kCall, 0, 9),
                       On({"w"}, Part("still", Rung::kUpdate, 0, 9)),
                       Part("zeros", Rung::kGradient, 1, 9)};
  EXPECT_EQ(CountIncidents(parts), 1u);
  EXPECT_EQ(RoleOf("softmax", parts), "replaced<-");
  EXPECT_EQ(RoleOf("still", parts), "replaced<-replaced");
  EXPECT_EQ(RoleOf("zeros", parts), "replaced<-");
}

TEST(Incidents, OtherVariablesAreNotExplained) {
  EXPECT_EQ(RoleOf("b", {On({"w"}, Part("a", Rung::kSetup, 7, 9)),
                         On({"v"}, Part("b", Rung::kUpdate, 7, 9))}),
            "a<-");
}

// A forward that bypasses its wrapper names no parameter.
TEST(Incidents, WhatBeginsDuringTheTrainingExplainsWithoutVariables) {
  const Parts parts = {Part("bypass", Rung::kSetup, 5, 9),
                       Part("call", Rung::kCall, 5, 9),
                       On({"w"}, Part("gradient", Rung::kGradient, 5, 9)),
                       On({"w"}, Part("replica", Rung::kReplicas, 6, 9)),
                       Part("checkpoint", Rung::kReplicas, 5, 9)};
  EXPECT_EQ(RoleOf("gradient", parts), "bypass<-call");
  EXPECT_EQ(RoleOf("replica", parts), "bypass<-gradient");
  // A phase of the program that begins may bring several errors.
  EXPECT_EQ(RoleOf("call", parts), "bypass<-");
  EXPECT_EQ(RoleOf("checkpoint", parts), "bypass<-");
}

TEST(Incidents, OtherRanksExplainNothingWithoutVariables) {
  const Parts parts = {OnRanks({0}, Part("a", Rung::kMode, 5, 9)),
                       OnRanks({0, 1}, Part("c", Rung::kGradient, 5, 9)),
                       OnRanks({1}, Part("b", Rung::kResult, 5, 9))};
  EXPECT_EQ(RoleOf("c", parts), "a<-b");
  EXPECT_EQ(RoleOf("b", parts), "a<-");
}

// A schedule that is over too early: nobody names a parameter.
TEST(Incidents, WhatIsAboutOneOptimizerExplains) {
  const Parts parts = {
      About({"optimizer 0"}, Part("outruns", Rung::kSetup, 17, 90)),
      About({"optimizer 0"}, Part("rates", Rung::kUpdate, 18, 90)),
      About({"optimizer 1"}, Part("other", Rung::kUpdate, 0, 90)),
      About({"optimizer 0"}, Part("first", Rung::kCall, 0, 90))};
  EXPECT_EQ(RoleOf("rates", parts), "outruns<-outruns");
  // On a lower rung only, and not another optimizer's.
  EXPECT_EQ(RoleOf("other", parts), "first<-");
  EXPECT_EQ(RoleOf("outruns", {parts[0], parts[1]}), "outruns<-outruns");
}

// Also in the first step, and where the follower names what the lead cannot.
TEST(Incidents, WhatIsAboutOneOptimizerExplainsItsParameters) {
  const Parts parts = {
      About({"optimizer 0"}, Part("local", Rung::kCall, 0, 9)),
      OnRanks({0, 1}, About({"optimizer 0"},
                            On({"w"}, Part("grad", Rung::kGradient, 0, 9)))),
      OnRanks({0, 1}, About({"optimizer 0"},
                            On({"w"}, Part("data", Rung::kReplicas, 0, 9))))};
  EXPECT_EQ(RoleOf("grad", parts), "local<-local");
  // A common variable says more.
  EXPECT_EQ(RoleOf("data", parts), "local<-grad");
}

TEST(Incidents, OtherVariablesOfOneOptimizerAreNotExplained) {
  EXPECT_EQ(
      RoleOf(
          "b",
          {About({"optimizer 0"}, On({"w"}, Part("a", Rung::kSetup, 7, 9))),
           About({"optimizer 0"}, On({"v"}, Part("b", Rung::kUpdate, 7, 9)))}),
      "a<-");
}

TEST(Incidents, OneSubjectInOneStepIsOneIncidentAcrossRanks) {
  const auto parts = [](const std::string& subject, int64_t step) {
    return Parts{
        OnRanks({0}, About({"process group 0 of ranks 0, 1"},
                           Part("a", Rung::kCall, 3, 9))),
        OnRanks({1}, About({subject}, Part("b", Rung::kResult, step, 9)))};
  };
  EXPECT_EQ(CountIncidents(parts("process group 0 of ranks 0, 1", 4)), 1u);
  EXPECT_EQ(CountIncidents(parts("process group 0 of ranks 2, 3", 4)), 2u);
  EXPECT_EQ(CountIncidents(parts("process group 0 of ranks 0, 1", 5)), 2u);
  // What another rank did explains nothing of it.
  EXPECT_EQ(RoleOf("b", parts("process group 0 of ranks 0, 1", 3)), "a<-");
}

// An old error of the only optimizer must not hide each later one.
TEST(Incidents, WhatBeginsLaterOnOneOptimizerIsAnother) {
  EXPECT_EQ(CountIncidents(
                {About({"optimizer 0"}, Part("a", Rung::kSetup, 0, 900)),
                 About({"optimizer 0"}, Part("b", Rung::kUpdate, 500, 900))}),
            2u);
}

// A forward past the wrapper leads; that parts of it are trained past the
// wrapper is seen a step later, at the optimizer.
TEST(Incidents, WhatBeginsWithItIsNearerThanWhatIsAboutItsOptimizerLater) {
  const Parts parts = {
      Part("forward", Rung::kCall, 5, 39),
      About({"optimizer 0"}, Part("parts", Rung::kCall, 6, 39)),
      About({"optimizer 0"}, On({"w"}, Part("grad", Rung::kGradient, 5, 39)))};
  EXPECT_EQ(RoleOf("grad", parts), "forward<-forward");
  EXPECT_EQ(RoleOf("parts", parts), "forward<-");
  // Where nothing began with it.
  EXPECT_EQ(RoleOf("grad", {parts[1], parts[2]}), "parts<-parts");
}

TEST(Incidents, OfOneRungTheEarlierExplains) {
  const Parts parts = {On({"w"}, Part("a", Rung::kSetup, 3, 9)),
                       On({"w"}, Part("b", Rung::kUpdate, 3, 9)),
                       On({"w"}, Part("c", Rung::kUpdate, 4, 9))};
  EXPECT_EQ(RoleOf("c", parts), "a<-a");
}

IncidentPart Named(const std::string& headline, std::vector<std::string> brings,
                   IncidentPart part) {
  part.headline = headline;
  part.brings = std::move(brings);
  return part;
}

// In the first step everything begins, so the records alone do not show it.
TEST(Incidents, WhatAnAuthorSaysHoldsFromTheFirstStepOn) {
  const Parts parts = {
      Named("twice", {"old"}, Part("twice", Rung::kSetup, 0, 9)),
      Named("old", {}, Part("old", Rung::kGradient, 0, 9)),
      Named("other", {}, Part("other", Rung::kGradient, 0, 9))};
  EXPECT_EQ(RoleOf("old", parts), "twice<-twice");
  EXPECT_EQ(RoleOf("other", parts), "twice<-");
}

TEST(Incidents, OfSeveralThatBringItTheNearestIsTheCause) {
  const Parts parts = {Named("a", {"b", "c"}, Part("a", Rung::kSetup, 0, 9)),
                       Named("b", {"c"}, Part("b", Rung::kCall, 1, 9)),
                       Named("c", {}, Part("c", Rung::kReplicas, 0, 9))};
  EXPECT_EQ(RoleOf("c", parts), "a<-b");
  EXPECT_EQ(RoleOf("b", parts), "a<-a");
  // Not from what began clearly later.
  Parts later = parts;
  later[1].first_step = 2;
  EXPECT_EQ(RoleOf("c", later), "a<-a");
}

TEST(Incidents, WhatIsBroughtJoinsWhileItsCauseLasts) {
  const auto parts = [](int64_t begins) {
    return Parts{Named("a", {"b"}, Part("a", Rung::kSetup, 0, 9)),
                 Named("b", {}, Part("b", Rung::kUpdate, begins, 20))};
  };
  EXPECT_EQ(RoleOf("b", parts(8)), "a<-a");
  EXPECT_EQ(RoleOf("b", parts(10)), "a<-a");
  EXPECT_EQ(RoleOf("b", parts(11)), "b<-b");
}

TEST(Incidents, NothingIsBroughtToOtherRanksVariablesOrAttempts) {
  const IncidentPart cause =
      On({"w"}, Named("a", {"b"}, Part("a", Rung::kSetup, 0, 9)));
  const IncidentPart effect = Named("b", {}, Part("b", Rung::kUpdate, 4, 9));
  EXPECT_EQ(RoleOf("b", {cause, effect}), "a<-a");
  EXPECT_EQ(RoleOf("b", {cause, On({"w/exp_avg"}, effect)}), "a<-a");
  EXPECT_EQ(RoleOf("b", {cause, On({"v"}, effect)}), "b<-b");
  EXPECT_EQ(RoleOf("b", {cause, OnRanks({1}, effect)}), "b<-b");
  EXPECT_EQ(RoleOf("b", {cause, OnRanks({1, 0}, effect)}), "a<-a");
  IncidentPart restarted = effect;
  restarted.attempt = 1;
  EXPECT_EQ(RoleOf("b", {cause, restarted}), "b<-b");
  EXPECT_EQ(RoleOf("b", {cause, Structure(effect)}), "a<-");
}

// Advice that comes first in the program brings no alert: it does not lead.
TEST(Incidents, AdviceBringsNoAlert) {
  const Parts parts = {Advice(Named("a", {"b"}, Part("a", Rung::kSetup, 0, 9))),
                       Named("b", {}, Part("b", Rung::kUpdate, 0, 9))};
  EXPECT_EQ(RoleOf("b", parts), "b<-b");
}

TEST(Incidents, BeforeTheFirstStepIsWithTheFirst) {
  Parts parts = {Part("a", Rung::kUpdate, 0, 9), Part("b", Rung::kSetup, 0, 0)};
  parts[1].first_step = parts[1].last_step = std::nullopt;
  EXPECT_EQ(RoleOf("a", parts), "b<-");
}

TEST(Incidents, TheOrderInWhichTheyWereFoundDoesNotMatter) {
  std::mt19937 random(17);
  Parts parts;
  for (int i = 0; i < 60; ++i) {
    const auto first = static_cast<int64_t>(random() % 30);
    IncidentPart part =
        Part("v" + std::to_string(i), static_cast<Rung>(random() % 10), first,
             first + static_cast<int64_t>(random() % 9));
    part.ranks = {static_cast<int32_t>(random() % 3)};
    if (random() % 2 == 0) {
      part.variables = {"w" + std::to_string(random() % 8)};
    }
    part.subjects = {"optimizer " + std::to_string(random() % 3)};
    part.advice = random() % 3 == 0;
    part.place.structure = random() % 3 == 0;
    part.headline = "h" + std::to_string(random() % 5);
    part.brings = {"h" + std::to_string(random() % 5)};
    parts.push_back(part);
  }
  std::vector<std::string> expected;
  for (const IncidentPart& part : parts) {
    expected.push_back(RoleOf(part.id, parts));
  }
  for (int round = 0; round < 20; ++round) {
    Parts shuffled = parts;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(RoleOf(parts[i].id, shuffled), expected[i]);
    }
  }
}

// Whoever leaves out some of an incident's violations finds who leads the rest.
TEST(Incidents, TheLeadOfSomeIsChosenAsThatOfAll) {
  const Parts parts = {Structure(Part("structure", Rung::kSetup, 0, 9)),
                       Part("update", Rung::kUpdate, 1, 9),
                       Advice(Part("advice", Rung::kSetup, 0, 9)),
                       Part("call", Rung::kCall, 1, 9)};
  EXPECT_EQ(LeadOf(parts), 3u);
  EXPECT_EQ(LeadOf({parts[0], parts[1], parts[2]}), 1u);
  EXPECT_EQ(LeadOf({parts[0], parts[2]}), 1u);
  for (const IncidentRole& role : FindIncidents(parts)) {
    EXPECT_EQ(role.lead, LeadOf(parts));
  }
}

}  // namespace
}  // namespace traincheck
