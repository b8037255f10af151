#include "server/feedback/silenced_incidents.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace traincheck::server {
namespace {

v1::Violation Of(const std::string& id, const std::string& incident,
                 const std::string& cause, const std::string& rung) {
  v1::Violation violation;
  violation.set_id(id);
  violation.set_incident(incident);
  violation.set_cause(cause);
  violation.set_rung(rung);
  violation.set_grade("alert");
  violation.set_incident_grade("alert");
  return violation;
}

class SilencedIncidentsTest : public testing::Test {
 protected:
  void Silence(const std::string& id) {
    for (v1::Violation& violation : violations_) {
      if (violation.id() == id) violation.set_silenced_by("s1: known");
    }
  }
  void Lead() {
    LeadBySilences(
        [this](const v1::Violation& violation) {
          return Place{.rung = *RungNamed(violation.rung()),
                       .structure = structure_.contains(violation.id())};
        },
        &violations_);
  }
  // "incident<-cause grade"
  std::string RoleOf(const std::string& id) {
    for (const v1::Violation& violation : violations_) {
      if (violation.id() != id) continue;
      return violation.incident() + "<-" + violation.cause() + " " +
             violation.incident_grade();
    }
    return "";
  }

  // Setup explains the gradient, that the update; another incident beside it.
  std::vector<v1::Violation> violations_ = {
      Of("update", "setup", "gradient", "update"),
      Of("gradient", "setup", "setup", "gradient"),
      Of("setup", "setup", "setup", "setup"),
      Of("other", "other", "other", "data")};
  std::map<std::string, bool> structure_;
};

TEST_F(SilencedIncidentsTest, WithoutSilencesNothingChanges) {
  const auto before = violations_;
  Lead();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(violations_[i].SerializeAsString(),
              before[i].SerializeAsString());
  }
}

TEST_F(SilencedIncidentsTest, TheNextOnTheLadderLeadsForASilencedLead) {
  Silence("setup");
  Lead();
  EXPECT_EQ(RoleOf("gradient"), "gradient<-gradient alert");
  EXPECT_EQ(RoleOf("update"), "gradient<-gradient alert");
  // Nothing shows that what is silenced follows from what is not.
  EXPECT_EQ(RoleOf("setup"), "gradient<- alert");
  EXPECT_EQ(RoleOf("other"), "other<-other alert");
}

TEST_F(SilencedIncidentsTest, StructureLeadsNobodyElse) {
  structure_["gradient"] = true;
  Silence("setup");
  Lead();
  EXPECT_EQ(RoleOf("gradient"), "update<-setup alert");
}

TEST_F(SilencedIncidentsTest, ASilencedFollowerChangesNoLead) {
  Silence("gradient");
  Lead();
  EXPECT_EQ(RoleOf("update"), "setup<-gradient alert");
  EXPECT_EQ(RoleOf("setup"), "setup<-setup alert");
}

TEST_F(SilencedIncidentsTest, WhatIsLeftGivesTheGrade) {
  violations_[0].set_grade("advice");
  Silence("setup");
  Silence("gradient");
  Lead();
  EXPECT_EQ(RoleOf("update"), "update<-update advice");
}

TEST_F(SilencedIncidentsTest, AllSilencedItIsNoAlertAndKeepsItsLead) {
  for (const char* id : {"setup", "gradient", "update"}) Silence(id);
  Lead();
  EXPECT_EQ(RoleOf("setup"), "setup<-setup advice");
  EXPECT_EQ(RoleOf("update"), "setup<-gradient advice");
  EXPECT_EQ(RoleOf("other"), "other<-other alert");
}

TEST_F(SilencedIncidentsTest, OneOfBeforeThereWereIncidentsIsItsOwn) {
  v1::Violation older = Of("older", "", "", "data");
  older.set_silenced_by("s1: known");
  violations_.push_back(older);
  Lead();
  EXPECT_EQ(RoleOf("older"), "<- advice");
  EXPECT_TRUE(IsSilenced(violations_.back()));
}

}  // namespace
}  // namespace traincheck::server
