#include "proto/alert_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace traincheck {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(AlertVariables, SayWhichIncidentItIs) {
  v1::Violation lead;
  lead.set_id("v1");
  lead.set_run("resnet");
  lead.set_headline("Since step 5 gradients are not averaged");
  lead.set_first_step(5);
  lead.add_ranks(0);
  lead.add_ranks(3);
  lead.add_sites("train.py:41");
  lead.add_sites("model.py:7");
  EXPECT_THAT(AlertVariables(lead),
              ElementsAre(Pair("TRAINCHECK_ALERT_RUN", "resnet"),
                          Pair("TRAINCHECK_ALERT_INCIDENT", "v1"),
                          Pair("TRAINCHECK_ALERT_HEADLINE",
                               "Since step 5 gradients are not averaged"),
                          Pair("TRAINCHECK_ALERT_SITE", "train.py:41"),
                          Pair("TRAINCHECK_ALERT_STEP", "5"),
                          Pair("TRAINCHECK_ALERT_RANKS", "0,3")));
}

TEST(AlertVariables, WhatIsNotKnownIsEmptyAndAnOlderOneHasItsRule) {
  v1::Violation lead;
  lead.set_id("v1");
  lead.set_text("gradients are averaged");
  EXPECT_THAT(
      AlertVariables(lead),
      ElementsAre(Pair("TRAINCHECK_ALERT_RUN", ""),
                  Pair("TRAINCHECK_ALERT_INCIDENT", "v1"),
                  Pair("TRAINCHECK_ALERT_HEADLINE", "gradients are averaged"),
                  Pair("TRAINCHECK_ALERT_SITE", ""),
                  Pair("TRAINCHECK_ALERT_STEP", ""),
                  Pair("TRAINCHECK_ALERT_RANKS", "")));
}

}  // namespace
}  // namespace traincheck
