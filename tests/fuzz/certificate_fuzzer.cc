// Certificates and keys as somebody's files hold them: PEM, or DER in a whole
// PEM block, which a fuzzer does not find. A pair that is taken can be read and
// is valid now, a renewed certificate is for the hosts that were asked for, and
// nothing asks a terminal for a passphrase.
//
// Input: kinds of both texts and what is done u8, now u32, size of the key u16,
// the key, then the certificate (or hosts, one a line).
#include <openssl/evp.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/certificates.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);
constexpr size_t kPemColumns = 64;

std::string Block(const std::string& der, const std::string& type) {
  std::string base64(4 * (der.size() / 3 + 1) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(base64.data()),
                      reinterpret_cast<const unsigned char*>(der.data()),
                      static_cast<int>(der.size()));
  base64.resize(static_cast<size_t>(size));
  std::string pem = absl::StrCat("-----BEGIN ", type, "-----\n");
  for (size_t at = 0; at < base64.size(); at += kPemColumns) {
    absl::StrAppend(&pem, base64.substr(at, kPemColumns), "\n");
  }
  return absl::StrCat(pem, "-----END ", type, "-----\n");
}

std::string KeyOf(uint8_t kind, const std::string& bytes) {
  switch (kind % 4) {
    case 0:
      return bytes;
    case 1:
      return Block(bytes, "PRIVATE KEY");
    case 2:
      return Block(bytes, "EC PRIVATE KEY");
    default:
      return Block(bytes, "ENCRYPTED PRIVATE KEY");
  }
}

const KeyAndCertificate& Authority() {
  static const auto* const kAuthority =
      new KeyAndCertificate(*MakeAuthority(100 * kDay));
  return *kAuthority;
}

// As `traincheckctl certs renew` does.
void Renew(const std::vector<std::string>& hosts, const std::string& key) {
  const auto pair = MakeServerCertificate(Authority(), hosts, kDay, key);
  if (!pair.ok()) return Require(!pair.status().message().empty());
  const auto facts = ReadCertificate(pair->certificate);
  Require(facts.ok() && facts->hosts.size() == hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    // An address may be written in another way.
    const bool address = hosts[i].find(':') != std::string::npos;
    Require(address || facts->hosts[i] == hosts[i]);
  }
  Require(CheckServerPair(*pair, absl::Now()).ok());
}

void Read(const KeyAndCertificate& pair, absl::Time now, bool renew) {
  const auto facts = ReadCertificate(pair.certificate);
  Require(facts.ok() || !facts.status().message().empty());
  const absl::Status good = CheckServerPair(pair, now);
  Require(good.ok() || !good.message().empty());
  if (good.ok()) Require(facts->begins <= now && now < facts->ends);
  if (facts.ok() && renew) Renew(facts->hosts, pair.key);
}

void Play(FuzzInput* input) {
  const uint8_t kinds = input->Byte();
  const absl::Time now = absl::FromUnixSeconds(input->Number<uint32_t>());
  const std::string key = KeyOf(kinds, input->Bytes(input->Number<uint16_t>()));
  const std::string rest = input->Rest();
  // Signing takes much longer than all else: few inputs do it.
  const uint8_t what = kinds / 4;
  if (what == 0) return Renew(absl::StrSplit(rest, '\n'), "");
  const bool der = what % 2 != 0;
  Read({key, der ? Block(rest, "CERTIFICATE") : rest}, now,
       /*renew=*/what / 4 == 1);
}

}  // namespace
}  // namespace traincheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::FuzzInput input(data, size);
  traincheck::Play(&input);
  return 0;
}
