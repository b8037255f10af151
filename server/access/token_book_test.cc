#include "server/access/token_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/forwarding_store_for_testing.h"
#include "server/store/memory_store_for_testing.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

class TokenBookTest : public testing::Test {
 protected:
  TokenBookTest() { Load(); }

  void Load() {
    book_ = *TokenBook::Load(&store_, [this] { return now_; });
  }

  absl::StatusOr<v1::CreateTokenReply> Create(v1::Role role,
                                              const std::string& owner,
                                              absl::Duration ttl = {}) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_owner(owner);
    if (ttl != absl::ZeroDuration()) {
      request.set_expires_unix_ns(absl::ToUnixNanos(now_ + ttl));
    }
    return book_->CreateUntrusted(request);
  }

  StallingStore store_{std::make_unique<MemoryStore>()};
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  std::unique_ptr<TokenBook> book_;
};

TEST_F(TokenBookTest, ATokenSaysWhoHasIt) {
  const auto made = *Create(v1::ROLE_RELAY, "alice");
  const Caller caller = *book_->Find(made.text());
  EXPECT_EQ(caller.role, v1::ROLE_RELAY);
  EXPECT_EQ(caller.owner, "alice");
  EXPECT_EQ(caller.token, made.token().id());
  EXPECT_TRUE(caller.Sees("alice"));
  EXPECT_FALSE(caller.Sees("bob"));
  EXPECT_FALSE(caller.Sees(""));
  EXPECT_EQ(book_->List().size(), 1u);
}

TEST_F(TokenBookTest, OutlivesARestartAndItsTextIsNotStored) {
  const auto made = *Create(v1::ROLE_OWNER, "alice");
  ASSERT_TRUE(store_.GoOn().ok());
  Load();
  EXPECT_TRUE(book_->Find(made.text()).ok());
  const std::string secret = made.text().substr(made.text().rfind('.') + 1);
  const absl::Status scanned =
      store_.Scan(Table::kMeta, "", "\xff",
                  [&](std::string_view key, std::string_view value) {
                    EXPECT_EQ(key.find(secret), key.npos);
                    EXPECT_EQ(value.find(secret), value.npos);
                    return true;
                  });
  EXPECT_TRUE(scanned.ok());
}

TEST_F(TokenBookTest, AnythingElseIsNotAToken) {
  const std::string good = Create(v1::ROLE_ADMIN, "")->text();
  std::string other_secret = good;
  other_secret.back() = good.back() == '0' ? '1' : '0';
  std::string other_id = good;
  other_id[4] = good[4] == '0' ? '1' : '0';
  for (const std::string& text :
       {std::string(), std::string("tc1."), good + "0", good.substr(1),
        good.substr(0, good.size() - 1), other_secret, other_id,
        std::string(good.size(), '\0')}) {
    EXPECT_EQ(book_->Find(text).status().code(),
              absl::StatusCode::kUnauthenticated)
        << text;
  }
}

TEST_F(TokenBookTest, ExpiresAtItsTime) {
  const auto made = *Create(v1::ROLE_VIEWER, "alice", absl::Hours(1));
  const Caller caller = *book_->Find(made.text());
  now_ += absl::Minutes(59);
  EXPECT_TRUE(book_->CheckStillValid(caller).ok());
  now_ += absl::Minutes(1);
  const absl::Status status = book_->Find(made.text()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(status.message(), HasSubstr("expired at 2023-11-14T23:13:20Z"));
  EXPECT_FALSE(book_->CheckStillValid(caller).ok());
}

TEST_F(TokenBookTest, ARevokedTokenIsGoodForNothing) {
  const auto made = *Create(v1::ROLE_OWNER, "alice");
  const Caller caller = *book_->Find(made.text());
  EXPECT_EQ(book_->Revoke(made.token().id())->owner(), "alice");
  EXPECT_FALSE(book_->Find(made.text()).ok());
  EXPECT_FALSE(book_->CheckStillValid(caller).ok());
  EXPECT_TRUE(absl::IsNotFound(book_->Revoke(made.token().id()).status()));
  ASSERT_TRUE(store_.GoOn().ok());
  Load();
  EXPECT_FALSE(book_->Find(made.text()).ok());
}

TEST_F(TokenBookTest, ARevocationMayBeAskedForUntilItIsOnDisk) {
  const auto made = *Create(v1::ROLE_OWNER, "alice");
  const std::string& id = made.token().id();
  store_.Stall();
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = book_->Revoke(id).status();
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("revoke it once more"));
    EXPECT_FALSE(book_->Find(made.text()).ok());
    EXPECT_TRUE(book_->List().empty());
  }
  ASSERT_TRUE(store_.GoOn().ok());
  EXPECT_TRUE(absl::IsNotFound(book_->Revoke(id).status()));
  Load();
  EXPECT_FALSE(book_->Find(made.text()).ok());
}

TEST_F(TokenBookTest, TheAutomaticOneIsAnAdministratorsAndDiesWithTheProcess) {
  const std::string text = book_->CreateAutomatic();
  EXPECT_TRUE(book_->Find(text)->is_admin());
  EXPECT_TRUE(book_->List().empty());
  Load();
  EXPECT_FALSE(book_->Find(text).ok());
}

TEST_F(TokenBookTest, WhatMakesNoSenseIsRefused) {
  EXPECT_FALSE(Create(v1::ROLE_UNSPECIFIED, "alice").ok());
  EXPECT_FALSE(Create(static_cast<v1::Role>(17), "alice").ok());
  EXPECT_FALSE(Create(v1::ROLE_RELAY, "").ok());
  EXPECT_FALSE(Create(v1::ROLE_ADMIN, "alice").ok());
  EXPECT_FALSE(Create(v1::ROLE_VIEWER, "alice", absl::Seconds(-1)).ok());
  for (const char* owner : {"(nobody)", "a b", "a\n", "\xff"}) {
    EXPECT_FALSE(Create(v1::ROLE_VIEWER, owner).ok()) << owner;
  }
  EXPECT_FALSE(Create(v1::ROLE_VIEWER, std::string(65, 'a')).ok());
}

TEST(Nobody, SeesNothing) {
  EXPECT_FALSE(Caller().Sees(""));
  EXPECT_FALSE(Caller().Sees(Caller().owner));
  EXPECT_FALSE(Caller().is_admin());
}

}  // namespace
}  // namespace traincheck::server
