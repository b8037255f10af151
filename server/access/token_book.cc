#include "server/access/token_book.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "base/secret.h"
#include "server/access/method_roles.h"
#include "server/store/keys.h"
#include "server/store/named_entries.h"

namespace traincheck::server {
namespace {

constexpr std::string_view kPrefix = "tc1.";
// A token is found by its id, which need not be secret: it stands in lists and
// in the log.
constexpr size_t kIdBytes = 8;
// Nobody guesses so many random bits, so a fast hash without salt keeps the
// secret.
constexpr size_t kSecretBytes = 32;
constexpr size_t kIdDigits = 2 * kIdBytes;
constexpr size_t kTextBytes = kPrefix.size() + kIdDigits + 1 + 2 * kSecretBytes;
constexpr size_t kMaxTokens = 100'000;
constexpr size_t kMaxOwnerBytes = 64;
constexpr size_t kMaxCommentBytes = 256;
constexpr absl::Duration kPatience = absl::Seconds(10);

absl::Status Unknown() {
  return absl::UnauthenticatedError(
      "the token is not known to this daemon: it was revoked or is another "
      "daemon's. An administrator makes another one: traincheckctl token "
      "create");
}

// The text comes from the network: nothing of it is used before its shape is
// right.
std::optional<std::string> IdOf(std::string_view text) {
  if (text.size() != kTextBytes || text.substr(0, kPrefix.size()) != kPrefix ||
      text[kPrefix.size() + kIdDigits] != '.') {
    return std::nullopt;
  }
  return std::string(text.substr(kPrefix.size(), kIdDigits));
}

v1::Token ToApi(const std::string& id, const stored::Token& token) {
  v1::Token api;
  api.set_id(id);
  api.set_role(static_cast<v1::Role>(token.role()));
  api.set_owner(token.owner());
  api.set_created_unix_ns(token.created_unix_ns());
  api.set_expires_unix_ns(token.expires_unix_ns());
  api.set_comment(token.comment());
  return api;
}

// The role is one that CheckRequest has let through when the token was made.
Caller CallerOf(const std::string& id, const stored::Token& token) {
  return {static_cast<v1::Role>(token.role()), token.owner(), id};
}

// Owners are compared byte by byte and stand in messages without quotes.
bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kMaxOwnerBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' ||
                  c == '@';
         });
}

absl::Status CheckRequest(const v1::CreateTokenRequest& request,
                          absl::Time now) {
  const bool admin = request.role() == v1::ROLE_ADMIN;
  if (!v1::Role_IsValid(request.role()) ||
      request.role() == v1::ROLE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        "a token needs a role: relay, viewer, owner or admin");
  }
  if (admin && !request.owner().empty()) {
    return absl::InvalidArgumentError(
        "an administrator's token has no owner: it is for what belongs to "
        "anybody");
  }
  if (!admin && !IsName(request.owner())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a token for a ", std::string(RoleName(request.role())),
                     " needs an owner: at most ", kMaxOwnerBytes,
                     " letters, digits and . _ - @"));
  }
  if (request.comment().size() > kMaxCommentBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the comment has more than ", kMaxCommentBytes, " bytes"));
  }
  if (request.expires_unix_ns() != 0 &&
      absl::FromUnixNanos(static_cast<int64_t>(request.expires_unix_ns())) <=
          now) {
    return absl::InvalidArgumentError("the token would have expired already");
  }
  return absl::OkStatus();
}

std::string TokenKey(const std::string& id) {
  return absl::StrCat(kTokenPrefix, id);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenBook>> TokenBook::Load(
    Store* store, std::function<absl::Time()> now) {
  std::unique_ptr<TokenBook> book(new TokenBook(store, std::move(now)));
  if (absl::Status s = book->Read(); !s.ok()) return s;
  return book;
}

absl::Status TokenBook::Read() {
  absl::MutexLock lock(&mutex_);
  return ReadEntries(store_, kTokenPrefix, &tokens_);
}

absl::StatusOr<v1::CreateTokenReply> TokenBook::CreateUntrusted(
    const v1::CreateTokenRequest& request) {
  const absl::Time now = now_();
  if (absl::Status s = CheckRequest(request, now); !s.ok()) return s;
  const std::string id = RandomHex(kIdBytes);
  v1::CreateTokenReply reply;
  reply.set_text(
      absl::StrCat(std::string(kPrefix), id, ".", RandomHex(kSecretBytes)));
  stored::Token token;
  // The hash is of the whole text, id included. The text itself is kept
  // nowhere.
  token.set_hash(Sha256(reply.text()));
  token.set_role(request.role());
  token.set_owner(request.owner());
  token.set_created_unix_ns(static_cast<uint64_t>(absl::ToUnixNanos(now)));
  token.set_expires_unix_ns(request.expires_unix_ns());
  token.set_comment(EscapeUnprintable(request.comment()));
  {
    absl::MutexLock lock(&mutex_);
    // Looked at and not reserved: calls at the same time may exceed it by as
    // many as there are, which does no harm.
    if (tokens_.size() >= kMaxTokens) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", kMaxTokens,
                       " tokens: revoke those that nobody uses any more"));
    }
  }
  // Without the lock: no call may wait for the disk.
  WriteSet writes;
  writes.Put(Table::kMeta, TokenKey(id), token.SerializeAsString());
  absl::Status written = store_.WriteAndWait(std::move(writes), kPatience);
  if (!written.ok()) return written;
  // Known only when it is durable, so that a token that works does so after a
  // restart.
  *reply.mutable_token() = ToApi(id, token);
  absl::MutexLock lock(&mutex_);
  tokens_[id] = std::move(token);
  return reply;
}

// Automatic tokens are left out: nobody made them, and they end with the
// daemon.
std::vector<v1::Token> TokenBook::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Token> list;
  for (const auto& [id, token] : tokens_) list.push_back(ToApi(id, token));
  return list;
}

absl::StatusOr<v1::Token> TokenBook::Revoke(const std::string& id) {
  v1::Token revoked;
  {
    absl::MutexLock lock(&mutex_);
    // At once, even if the disk takes a while.
    if (auto token = tokens_.extract(id)) leaving_.insert(std::move(token));
    // Also one whose deletion nobody has waited for to its end: a restart would
    // bring it back.
    const auto at = leaving_.find(id);
    if (at == leaving_.end()) {
      return absl::NotFoundError(
          absl::StrCat("there is no token ", QuotePrintable(id),
                       ": traincheckctl token list names all"));
    }
    revoked = ToApi(id, at->second);
  }
  // Before the disk: calls that are open with this token end now.
  if (on_revoked_) on_revoked_();
  WriteSet writes;
  writes.Delete(Table::kMeta, TokenKey(id));
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      [this, id] {
        absl::MutexLock lock(&mutex_);
        leaving_.erase(id);
      },
      kPatience);
  if (written.ok()) return revoked;
  return absl::Status(
      written.code(),
      absl::StrCat("token ", id,
                   " is refused from now on, but a daemon that starts before "
                   "its deletion is on disk takes it again: revoke it once "
                   "more (",
                   written.message(), ")"));
}

std::string TokenBook::CreateAutomatic() {
  const std::string id = RandomHex(kIdBytes);
  std::string text =
      absl::StrCat(std::string(kPrefix), id, ".", RandomHex(kSecretBytes));
  stored::Token token;
  token.set_hash(Sha256(text));
  token.set_role(v1::ROLE_ADMIN);
  absl::MutexLock lock(&mutex_);
  // Not stored: the daemon's user gets another one with each start.
  automatic_[id] = std::move(token);
  return text;
}

absl::Time TokenBook::ExpiryOf(const Caller& caller) const {
  absl::MutexLock lock(&mutex_);
  const auto at = tokens_.find(caller.token);
  if (at == tokens_.end() || at->second.expires_unix_ns() == 0) {
    return absl::InfiniteFuture();
  }
  return absl::FromUnixNanos(
      static_cast<int64_t>(at->second.expires_unix_ns()));
}

// The daemon's clock decides; a token without an end is good until it is
// revoked.
absl::Status TokenBook::CheckExpiry(const std::string& id,
                                    const stored::Token& token) const {
  if (token.expires_unix_ns() == 0) return absl::OkStatus();
  const absl::Time ends =
      absl::FromUnixNanos(static_cast<int64_t>(token.expires_unix_ns()));
  if (now_() < ends) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "token ", id, " expired at ",
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", ends, absl::UTCTimeZone()),
      ": an administrator makes another one (traincheckctl token create)"));
}

absl::StatusOr<Caller> TokenBook::Find(std::string_view text) const {
  const std::optional<std::string> id = IdOf(text);
  if (!id.has_value()) return Unknown();
  // Before the lock, which all calls of all clients take.
  const std::string hash = Sha256(text);
  absl::MutexLock lock(&mutex_);
  for (const auto* tokens : {&tokens_, &automatic_}) {
    const auto at = tokens->find(*id);
    if (at == tokens->end()) continue;
    // The same answer as for an id that is not there.
    if (!EqualInConstantTime(hash, at->second.hash())) return Unknown();
    if (absl::Status s = CheckExpiry(at->first, at->second); !s.ok()) return s;
    return CallerOf(at->first, at->second);
  }
  return Unknown();
}

absl::Status TokenBook::CheckStillValid(const Caller& caller) const {
  // A caller without a token came through the socket, or was nobody from the
  // beginning.
  if (caller.token.empty()) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  if (automatic_.count(caller.token) > 0) return absl::OkStatus();
  const auto at = tokens_.find(caller.token);
  if (at == tokens_.end()) return Unknown();
  return CheckExpiry(at->first, at->second);
}

}  // namespace traincheck::server
