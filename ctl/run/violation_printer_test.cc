#include "ctl/run/violation_printer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

v1::Violation Of(const std::string& id, const std::string& incident,
                 const std::string& grade = "alert") {
  v1::Violation violation;
  violation.set_id(id);
  violation.set_incident(incident);
  violation.set_headline("Since step 1 " + id);
  violation.set_incident_grade(grade);
  return violation;
}

class ViolationPrinterTest : public testing::Test {
 protected:
  ViolationPrinter Printer(bool advice) {
    return ViolationPrinter(
        advice, [this](const std::string& text) { written_.push_back(text); },
        [this](const v1::Violation& lead) { alarms_.push_back(lead.id()); });
  }

  std::vector<std::string> written_;
  std::vector<std::string> alarms_;
};

TEST_F(ViolationPrinterTest, AnIncidentIsPrintedOnceByItsLead) {
  ViolationPrinter printer = Printer(false);
  printer.Print(Of("b", "a"));
  printer.Print(Of("a", "a"));
  printer.Print(Of("a", "a"));
  EXPECT_THAT(written_,
              ElementsAre(StartsWith("traincheck: VIOLATION Since step 1 a")));
  EXPECT_THAT(alarms_, ElementsAre("a"));
  EXPECT_EQ(printer.alerts(), 1u);
}

// The cause came to be known after the symptom: that is shown, and nobody is
// called twice.
TEST_F(ViolationPrinterTest, ALeadThatIsFoundLaterCallsNobodyAgain) {
  ViolationPrinter printer = Printer(false);
  printer.Print(Of("b", "b"));
  printer.Print(Of("b", "a"));
  printer.Print(Of("a", "a"));
  printer.Print(Of("c", "c"));
  EXPECT_EQ(written_.size(), 3u);
  EXPECT_THAT(alarms_, ElementsAre("b", "c"));
  EXPECT_EQ(printer.alerts(), 2u);
}

TEST_F(ViolationPrinterTest, AdviceIsShownOnDemandAndCallsNobody) {
  ViolationPrinter quiet = Printer(false);
  quiet.Print(Of("a", "a", "advice"));
  EXPECT_THAT(written_, IsEmpty());
  ViolationPrinter verbose = Printer(true);
  verbose.Print(Of("a", "a", "advice"));
  EXPECT_EQ(written_.size(), 1u);
  EXPECT_THAT(alarms_, IsEmpty());
  // An alert has joined it.
  verbose.Print(Of("a", "a"));
  quiet.Print(Of("a", "a"));
  EXPECT_EQ(written_.size(), 2u);
  EXPECT_THAT(alarms_, ElementsAre("a", "a"));
}

TEST_F(ViolationPrinterTest, WhatIsSilencedIsNotSeenAndTheNextOneCallsOnce) {
  ViolationPrinter printer = Printer(true);
  v1::Violation silenced = Of("a", "a");
  silenced.set_silenced_by("s1: known");
  printer.Print(silenced);
  EXPECT_THAT(written_, IsEmpty());
  // Of one incident the first that nobody silences leads.
  silenced.set_incident("b");
  printer.Print(silenced);
  printer.Print(Of("b", "b"));
  EXPECT_THAT(alarms_, ElementsAre("b"));
  EXPECT_EQ(printer.alerts(), 1u);
}

}  // namespace
}  // namespace traincheck::ctl
