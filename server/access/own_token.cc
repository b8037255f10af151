#include "server/access/own_token.h"

#include <unistd.h>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "base/credentials.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "base/private_file.h"
#include "base/runtime_folder.h"

namespace traincheck::server {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(1);

}  // namespace

OwnToken::OwnToken(const std::string& text, const std::string& data_dir,
                   const std::string& address)
    : text_(text + "\n") {
  const absl::StatusOr<AddressKind> kind = KindOfAddress(address);
  if (!kind.ok() || *kind == AddressKind::kSocket) return;
  missing_.push_back(data_dir + "/admin.token");
  // Clients look there by themselves, so it is for addresses that can only be
  // this host.
  if (*kind == AddressKind::kLoopback) {
    missing_.push_back(AutomaticTokenFile(PortOf(address)));
  }
}

// A daemon that listens on a port alone has not made the runtime folder yet:
// only the default socket needs it (TakeAddress).
absl::Status OwnToken::Write(const std::string& path) const {
  if (absl::StartsWith(path, RuntimeFolder())) {
    const absl::Status made = MakeRuntimeFolder().status();
    if (!made.ok()) return made;
  }
  return WritePrivateFile(path, text_);
}

void OwnToken::Tick(absl::Time now) {
  if (missing_.empty() || now < next_try_) return;
  next_try_ = now + kRetry;
  absl::Status error;
  // Each on its own: where one folder cannot be written to, the other file
  // still serves.
  std::erase_if(missing_, [&](const std::string& path) {
    const absl::Status status = Write(path);
    if (status.ok()) written_.push_back(path);
    error.Update(status);
    return status.ok();
  });
  // Once for each error and not each second.
  if (!error.ok() && error != last_error_) {
    spdlog::error(
        "the token of this user is not there, so clients need one of their own "
        "until it is error={}",
        QuotePrintable(std::string(error.message())));
  }
  last_error_ = error;
}

OwnToken::~OwnToken() {
  for (const std::string& path : written_) {
    // Another daemon may have it by now.
    if (ReadPrivateFile(path).value_or("") == text_) unlink(path.c_str());
  }
}

}  // namespace traincheck::server
