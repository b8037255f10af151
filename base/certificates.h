// Certificates of a private authority: an administrator makes the authority
// and the daemon's certificate, clients are given the authority's certificate
// and trust no other.
//
// Keys are on P-256 and PEM, as certificates are. Errors say which file or
// name is wrong.
//
// Threads: all functions are pure.
#ifndef TRAINCHECK_BASE_CERTIFICATES_H_
#define TRAINCHECK_BASE_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace traincheck {

struct KeyAndCertificate {
  std::string key;
  std::string certificate;
};

// An authority that may sign certificates of servers and nothing else.
[[nodiscard]] absl::StatusOr<KeyAndCertificate> MakeAuthority(
    absl::Duration lifetime);

// A server's certificate, for DNS names and addresses. `key` is kept if it is
// not empty: then one file changes and not two.
[[nodiscard]] absl::StatusOr<KeyAndCertificate> MakeServerCertificate(
    const KeyAndCertificate& authority, const std::vector<std::string>& hosts,
    absl::Duration lifetime, const std::string& key);

struct CertificateFacts {
  std::vector<std::string> hosts;
  absl::Time begins;
  absl::Time ends;
};
// Of the first certificate of a PEM text.
[[nodiscard]] absl::StatusOr<CertificateFacts> ReadCertificate(
    const std::string& pem);

// Can a server answer with these at `now`? FailedPrecondition: the key is
// another certificate's, or that is not valid now.
[[nodiscard]] absl::Status CheckServerPair(const KeyAndCertificate& pair,
                                           absl::Time now);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_CERTIFICATES_H_
