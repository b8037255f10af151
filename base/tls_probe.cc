#include "base/tls_probe.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace traincheck {
namespace {

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Connection = std::unique_ptr<SSL, FreeSsl>;
using Context = std::unique_ptr<SSL_CTX, FreeSsl>;
using Addresses = std::unique_ptr<addrinfo, FreeSsl>;

// OpenSSL writes without MSG_NOSIGNAL, and a peer that is gone by then must not
// end the program: a SIGPIPE for this thread is held back and taken away.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~WithoutSigpipe() {
    // One that was pending before is the program's own and stays.
    const timespec at_once = {};
    while (!was_pending_ && sigtimedwait(&sigpipe_, nullptr, &at_once) < 0 &&
           errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

struct Peer {
  std::string host;
  std::string port;
};

// REQUIRES: a valid host:port address (KindOfAddress).
Peer Split(absl::string_view address) {
  const size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  return {std::string(host), std::string(address.substr(colon + 1))};
}

// -1: nobody listens there.
int Connect(const Peer& peer, absl::Duration patience) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(peer.host.c_str(), peer.port.c_str(), &hints, &found) != 0) {
    return -1;
  }
  const Addresses addresses(found);
  const timeval limit = absl::ToTimeval(patience);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    // On Linux the limit of sending bounds connect, too.
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) return fd;
    close(fd);
  }
  return -1;
}

bool IsIpAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// The name or address that the certificate has to be made for, as gRPC's
// clients check it.
void ExpectHost(SSL* ssl, const std::string& host) {
  if (IsIpAddress(host)) {
    // It is not sent as the server's name, which is never an address (RFC
    // 6066).
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str());
  } else {
    SSL_set1_host(ssl, host.c_str());
    SSL_set_tlsext_host_name(ssl, host.c_str());
  }
}

// In words that say what to do; OpenSSL's own text is added for rare causes.
std::string Explain(long verified, const Peer& peer,
                    const std::string& ca_file) {
  switch (verified) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "the server's certificate has expired: traincheckctl certs renew "
             "makes another one, which the server takes without a restart";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "the server's certificate is not valid yet: the clock of this "
             "host or of the authority's is wrong";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::StrCat("the server's certificate is not made for ",
                          peer.host,
                          ": name a host that it is made for, or renew it with "
                          "traincheckctl certs renew --host");
    default:
      return absl::StrCat(
          "the server's certificate is not signed by the "
          "authority in ",
          ca_file, " (", X509_verify_cert_error_string(verified), ")");
  }
}

// What the handshake of a client that pins the authority ends with; without
// one, of a client that trusts everybody.
std::string Handshake(int fd, const Peer& peer, const std::string& ca_file) {
  const Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return "";
  // What gRPC speaks at least.
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  if (!ca_file.empty()) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_load_verify_locations(context.get(), ca_file.c_str(), nullptr);
  }
  const Connection ssl(SSL_new(context.get()));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), fd) != 1) return "";
  // Offered as gRPC's clients offer it.
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  if (!ca_file.empty()) ExpectHost(ssl.get(), peer.host);
  const bool agreed = SSL_connect(ssl.get()) == 1;
  // The earliest error is the cause. The queue is the thread's, so that nothing
  // is left in it for whoever asks next.
  const unsigned long error = ERR_peek_error();
  ERR_clear_error();
  if (ca_file.empty()) {
    return agreed ? "the server speaks TLS: name the certificate of its "
                    "authority with --tls-ca or TRAINCHECK_TLS_CA"
                  : "";
  }
  if (agreed) return "";
  const long verified = SSL_get_verify_result(ssl.get());
  if (verified != X509_V_OK) return Explain(verified, peer, ca_file);
  // OpenSSL takes the first bytes of a plain-text answer for a record of a
  // version that it does not know.
  const bool plain = ERR_GET_LIB(error) == ERR_LIB_SSL &&
                     ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER;
  return plain ? "the server speaks plain text, not TLS: start it with "
                 "--tls-cert and --tls-key, or unset TRAINCHECK_TLS_CA"
               : "";
}

}  // namespace

// Called after a channel has failed. The probe makes a connection of its own,
// because gRPC does not say why a handshake failed.
std::string WhatIsWrongWithTls(absl::string_view address,
                               const std::string& ca_file,
                               absl::Duration patience) {
  if (absl::StartsWith(address, "unix:")) return "";
  const Peer peer = Split(address);
  const int fd = Connect(peer, patience);
  if (fd < 0) return "";
  const WithoutSigpipe without_sigpipe;
  std::string wrong = Handshake(fd, peer, ca_file);
  close(fd);
  return wrong;
}

}  // namespace traincheck
