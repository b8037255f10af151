#include "base/credentials.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(CheckAddress, AllowsLoopbackAndUnixSockets) {
  for (const char* address : {"127.0.0.1:7471", "127.8.9.1:0", "localhost:7471",
                              "[::1]:7471", "unix:/run/traincheckd.sock"}) {
    EXPECT_TRUE(CheckAddress(address).ok()) << address;
  }
}

TEST(CheckAddress, RefusesEveryOtherAddressAndNamesIt) {
  for (const char* address :
       {"0.0.0.0:7471", "10.0.0.1:7471", "example.org:7471", "[::]:7471",
        "localhost.example.org:7471", "127.0.0.1.example.org:1"}) {
    const absl::Status status = CheckAddress(address);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << address;
    EXPECT_NE(status.message().find(address), std::string::npos) << status;
  }
}

TEST(CheckAddress, RefusesWhatIsNoAddress) {
  for (const char* address : {"", "7471", ":7471", "localhost", "localhost:",
                              "localhost:x", "localhost:70000", "unix:"}) {
    EXPECT_EQ(CheckAddress(address).code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(Channels, AreMadeForAllowedAddressesOnly) {
  EXPECT_TRUE(MakeChannel("127.0.0.1:1", {}).ok());
  EXPECT_FALSE(MakeChannel("10.0.0.1:1", {}).ok());
  EXPECT_TRUE(MakeServerCredentials("unix:/tmp/s").ok());
  EXPECT_FALSE(MakeServerCredentials("0.0.0.0:1").ok());
}

}  // namespace
}  // namespace traincheck
