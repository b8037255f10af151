#include "base/certificates.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace traincheck {
namespace {

// X.509 counts its versions from 0. Extensions need the third one.
constexpr long kVersion3 = 2;
// Clocks of nodes differ: a certificate is valid from an hour before it was
// made.
constexpr absl::Duration kClockSkew = absl::Hours(1);
// The longest name that DNS knows, written with dots.
constexpr size_t kMaxHostBytes = 253;

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;

absl::Status Failed(absl::string_view what) {
  return absl::InternalError(absl::StrCat("OpenSSL: ", what, " failed"));
}

Bio Reader(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::string Text(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// Called by OpenSSL for the passphrase of a block that has one. Without it
// OpenSSL would ask at the terminal, and a daemon would wait for ever.
int RefusePassphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

// A block with a passphrase gets a message of its own: the file itself is in
// order.
absl::Status NotRead(bool asked, absl::string_view what) {
  if (!asked) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is not a PEM ", what, " in it"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what,
                   " in it has a passphrase, which nobody can be asked for "
                   "here: openssl pkey -in FILE writes a key without it"));
}

absl::StatusOr<Key> ParseKey(const std::string& pem) {
  bool asked = false;
  Key key(PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, RefusePassphrase,
                                  &asked));
  if (key != nullptr) return key;
  return NotRead(asked, "private key");
}

absl::StatusOr<Certificate> ParseCertificate(const std::string& pem) {
  bool asked = false;
  Certificate certificate(
      PEM_read_bio_X509(Reader(pem).get(), nullptr, RefusePassphrase, &asked));
  if (certificate != nullptr) return certificate;
  return NotRead(asked, "certificate");
}

// The private key is written without a passphrase; the caller's file mode
// protects it.
absl::StatusOr<KeyAndCertificate> ToPem(const Key& key,
                                        const Certificate& certificate) {
  const Bio key_text(BIO_new(BIO_s_mem()));
  const Bio certificate_text(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0,
                               nullptr, nullptr) != 1 ||
      PEM_write_bio_X509(certificate_text.get(), certificate.get()) != 1) {
    return Failed("PEM");
  }
  return KeyAndCertificate{Text(key_text), Text(certificate_text)};
}

// An authority never gives one number twice (RFC 5280). At random nothing has
// to keep count, and certificates can be made in several places.
bool SetSerial(X509* certificate) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
  bytes[0] &= 0x7f;  // positive
  const std::unique_ptr<BIGNUM, Free<BN_free>> number(
      BN_bin2bn(bytes, sizeof bytes, nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) !=
             nullptr;
}

bool AddExtension(X509* certificate, X509* issuer, int kind,
                  const char* value) {
  // The value is a text of OpenSSL's configuration: "hash" and "keyid" in it
  // are taken from the certificates in the context.
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  return extension != nullptr &&
         X509_add_ext(certificate, extension.get(), -1) == 1;
}

// The beginning lies in the past because of kClockSkew.
bool SetTimes(X509* certificate, absl::Duration lifetime) {
  const absl::Time now = absl::Now();
  const time_t begins = absl::ToTimeT(now - kClockSkew);
  const time_t ends = absl::ToTimeT(now + lifetime);
  return ASN1_TIME_set(X509_getm_notBefore(certificate), begins) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), ends) != nullptr;
}

bool AddCommonName(X509_NAME* name, const std::string& text) {
  return X509_NAME_add_entry_by_txt(
             name, "CN", MBSTRING_UTF8,
             reinterpret_cast<const unsigned char*>(text.data()),
             static_cast<int>(text.size()), -1, 0) == 1;
}

// A certificate without extensions, which nobody has signed.
absl::StatusOr<Certificate> Begin(const Key& key, const std::string& name,
                                  absl::Duration lifetime) {
  Certificate certificate(X509_new());
  if (certificate == nullptr ||
      X509_set_version(certificate.get(), kVersion3) != 1 ||
      !SetSerial(certificate.get()) || !SetTimes(certificate.get(), lifetime) ||
      !AddCommonName(X509_get_subject_name(certificate.get()), name) ||
      X509_set_pubkey(certificate.get(), key.get()) != 1) {
    return Failed("a new certificate");
  }
  return certificate;
}

bool IsIpAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// It becomes part of a configuration text of OpenSSL: a comma in it would begin
// another name.
absl::Status CheckHost(const std::string& host) {
  bool plain = !host.empty() && host.size() <= kMaxHostBytes;
  for (const char c : host) {
    plain = plain && (absl::ascii_isalnum(c) || c == '.' || c == '-' ||
                      c == '_' || c == '*');
  }
  if (plain || IsIpAddress(host)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", host, "\" is not the name of a host and not an IP address"));
}

absl::StatusOr<std::string> AlternativeNames(
    const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    if (absl::Status s = CheckHost(host); !s.ok()) return s;
    names.push_back(absl::StrCat(IsIpAddress(host) ? "IP:" : "DNS:", host));
  }
  if (names.empty()) {
    return absl::InvalidArgumentError("the certificate needs a host");
  }
  return absl::StrJoin(names, ",");
}

// A time that cannot be read counts as long past, so that the certificate is
// taken for one that has expired.
absl::Time ToTime(const ASN1_TIME* time) {
  tm fields = {};
  if (ASN1_TIME_to_tm(time, &fields) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&fields));
}

std::vector<std::string> HostsOf(X509* certificate) {
  std::vector<std::string> hosts;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  // Null where there are no alternative names, and their number is -1 then.
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    // Other kinds (mail, URI) name no host.
    if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
    const ASN1_STRING* value = name->type == GEN_DNS
                                   ? static_cast<ASN1_STRING*>(name->d.dNSName)
                                   : name->d.iPAddress;
    const unsigned char* const data = ASN1_STRING_get0_data(value);
    const int size = ASN1_STRING_length(value);
    if (name->type == GEN_DNS) {
      hosts.emplace_back(reinterpret_cast<const char*>(data),
                         static_cast<size_t>(size));
      continue;
    }
    // Whoever made the certificate wrote it: an address of another size is
    // none.
    if (size != sizeof(in_addr) && size != sizeof(in6_addr)) continue;
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(size == sizeof(in_addr) ? AF_INET : AF_INET6, data, text,
              sizeof text);
    hosts.emplace_back(text);
  }
  return hosts;
}

}  // namespace

// Servers get certificates that this authority signs; clients pin the
// authority's own certificate.
absl::StatusOr<KeyAndCertificate> MakeAuthority(absl::Duration lifetime) {
  // It may sign servers and no further authority (pathlen 0): a server's key
  // that is stolen makes no certificates.
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("a new key");
  absl::StatusOr<Certificate> begun =
      Begin(key, "traincheck certificate authority", lifetime);
  if (!begun.ok()) return begun.status();
  X509* const certificate = begun->get();
  if (X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) !=
          1 ||
      !AddExtension(certificate, certificate, NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate, certificate, NID_key_usage,
                    "critical,keyCertSign") ||
      !AddExtension(certificate, certificate, NID_subject_key_identifier,
                    "hash") ||
      X509_sign(certificate, key.get(), EVP_sha256()) == 0) {
    return Failed("the authority's certificate");
  }
  return ToPem(key, *begun);
}

// `key_pem`: a renewal may keep the server's key; "" makes a new one.
absl::StatusOr<KeyAndCertificate> MakeServerCertificate(
    const KeyAndCertificate& authority, const std::vector<std::string>& hosts,
    absl::Duration lifetime, const std::string& key_pem) {
  const absl::StatusOr<std::string> names = AlternativeNames(hosts);
  if (!names.ok()) return names.status();
  const absl::StatusOr<Key> issuer_key = ParseKey(authority.key);
  if (!issuer_key.ok()) return issuer_key.status();
  const absl::StatusOr<Certificate> issuer =
      ParseCertificate(authority.certificate);
  if (!issuer.ok()) return issuer.status();
  absl::StatusOr<Key> key = Key(EVP_EC_gen("P-256"));
  if (!key_pem.empty()) key = ParseKey(key_pem);
  if (!key.ok()) return key.status();
  if (*key == nullptr) return Failed("a new key");
  absl::StatusOr<Certificate> begun = Begin(*key, "traincheckd", lifetime);
  if (!begun.ok()) return begun.status();
  X509* const certificate = begun->get();
  // For the handshakes of a server alone: the key signs no certificates and
  // stands for no client.
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer->get())) !=
          1 ||
      !AddExtension(certificate, issuer->get(), NID_basic_constraints,
                    "critical,CA:FALSE") ||
      !AddExtension(certificate, issuer->get(), NID_key_usage,
                    "critical,digitalSignature") ||
      !AddExtension(certificate, issuer->get(), NID_ext_key_usage,
                    "serverAuth") ||
      !AddExtension(certificate, issuer->get(), NID_subject_alt_name,
                    names->c_str()) ||
      !AddExtension(certificate, issuer->get(), NID_authority_key_identifier,
                    "keyid") ||
      X509_sign(certificate, issuer_key->get(), EVP_sha256()) == 0) {
    return Failed("the server's certificate");
  }
  return ToPem(*key, *begun);
}

absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& pem) {
  const absl::StatusOr<Certificate> certificate = ParseCertificate(pem);
  if (!certificate.ok()) return certificate.status();
  return CertificateFacts{HostsOf(certificate->get()),
                          ToTime(X509_get0_notBefore(certificate->get())),
                          ToTime(X509_get0_notAfter(certificate->get()))};
}

// The checks that gRPC would fail with an unclear error later: the pair, and
// the time.
absl::Status CheckServerPair(const KeyAndCertificate& pair, absl::Time now) {
  const absl::StatusOr<Key> key = ParseKey(pair.key);
  if (!key.ok()) return key.status();
  const absl::StatusOr<Certificate> certificate =
      ParseCertificate(pair.certificate);
  if (!certificate.ok()) return certificate.status();
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return absl::FailedPreconditionError(
        "the key is not the one that the certificate was made for");
  }
  const absl::Time begins = ToTime(X509_get0_notBefore(certificate->get()));
  if (now < begins) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the certificate is not valid before ", absl::FormatTime(begins),
        ": the clock of this host or of the authority's is wrong"));
  }
  const absl::Time ends = ToTime(X509_get0_notAfter(certificate->get()));
  if (now >= ends) {
    return absl::FailedPreconditionError(
        absl::StrCat("the certificate expired at ", absl::FormatTime(ends),
                     ": traincheckctl certs renew makes another one"));
  }
  return absl::OkStatus();
}

}  // namespace traincheck
