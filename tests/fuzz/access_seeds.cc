#include "tests/fuzz/access_seeds.h"

#include <cstdint>
#include <initializer_list>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/certificates.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {
namespace {

constexpr absl::Duration kYear = absl::Hours(24 * 365);

template <typename T>
std::string Number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string Byte(size_t value) { return Number(static_cast<uint8_t>(value)); }
std::string Sized(const std::string& text) { return Byte(text.size()) + text; }

void AddRequests(std::vector<FuzzSeed>* seeds) {
  for (const char* request :
       {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "HEAD /metrics HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
        "\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\r\n",
        "GET http://x/metrics HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n", "CONNECT x:1 HTTP/1.1\r\n\r\n"}) {
    seeds->push_back({"http", Byte(255) + request});
    seeds->push_back({"http", Byte(7) + request});
  }
  seeds->push_back({"http", Byte(255) + "GET / HTTP/1.1\r\nX: " +
                                std::string(9000, 'x') + "\r\n\r\n"});
}

// As token_fuzzer.cc reads them; `steps` until it expires, 0: never.
std::string Create(size_t role, const std::string& owner, size_t steps) {
  return Byte(0) + Byte(role + 8 * owner.size()) + owner + Byte(steps);
}

void AddTokens(std::vector<FuzzSeed>* seeds) {
  const std::string all = Create(1, "al", 0) + Create(2, "al", 0) +
                          Create(3, "bob", 9) + Create(4, "", 0);
  const std::string tried = Byte(15) + Byte(31) + Byte(47) + Byte(63);
  const std::string revoked = Byte(1) + Byte(17) + Byte(33);
  const std::string later = Byte(2) + Byte(8);
  for (const std::string& rest :
       {tried, revoked + tried, later + tried, Byte(3) + tried,
        revoked + Byte(3) + tried + later + Byte(3) + tried}) {
    seeds->push_back({"token", all + rest});
  }
  // Near a token's text, and what stands for one.
  seeds->push_back({"token", all + Byte(5) + Byte(83) + Byte(1) + Byte(1) +
                                 "0" + Byte(21) + Byte(4) + Byte(0) + Byte(0) +
                                 Byte(37) + Byte(20) + Byte(65) + Byte(0)});
  seeds->push_back({"token", Byte(4) + Sized("tc1.0123456789abcdef." +
                                             std::string(64, '0'))});
  for (const char* text : {"", "Bearer", "bearer tc1.", "Basic YTpi"}) {
    seeds->push_back({"token", Byte(7) + Sized(text) + Byte(6) + Sized(text)});
  }
  seeds->push_back({"token", all + Byte(9) + Byte(3) + "abc" +
                                 Sized("\x12\x04spam") + Byte(3) + tried});
}

std::string Der(const std::string& pem) {
  std::string base64;
  for (const absl::string_view line : absl::StrSplit(pem, '\n')) {
    if (line.rfind("-----", 0) != 0) absl::StrAppend(&base64, line);
  }
  std::string der;
  Require(absl::Base64Unescape(base64, &der));
  return der;
}

// As certificate_fuzzer.cc reads it.
std::string Pair(size_t key_kind, size_t certificate_kind, uint32_t now,
                 const std::string& key, const std::string& certificate) {
  return Byte(key_kind + 4 * certificate_kind) + Number(now) +
         Number(static_cast<uint16_t>(key.size())) + key + certificate;
}

void AddCertificates(std::vector<FuzzSeed>* seeds) {
  const auto authority = MakeAuthority(kYear);
  Require(authority.ok());
  const auto now = static_cast<uint32_t>(absl::ToUnixSeconds(absl::Now()));
  const std::vector<std::vector<std::string>> all_hosts = {
      {"localhost"},
      {"127.0.0.1", "::1"},
      {"*.example.org", "a_b", "10.0.0.1"}};
  for (const std::vector<std::string>& hosts : all_hosts) {
    const auto pair = MakeServerCertificate(*authority, hosts, kYear, "");
    Require(pair.ok());
    const std::string key = Der(pair->key);
    const std::string certificate = Der(pair->certificate);
    seeds->push_back({"certificate", Pair(0, 2, now, pair->key,  //
                                          pair->certificate)});
    seeds->push_back({"certificate", Pair(1, 1, now, key, certificate)});
    seeds->push_back({"certificate", Pair(1, 5, now, key, certificate)});
    seeds->push_back({"certificate", Pair(1, 5, 0, key, certificate)});
  }
  seeds->push_back({"certificate", Pair(2, 1, now, Der(authority->key),
                                        Der(authority->certificate))});
  seeds->push_back({"certificate", Pair(3, 1, now, "", "")});
  for (const char* hosts :
       {"localhost", "a\nb\n::1", "x,DNS:y", "1.2.3.4", "", "@section"}) {
    seeds->push_back({"certificate", Pair(0, 0, now, "", hosts)});
  }
  for (const char* block : {"PRIVATE KEY", "EC PRIVATE KEY", "CERTIFICATE"}) {
    const std::string encrypted = absl::StrCat(
        "-----BEGIN ", block,
        "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: "
        "AES-256-CBC,00000000000000000000000000000000\n\nAAAA\n-----END ",
        block, "-----\n");
    seeds->push_back({"certificate", Pair(0, 2, now, encrypted, encrypted)});
  }
}

void AddSettings(std::vector<FuzzSeed>* seeds) {
  const std::string file =
      "# of the site\nserver: 127.0.0.1:7471\nexperiment: 'resnet # 2'\n"
      "spool_limit: 1G\ncheck: \"a,b@2\"\r\ngrace: 0.5\n";
  const std::string size = Number(static_cast<uint16_t>(file.size()));
  const auto entry = [](size_t number, const std::string& value) {
    return Byte(number) + Sized(value);
  };
  seeds->push_back({"settings", Byte(0) + size + file + "enabled: 0\n"});
  seeds->push_back({"settings", Byte(2) + entry(1, "0") + entry(2, "1") + size +
                                    file + "server: unix:/run/x\n"});
  seeds->push_back({"settings", Byte(0) + Number(uint16_t{0}) + file});
  seeds->push_back({"settings", Byte(1) + Byte(255) + Sized("TRAINCHECK_TYPO") +
                                    Sized("1")});
  for (const char* line :
       {"a: b: c\n", "key:\tx\n", " indented: 1\n", "'quoted': 1\n",
        "server: \"\\n\"\n", "server: 'x' y\n", "server: [1]\n",
        "grace: 1\ngrace: 2\n", "config: x\n", "\xc3\xa9: 1\n", ":\n"}) {
    seeds->push_back({"settings", Byte(0) + Number(uint16_t{200}) + line});
  }
}

void AddSecretFiles(std::vector<FuzzSeed>* seeds) {
  for (size_t what = 0; what < 8; ++what) {
    for (const uint16_t mode : {0600, 0644, 0400}) {
      seeds->push_back({"private_file", Byte(what) + Number(mode) + "tc1.x\n"});
    }
  }
}

}  // namespace

std::vector<FuzzSeed> AccessSeeds() {
  std::vector<FuzzSeed> seeds;
  AddRequests(&seeds);
  AddTokens(&seeds);
  AddCertificates(&seeds);
  AddSettings(&seeds);
  AddSecretFiles(&seeds);
  return seeds;
}

}  // namespace traincheck
