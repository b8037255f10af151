#include "agent/relay/options.h"

#include <gtest/gtest.h>

#include <map>

namespace traincheck::agent {
namespace {

absl::StatusOr<RelayOptions> Parse(std::map<std::string, std::string> env) {
  return ParseOptions(
      [&env](const char* name) {
        const auto found = env.find(name);
        return found == env.end() ? nullptr : found->second.c_str();
      },
      1234);
}

TEST(RelayOptions, HaveDefaults) {
  const RelayOptions options = Parse({{"HOME", "/home/a"}}).value();
  EXPECT_EQ(options.server, DefaultAddress());
  EXPECT_EQ(options.files.tls_ca, "");
  EXPECT_EQ(options.files.token, "");
  ASSERT_EQ(options.spool_places.size(), 2u);
  EXPECT_EQ(options.spool_places[0].folder, "/tmp");
  EXPECT_EQ(options.spool_limit_bytes, uint64_t{1} << 30);
  EXPECT_FALSE(options.spool_limit_is_set);
  EXPECT_EQ(options.grace.count(), 30);
  EXPECT_EQ(options.log_level, "warning");
}

TEST(RelayOptions, TakeTheEnvironment) {
  const RelayOptions options = Parse({{"TRAINCHECK_SERVER", "unix:/s"},
                                      {"TRAINCHECK_SPOOL_DIR", "/spool"},
                                      {"TRAINCHECK_SPOOL_LIMIT", "3M"},
                                      {"TRAINCHECK_GRACE", "0"},
                                      {"TRAINCHECK_TLS_CA", "/ca.pem"},
                                      {"TRAINCHECK_TOKEN_FILE", "/token"},
                                      {"TRAINCHECK_LOG", "debug"}})
                                   .value();
  EXPECT_EQ(options.server, "unix:/s");
  EXPECT_EQ(options.files.tls_ca, "/ca.pem");
  EXPECT_EQ(options.files.token, "/token");
  EXPECT_EQ(options.spool_places.at(0).folder, "/spool");
  EXPECT_EQ(options.spool_limit_bytes, 3u << 20);
  EXPECT_TRUE(options.spool_limit_is_set);
  EXPECT_EQ(options.grace.count(), 0);
  EXPECT_EQ(options.log_level, "debug");
}

TEST(RelayOptions, KnowUnits) {
  const auto limit = [](const char* text) {
    return Parse({{"TRAINCHECK_SPOOL_LIMIT", text}})->spool_limit_bytes;
  };
  EXPECT_EQ(limit("0"), 0u);
  EXPECT_EQ(limit("12"), 12u);
  EXPECT_EQ(limit("7K"), 7u << 10);
  EXPECT_EQ(limit("2G"), uint64_t{2} << 30);
}

TEST(RelayOptions, RefuseNonsenseByName) {
  for (const char* text : {"x", "-1", "1T", "K", "99999999999999999G"}) {
    const auto options = Parse({{"TRAINCHECK_SPOOL_LIMIT", text}});
    ASSERT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_NE(options.status().message().find("TRAINCHECK_SPOOL_LIMIT"),
              std::string::npos);
  }
  EXPECT_FALSE(Parse({{"TRAINCHECK_GRACE", "-1"}}).ok());
  EXPECT_FALSE(Parse({{"TRAINCHECK_GRACE", "soon"}}).ok());
}

}  // namespace
}  // namespace traincheck::agent
