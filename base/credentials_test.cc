#include "base/credentials.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/certificates.h"
#include "base/private_file.h"
#include "base/runtime_folder.h"
#include "base/tls_probe.h"

namespace traincheck {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kYear = absl::Hours(24 * 365);

TEST(Addresses, AreSocketsLoopbackOrTheNetwork) {
  for (const char* address :
       {"127.0.0.1:7471", "localhost:7471", "[::1]:7471"}) {
    EXPECT_EQ(*KindOfAddress(address), AddressKind::kLoopback) << address;
  }
  for (const char* address :
       {"0.0.0.0:7471", "10.0.0.1:7471", "127.8.9.1:0", "example.org:7471",
        "[::]:7471", "localhost.example.org:7471", "127.0.0.1.example.org:1"}) {
    EXPECT_EQ(*KindOfAddress(address), AddressKind::kNetwork) << address;
  }
  EXPECT_EQ(*KindOfAddress("unix:/run/s"), AddressKind::kSocket);
  for (const char* address : {"", "7471", ":7471", "localhost", "localhost:",
                              "localhost:x", "localhost:70000", "unix:"}) {
    EXPECT_EQ(KindOfAddress(address).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(Addresses, BeyondThisHostNeedFilesOfTls) {
  const absl::Status client = CheckAddress("10.0.0.1:7471");
  EXPECT_EQ(client.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(client.message(), HasSubstr("10.0.0.1:7471"));
  EXPECT_THAT(client.message(), HasSubstr("TRAINCHECK_TLS_CA"));
  const absl::Status server = CheckListenAddress("0.0.0.0:7471");
  EXPECT_EQ(server.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(server.message(), HasSubstr("--tls-cert"));
  EXPECT_FALSE(MakeChannel("10.0.0.1:1", {}).ok());
  EXPECT_FALSE(MakeServerCredentials("0.0.0.0:1").ok());
}

// Answers every call with NOT_FOUND and the token that came with it.
class EchoServer final : public grpc::CallbackGenericService {
 public:
  explicit EchoServer(const ServerFiles& files = {}) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:0", *MakeServerCredentials("127.0.0.1:0", files), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~EchoServer() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  std::string port() const { return std::to_string(port_); }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Answer final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Answer(const std::string& text) {
        Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, text));
      }
      void OnDone() override { delete this; }
    };
    std::string seen = "no token";
    for (const auto& [key, value] : context->client_metadata()) {
      if (key == "authorization") seen.assign(value.data(), value.size());
    }
    return new Answer(seen);
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct Answer {
  grpc::Status status;
  std::string certificate;  // the server's
};

Answer Ask(const std::string& address, const ClientFiles& files) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = MakeChannel(address, arguments, files);
  if (!channel.ok()) {
    return {grpc::Status(static_cast<grpc::StatusCode>(channel.status().code()),
                         std::string(channel.status().message())),
            ""};
  }
  grpc::GenericStub stub(*channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/a.Service/Method", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  Answer answer;
  call->Finish(&answer.status, nullptr);
  queue.Next(&tag, &ok);
  if (const auto peer = context.auth_context()) {
    for (const auto& pem : peer->FindPropertyValues("x509_pem_cert")) {
      answer.certificate.assign(pem.data(), pem.size());
    }
  }
  return answer;
}

std::string Wrong(const std::string& address, const ClientFiles& files) {
  return WhatIsWrongWithTls(address, files.tls_ca, absl::Seconds(5));
}

bool IsServed(const Answer& answer) {
  return answer.status.error_code() == grpc::StatusCode::NOT_FOUND;
}

class Tls : public testing::Test {
 protected:
  Tls()
      : folder_(testing::TempDir() + "/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    authority_ = *MakeAuthority(kYear);
    Write("ca.pem", authority_.certificate);
    Renew({"localhost", "127.0.0.1"}, kYear);
  }

  std::string Path(const std::string& name) { return folder_ + "/" + name; }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WritePrivateFile(Path(name), text).ok());
  }

  void Renew(const std::vector<std::string>& hosts, absl::Duration lifetime,
             const std::string& key = "") {
    pair_ = *MakeServerCertificate(authority_, hosts, lifetime, key);
    Write("server.key", pair_.key);
    Write("server.pem", pair_.certificate);
  }

  ServerFiles files() { return {Path("server.pem"), Path("server.key")}; }
  ClientFiles pinned() { return {Path("ca.pem"), ""}; }

  const std::string folder_;
  KeyAndCertificate authority_;
  KeyAndCertificate pair_;
};

TEST_F(Tls, ServesClientsThatPinTheAuthority) {
  const EchoServer server(files());
  for (const std::string host : {"127.0.0.1:", "localhost:"}) {
    const Answer answer = Ask(host + server.port(), pinned());
    EXPECT_TRUE(IsServed(answer)) << answer.status.error_message();
    EXPECT_EQ(answer.certificate, pair_.certificate);
    EXPECT_EQ(Wrong(host + server.port(), pinned()), "");
  }
}

TEST_F(Tls, AnotherAuthorityIsNotTrusted) {
  const EchoServer server(files());
  Write("other.pem", MakeAuthority(kYear)->certificate);
  const std::string address = "127.0.0.1:" + server.port();
  const ClientFiles other = {Path("other.pem"), ""};
  EXPECT_EQ(Ask(address, other).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Wrong(address, other), HasSubstr("is not signed by"));
}

TEST_F(Tls, ACertificateForAnotherHostIsNotTrusted) {
  Renew({"node7", "10.1.2.3"}, kYear);
  const EchoServer server(files());
  const std::string address = "127.0.0.1:" + server.port();
  EXPECT_EQ(Ask(address, pinned()).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Wrong(address, pinned()), HasSubstr("is not made for 127.0.0.1"));
}

TEST_F(Tls, ACertificateThatExpiresIsNotTrustedAndItsRenewalIs) {
  Renew({"127.0.0.1"}, absl::Seconds(3));
  const EchoServer server(files());
  const std::string address = "127.0.0.1:" + server.port();
  const std::string first = pair_.certificate;
  EXPECT_TRUE(IsServed(Ask(address, pinned())));
  const auto until = absl::Now() + absl::Seconds(30);
  while (IsServed(Ask(address, pinned())) && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_FALSE(IsServed(Ask(address, pinned())));
  EXPECT_THAT(Wrong(address, pinned()), HasSubstr("has expired"));
  // The key stays: one file changes, by one rename.
  Renew({"127.0.0.1"}, kYear, pair_.key);
  Answer answer = Ask(address, pinned());
  while (!IsServed(answer) && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(100));
    answer = Ask(address, pinned());
  }
  EXPECT_EQ(answer.certificate, pair_.certificate);
  EXPECT_NE(answer.certificate, first);
}

TEST_F(Tls, PlainTextAndTlsDoNotMeet) {
  const EchoServer tls(files());
  EXPECT_FALSE(IsServed(Ask("127.0.0.1:" + tls.port(), {})));
  EXPECT_THAT(Wrong("127.0.0.1:" + tls.port(), {}), HasSubstr("speaks TLS"));
  const EchoServer plain;
  EXPECT_FALSE(IsServed(Ask("127.0.0.1:" + plain.port(), pinned())));
  EXPECT_THAT(Wrong("127.0.0.1:" + plain.port(), pinned()),
              HasSubstr("speaks plain text"));
  EXPECT_EQ(Wrong("127.0.0.1:" + plain.port(), {}), "");
}

TEST_F(Tls, FilesOfAServerAreLookedAtFirst) {
  EXPECT_TRUE(CheckListenAddress("0.0.0.0:1", files()).ok());
  chmod(Path("server.key").c_str(), 0644);
  absl::Status status = CheckListenAddress("0.0.0.0:1", files());
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("mode 0644"));
  Write("server.key", MakeAuthority(kYear)->key);
  status = CheckListenAddress("0.0.0.0:1", files());
  EXPECT_THAT(status.message(), HasSubstr("is not the one"));
  Renew({"a"}, absl::Seconds(-1));
  status = CheckListenAddress("0.0.0.0:1", files());
  EXPECT_THAT(status.message(), HasSubstr("expired"));
  EXPECT_FALSE(
      CheckListenAddress("127.0.0.1:1", {Path("server.pem"), ""}).ok());
  EXPECT_FALSE(CheckAddress("node:1", {Path("none.pem"), ""}).ok());
  EXPECT_FALSE(CheckAddress("node:1", {Path("server.key"), ""}).ok());
}

TEST_F(Tls, TheTokenOfAFileGoesWithEachCall) {
  const EchoServer server(files());
  const std::string address = "127.0.0.1:" + server.port();
  const ClientFiles named = {Path("ca.pem"), Path("token")};
  EXPECT_THAT(Ask(address, named).status.error_message(),
              HasSubstr(Path("token")));
  Write("token", "one\n");
  EXPECT_EQ(Ask(address, named).status.error_message(), "Bearer one");
  Write("token", "two\n");
  EXPECT_EQ(Ask(address, named).status.error_message(), "Bearer two");
  chmod(Path("token").c_str(), 0640);
  const Answer answer = Ask(address, named);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("mode 0640"));
}

TEST_F(Tls, LoopbackUsesWhatTheDaemonHasLeftThere) {
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  chmod(folder_.c_str(), 0700);
  ASSERT_TRUE(MakeRuntimeFolder().ok());
  const EchoServer server;
  const std::string address = "127.0.0.1:" + server.port();
  EXPECT_EQ(Ask(address, {}).status.error_message(), "no token");
  ASSERT_TRUE(WritePrivateFile(AutomaticTokenFile(server.port()), "mine").ok());
  EXPECT_EQ(Ask(address, {}).status.error_message(), "Bearer mine");
}

// A certificate of somebody else's that names host "node7" and an address of
// three bytes.
std::string CertificateWithAnOddAddress() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_EXTENSION* names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name,
                          "DER:30:0c:82:05:6e:6f:64:65:37:87:03:01:02:03");
  X509_add_ext(certificate, names, -1);
  X509_sign(certificate, key, EVP_sha256());
  BIO* text = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(text, certificate);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text, &data);
  std::string pem(data, static_cast<size_t>(size));
  BIO_free(text);
  X509_EXTENSION_free(names);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pem;
}

TEST(Certificates, AnAddressOfAnotherSizeNamesNoHost) {
  const auto facts = ReadCertificate(CertificateWithAnOddAddress());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(facts->hosts, testing::ElementsAre("node7"));
}

// The key with a passphrase, as openssl genpkey -aes256 writes it.
std::string WithPassphrase(const std::string& key_pem) {
  BIO* const from = BIO_new_mem_buf(key_pem.data(), -1);
  EVP_PKEY* const key =
      PEM_read_bio_PrivateKey(from, nullptr, nullptr, nullptr);
  BIO* const text = BIO_new(BIO_s_mem());
  const unsigned char passphrase[] = "secret";
  PEM_write_bio_PrivateKey(text, key, EVP_aes_256_cbc(), passphrase, 6, nullptr,
                           nullptr);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text, &data);
  std::string pem(data, static_cast<size_t>(size));
  BIO_free(text);
  EVP_PKEY_free(key);
  BIO_free(from);
  return pem;
}

TEST_F(Tls, AKeyWithAPassphraseIsRefusedAndNobodyIsAskedForIt) {
  const auto authority = *MakeAuthority(kYear);
  auto pair = *MakeServerCertificate(authority, {"localhost"}, kYear, "");
  pair.key = WithPassphrase(pair.key);
  const absl::Status refused = CheckServerPair(pair, absl::Now());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("passphrase"));
}

TEST_F(Tls, APairIsCheckedAgainstBothEndsOfItsTime) {
  EXPECT_TRUE(CheckServerPair(pair_, absl::Now()).ok());
  for (const absl::Duration off : {-kYear, 2 * kYear}) {
    EXPECT_EQ(CheckServerPair(pair_, absl::Now() + off).code(),
              absl::StatusCode::kFailedPrecondition)
        << off;
  }
}

// Ends each connection at once, and resets it.
class ResettingServer {
 public:
  ResettingServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, size), 0);
    EXPECT_EQ(listen(listener_, 10), 0);
    EXPECT_EQ(getsockname(listener_, any, &size), 0);
    port_ = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] {
      const linger reset = {.l_onoff = 1, .l_linger = 0};
      for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0; close(fd)) {
        shutdown(fd, SHUT_WR);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      }
    });
  }
  ~ResettingServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& port() const { return port_; }

 private:
  const int listener_;
  std::string port_;
  std::thread thread_;
};

std::atomic<int> g_sigpipes = 0;

TEST_F(Tls, AServerThatResetsTheConnectionDoesNotEndTheClient) {
  auto* const before = signal(SIGPIPE, [](int) { ++g_sigpipes; });
  const ResettingServer server;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Wrong("127.0.0.1:" + server.port(), pinned()), "");
  }
  signal(SIGPIPE, before);
  EXPECT_EQ(g_sigpipes, 0);
}

}  // namespace
}  // namespace traincheck
