// The tokens that the daemon knows, by id. A token's text is
//
//   tc1.ID.SECRET      ID: 16 hex digits, SECRET: 64
//
// The store has its SHA-256; the text is given out once, by Create.
//
// The store must be closed before the book is destroyed.
//
// Threads: safe on any thread. What a call changes is durable when it returns.
#ifndef TRAINCHECK_SERVER_ACCESS_TOKEN_BOOK_H_
#define TRAINCHECK_SERVER_ACCESS_TOKEN_BOOK_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/access.pb.h"
#include "server/access/caller.h"
#include "server/store/store.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

class TokenBook {
 public:
  // `store` must outlive the book.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<TokenBook>> Load(
      Store* store, std::function<absl::Time()> now = absl::Now);
  TokenBook(const TokenBook&) = delete;
  TokenBook& operator=(const TokenBook&) = delete;

  // InvalidArgument for a request without a role, with an owner that is not a
  // name, or that has expired; ResourceExhausted over kMaxTokens.
  [[nodiscard]] absl::StatusOr<v1::CreateTokenReply> CreateUntrusted(
      const v1::CreateTokenRequest& request);
  // By id.
  std::vector<v1::Token> List() const;
  // Called when a token is revoked, on the thread that revokes it. REQUIRES:
  // nothing was revoked yet.
  void SetRevocationObserver(std::function<void()> observer) {
    on_revoked_ = std::move(observer);
  }
  // What it was; NotFound. Unavailable if the disk does not take it: the token
  // is good for nothing from then on, but a daemon that starts before the disk
  // takes writes knows it again. Who asks again is answered as the first time.
  [[nodiscard]] absl::StatusOr<v1::Token> Revoke(const std::string& id);

  // An administrator's, known to this process alone, for as long as it lives:
  // for the daemon's own user.
  std::string CreateAutomatic();

  // Who has this text; Unauthenticated, saying what to do.
  [[nodiscard]] absl::StatusOr<Caller> Find(std::string_view text) const;
  // Is the token that a caller came with still good?
  [[nodiscard]] absl::Status CheckStillValid(const Caller& caller) const;
  // When that ends, unless it is revoked before.
  absl::Time ExpiryOf(const Caller& caller) const;

 private:
  TokenBook(Store* store, std::function<absl::Time()> now)
      : store_(*store), now_(std::move(now)) {}

  absl::Status Read();
  absl::Status CheckExpiry(const std::string& id,
                           const stored::Token& token) const;

  Store& store_;
  const std::function<absl::Time()> now_;
  std::function<void()> on_revoked_;
  mutable absl::Mutex mutex_;
  std::map<std::string, stored::Token> tokens_ ABSL_GUARDED_BY(mutex_);
  // Those that are revoked and not deleted on disk yet.
  std::map<std::string, stored::Token> leaving_ ABSL_GUARDED_BY(mutex_);
  // Those of CreateAutomatic, which are in no list.
  std::map<std::string, stored::Token> automatic_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ACCESS_TOKEN_BOOK_H_
