#include "server/access/sight.h"

#include <gtest/gtest.h>

#include "server/runs/registry_for_testing.h"

namespace traincheck::server {
namespace {

class SightTest : public RegistryTest {
 protected:
  SightTest() {
    Begin("of-alice", "alice");
    Begin("of-admins", "");
  }

  void Begin(const std::string& run, const std::string& owner) {
    v1::Hello hello = MakeHello(1);
    hello.set_run(run);
    EXPECT_TRUE(registry_->Open(hello, nullptr, owner).ok());
  }
  Sight Of(v1::Role role, const std::string& owner) {
    return Sight({role, owner, "token"}, registry_.get());
  }
};

TEST_F(SightTest, AnOwnerSeesItsRunsAndNoOthers) {
  Sight alice = Of(v1::ROLE_VIEWER, "alice");
  EXPECT_TRUE(alice.CheckRun("of-alice").ok());
  EXPECT_TRUE(absl::IsNotFound(alice.CheckRun("of-admins")));
  Sight bob = Of(v1::ROLE_OWNER, "bob");
  EXPECT_TRUE(absl::IsNotFound(bob.CheckRun("of-alice")));
  Sight admin = Of(v1::ROLE_ADMIN, "");
  EXPECT_TRUE(admin.CheckRun("of-alice").ok());
  Sight nobody = Sight(Caller(), registry_.get());
  EXPECT_FALSE(nobody.SeesRun("of-alice"));
  EXPECT_FALSE(nobody.SeesRun("of-admins"));
}

TEST_F(SightTest, ARunThatBeginsLaterIsLookedAtThen) {
  Sight alice = Of(v1::ROLE_VIEWER, "alice");
  EXPECT_TRUE(alice.SeesRun("later"));
  Begin("later", "bob");
  EXPECT_FALSE(alice.SeesRun("later"));
}

TEST_F(SightTest, TheIdOfADeletedRunMayBecomeAnothers) {
  const auto opened = registry_->Open(MakeHello(2), nullptr, "alice");
  ASSERT_TRUE(opened.ok()) << opened.status();
  AddPlace(opened->stream, 0, 1);
  Sight alice = Of(v1::ROLE_VIEWER, "alice");
  ASSERT_TRUE(alice.SeesRun("run"));
  End(opened->stream, v1::END_KIND_CLEAN);
  ASSERT_TRUE(store_->WriteAndWait(WriteSet(), absl::Minutes(1)).ok());
  const RunPins pins;
  ASSERT_TRUE(registry_->Withdraw("run", pins).ok());
  // Its violations are still there.
  EXPECT_FALSE(Of(v1::ROLE_VIEWER, "bob").SeesRun("run"));
  EXPECT_EQ(registry_->OwnerOf("run"), "alice");
  registry_->Release("run", /*deleted=*/true);
  Begin("run", "bob");
  alice.LookAnew();
  EXPECT_FALSE(alice.SeesRun("run"));
}

TEST_F(SightTest, ListsHaveWhatIsSeen) {
  std::vector<v1::Run> runs;
  for (const std::string& id : registry_->RunIds()) {
    runs.push_back(*registry_->Run(id));
  }
  Of(v1::ROLE_VIEWER, "alice").Filter(&runs);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].id(), "of-alice");
  std::vector<v1::Violation> violations(2);
  violations[0].set_run("of-admins");
  violations[1].set_run("of-alice");
  Of(v1::ROLE_VIEWER, "alice").Filter(&violations);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].run(), "of-alice");
}

TEST_F(SightTest, OwnersOutliveARestart) {
  Restart();
  EXPECT_EQ(registry_->OwnerOf("of-alice"), "alice");
  EXPECT_EQ(registry_->OwnerOf("of-admins"), "");
  EXPECT_EQ(registry_->OwnerOf("none"), std::nullopt);
  EXPECT_EQ(registry_->Run("of-alice")->owner(), "alice");
}

}  // namespace
}  // namespace traincheck::server
