// Tokens as clients send them, in the metadata of calls, to a daemon whose
// administrator makes and revokes some and restarts it: who has the whole text
// of a token that is good gets in as its owner, and nobody else.
//
// Input: operations, one byte each (which token: bits 4 to 7) with the operands
// behind it.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/access/gate_service.h"
#include "server/access/token_book.h"
#include "server/store/keys.h"
#include "server/store/memory_store_for_testing.h"
#include "spdlog/spdlog.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck::server {
namespace {

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

constexpr absl::Duration kStep = absl::Minutes(10);
constexpr size_t kMaxTokens = 16;
// That every role but the relay's may call.
constexpr char kMethod[] = "/traincheck.v1.Control/GetStatus";

struct Made {
  std::string text;
  v1::Token token;
  bool revoked = false;
};

class Play {
 public:
  explicit Play(FuzzInput* input) : input_(*input) { Start(); }

  void Run() {
    while (!input_.empty()) {
      const uint8_t operation = input_.Byte();
      Do(operation % 16, operation / 16);
    }
    for (const Made& made : made_) Try(made.text);
  }

 private:
  // The daemon, started on what is stored.
  void Start() {
    store_.Sync();
    auto book = TokenBook::Load(&store_, [this] { return now_; });
    Require(book.ok());
    gate_.reset();
    book_ = *std::move(book);
    gate_ = std::make_unique<Gate>(book_.get());
    gate_->Open();
  }

  void Do(uint8_t operation, size_t which) {
    Made* const made = which < made_.size() ? &made_[which] : nullptr;
    switch (operation) {
      case 0:
        return Create();
      case 1:
        if (made != nullptr) Revoke(made);
        return;
      case 2:
        now_ += kStep * input_.Byte();
        return;
      case 3:
        return Start();
      case 4:
        return Try(input_.Bytes(input_.Byte()));
      case 5:
        return TryLike(made);
      case 6:
        return Call("Bearer " + input_.Bytes(input_.Byte()));
      case 7:
        return Call(input_.Bytes(input_.Byte()));
      case 8:
        return RevokeAny();
      case 9:
        return StoreAny();
      default:
        if (made != nullptr) Try(made->text);
    }
  }

  void Create() {
    v1::CreateTokenRequest request;
    const uint8_t bits = input_.Byte();
    request.set_role(static_cast<v1::Role>(bits % 8));
    request.set_owner(input_.Bytes(bits / 8 % 8));
    request.set_comment(input_.Bytes(bits / 64));
    const uint8_t steps = input_.Byte();
    if (steps != 0) {
      request.set_expires_unix_ns(
          static_cast<uint64_t>(absl::ToUnixNanos(now_ + kStep * (steps - 1))));
    }
    const auto reply = book_->CreateUntrusted(request);
    Require(reply.ok() || !reply.status().message().empty());
    if (!reply.ok() || made_.size() == kMaxTokens) return;
    made_.push_back({.text = reply->text(), .token = reply->token()});
  }

  void Revoke(Made* made) {
    Require(book_->Revoke(made->token.id()).ok() == !made->revoked);
    made->revoked = true;
  }

  void RevokeAny() {
    const std::string id = input_.Bytes(input_.Byte());
    const bool revoked = book_->Revoke(id).ok();
    bool was_there = false;
    for (Made& made : made_) {
      if (made.token.id() != id || made.revoked) continue;
      was_there = made.revoked = true;
    }
    Require(revoked == was_there || foreign_);
  }

  // What a store of another version could hold.
  void StoreAny() {
    WriteSet writes;
    const std::string id = input_.Bytes(input_.Byte() % 32);
    writes.Put(Table::kMeta, std::string(kTokenPrefix) + "f" + id,
               input_.Bytes(input_.Byte()));
    store_.Write(std::move(writes), nullptr);
    store_.Sync();
    auto book = TokenBook::Load(&store_, [this] { return now_; });
    if (!book.ok()) {
      Require(!book.status().message().empty());
      WriteSet undone;
      undone.Delete(Table::kMeta, std::string(kTokenPrefix) + "f" + id);
      store_.Write(std::move(undone), nullptr);
      return store_.Sync();
    }
    foreign_ = true;
  }

  // A token's text with a piece of it changed, cut off or added.
  void TryLike(const Made* made) {
    std::string text = made == nullptr ? std::string() : made->text;
    const size_t at = input_.Byte() % (text.size() + 1);
    const size_t removed = input_.Byte();
    text.replace(at, removed, input_.Bytes(input_.Byte()));
    Try(text);
  }

  // Whose token it is, if it is good now.
  const Made* Good(const std::string& text) const {
    for (const Made& made : made_) {
      const uint64_t ends = made.token.expires_unix_ns();
      const bool over =
          ends != 0 && now_ >= absl::FromUnixNanos(static_cast<int64_t>(ends));
      if (made.text == text && !made.revoked && !over) return &made;
    }
    return nullptr;
  }

  void Try(const std::string& text) {
    const Made* const good = Good(text);
    const absl::StatusOr<Caller> caller = book_->Find(text);
    Require(caller.ok() == (good != nullptr));
    if (!caller.ok()) {
      Require(absl::IsUnauthenticated(caller.status()));
    } else {
      Require(caller->owner == good->token.owner() &&
              caller->role == good->token.role() &&
              caller->token == good->token.id());
      Require(book_->CheckStillValid(*caller).ok());
    }
    Call("Bearer " + text);
  }

  void Call(const std::string& authorization) {
    constexpr size_t kBearer = 7;
    const Made* const good = authorization.compare(0, kBearer, "Bearer ") == 0
                                 ? Good(authorization.substr(kBearer))
                                 : nullptr;
    const std::string method = kMethod;
    const Metadata metadata = {{":path", method},
                               {"authorization", authorization}};
    Metadata none;
    std::multimap<grpc::string, grpc::string> consumed;
    const grpc::Status status =
        gate_->Process(metadata, nullptr, &consumed, &consumed);
    const bool may = good != nullptr && good->token.role() != v1::ROLE_RELAY;
    Require(status.ok() == may);
    Require(status.ok() || !status.error_message().empty());
  }

  FuzzInput& input_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  MemoryStore store_;
  std::unique_ptr<TokenBook> book_;
  std::unique_ptr<Gate> gate_;
  std::vector<Made> made_;
  bool foreign_ = false;  // there are tokens in the store that nobody made
};

}  // namespace
}  // namespace traincheck::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spdlog::set_level(spdlog::level::off);
  traincheck::FuzzInput input(data, size);
  traincheck::server::Play(&input).Run();
  return 0;
}
