#include "server/access/method_roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

namespace traincheck::server {
namespace {

using testing::HasSubstr;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of all files of the package, so that no new one is forgotten.
std::set<std::string> AllMethods() {
  const std::regex words(R"((service|rpc)\s+(\w+)\s*[({])");
  std::set<std::string> methods;
  for (const auto& entry :
       std::filesystem::directory_iterator("proto/traincheck/v1")) {
    if (entry.path().extension() != ".proto") continue;
    const std::string text = ReadFile(entry.path());
    std::string service;
    for (std::sregex_iterator at(text.begin(), text.end(), words), end;
         at != end; ++at) {
      const std::string name = (*at)[2];
      if ((*at)[1] == "service") {
        service = name;
      } else {
        methods.insert("/traincheck.v1." + service + "/" + name);
      }
    }
  }
  return methods;
}

TEST(MethodRoles, EveryMethodOfEveryServiceIsInTheTableOnce) {
  std::set<std::string> in_table;
  for (const MethodRole& entry : AllMethodRoles()) {
    EXPECT_TRUE(in_table.insert(std::string(entry.method)).second)
        << entry.method;
  }
  EXPECT_EQ(in_table, AllMethods());
  EXPECT_GT(in_table.size(), 40u);
}

TEST(MethodRoles, AMethodThatIsNotThereCanBeCalledByNobody) {
  EXPECT_FALSE(
      CheckRole(v1::ROLE_ADMIN, "/traincheck.v1.Control/Nothing").ok());
  EXPECT_FALSE(CheckRole(v1::ROLE_ADMIN, "").ok());
}

TEST(MethodRoles, EachRoleMayDoWhatItIsFor) {
  const auto may = [](v1::Role role, const char* method) {
    return CheckRole(role, std::string("/traincheck.v1.") + method).ok();
  };
  struct Case {
    const char* method;
    bool relay, viewer, owner, admin;
  };
  for (const Case& c : {
           Case{"Ingest/Stream", true, false, true, true},
           Case{"Control/ListRuns", false, true, true, true},
           Case{"Control/ChangeRunPlan", false, false, true, true},
           Case{"Control/ImportSetInParts", false, false, true, true},
           Case{"Control/Backup", false, false, false, true},
           Case{"Access/CreateToken", false, false, false, true},
       }) {
    EXPECT_EQ(may(v1::ROLE_RELAY, c.method), c.relay) << c.method;
    EXPECT_EQ(may(v1::ROLE_VIEWER, c.method), c.viewer) << c.method;
    EXPECT_EQ(may(v1::ROLE_OWNER, c.method), c.owner) << c.method;
    EXPECT_EQ(may(v1::ROLE_ADMIN, c.method), c.admin) << c.method;
    EXPECT_FALSE(may(v1::ROLE_UNSPECIFIED, c.method)) << c.method;
  }
}

TEST(MethodRoles, ARefusalNamesBothRoles) {
  const absl::Status status =
      CheckRole(v1::ROLE_VIEWER, "/traincheck.v1.Control/DeleteRun");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("DeleteRun needs"));
  EXPECT_THAT(status.message(), HasSubstr("owner"));
  EXPECT_THAT(status.message(), HasSubstr("viewer"));
}

}  // namespace
}  // namespace traincheck::server
