#include "base/spool_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace traincheck {
namespace {

using testing::Contains;
using testing::ElementsAre;

using Variables = std::map<std::string, std::string>;

std::vector<SpoolPlace> PlacesOf(const Variables& variables) {
  return SpoolPlaces(
      [&variables](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      1234);
}

std::vector<std::string> PathsOf(const Variables& variables) {
  std::vector<std::string> paths;
  for (const SpoolPlace& place : PlacesOf(variables)) {
    paths.push_back(place.folder + "/" + place.below);
  }
  return paths;
}

TEST(SpoolPlaces, AreOnTheNodeBeforeTheyAreInTheHome) {
  EXPECT_THAT(PathsOf({{"HOME", "/home/a"}}),
              ElementsAre("/tmp/traincheck-1234/spool",
                          "/home/a/.local/state/traincheck/spool"));
  EXPECT_THAT(
      PathsOf({{"XDG_STATE_HOME", "/state"}, {"HOME", "/h"}}),
      ElementsAre("/tmp/traincheck-1234/spool", "/state/traincheck/spool"));
  EXPECT_THAT(PathsOf({}), ElementsAre("/tmp/traincheck-1234/spool"));
}

TEST(SpoolPlaces, ComeInTheOrderOfWhoNamesThem) {
  EXPECT_THAT(PathsOf({{"TRAINCHECK_SPOOL_DIR", "/scratch/t"},
                       {"SLURM_TMPDIR", "/local/7"},
                       {"TMPDIR", "/var/tmp"}}),
              ElementsAre("/scratch/t/1234", "/local/7/traincheck-1234/spool",
                          "/var/tmp/traincheck-1234/spool",
                          "/tmp/traincheck-1234/spool"));
}

TEST(SpoolPlaces, EmptyAndRelativeVariablesNameNothing) {
  EXPECT_THAT(
      PathsOf({{"TRAINCHECK_SPOOL_DIR", ""}, {"TMPDIR", "here"}, {"HOME", ""}}),
      ElementsAre("/tmp/traincheck-1234/spool"));
}

TEST(SpoolPlaces, WhatEarlierVersionsLeftIsLookedFor) {
  const std::vector<std::string> folders = SpoolFolders(
      PlacesOf({{"TRAINCHECK_SPOOL_DIR", "/scratch/t"}, {"HOME", "/home/a"}}));
  for (const char* old : {"/scratch/t", "/home/a/.local/state/traincheck/spool",
                          "/tmp/traincheck-1234"}) {
    EXPECT_THAT(folders, Contains(old));
  }
}

TEST(SpoolPlaces, NoFolderIsLookedThroughTwice) {
  EXPECT_EQ(SpoolFolders(PlacesOf({{"TMPDIR", "/tmp"}})).size(), 2u);
}

}  // namespace
}  // namespace traincheck
