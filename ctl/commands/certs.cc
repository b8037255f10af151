#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/certificates.h"
#include "base/private_file.h"
#include "ctl/commands/commands.h"
#include "ctl/exit_codes.h"
#include "ctl/render/json.h"
#include "ctl/report.h"
#include "ctl/text/input_file.h"

namespace traincheck::ctl {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);
// Clients have it in a file that nobody wants to hand out again.
constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3650);
constexpr int kDefaultDays = 365;
constexpr int kMaxDays = 3650;

// What the user asks for. All four files lie in one folder, under fixed names
// by which renew finds them again.
struct CertsOptions {
  std::string folder = ".";
  std::vector<std::string> hosts;
  int days = kDefaultDays;

  std::string Path(const std::string& name) const {
    return folder + "/" + name;
  }
};

// The keys come first: if one cannot be written, no certificate lies there that
// looks complete.
absl::Status Write(const CertsOptions& options,
                   const KeyAndCertificate& authority,
                   const KeyAndCertificate& server) {
  const std::pair<const char*, const std::string&> secrets[] = {
      {"ca.key", authority.key}, {"server.key", server.key}};
  for (const auto& [name, text] : secrets) {
    absl::Status status = WritePrivateFile(options.Path(name), text);
    if (!status.ok()) return status;
  }
  absl::Status status =
      WritePublicFile(options.Path("ca.pem"), authority.certificate);
  if (!status.ok()) return status;
  return WritePublicFile(options.Path("server.pem"), server.certificate);
}

// A second init must not overwrite the key of an authority that clients trust.
absl::Status CheckIsNew(const CertsOptions& options) {
  for (const char* name : {"ca.key", "ca.pem", "server.key", "server.pem"}) {
    std::error_code error;
    if (!std::filesystem::exists(options.Path(name), error)) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        options.Path(name),
        " exists: certs renew makes a new certificate of the same authority; "
        "for a new authority, which every client has to be given, name "
        "another folder"));
  }
  return absl::OkStatus();
}

absl::Status Init(const CertsOptions& options) {
  // A new folder of keys is for this user alone; one that exists keeps its
  // mode.
  if (mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, options.folder);
  }
  if (absl::Status s = CheckIsNew(options); !s.ok()) return s;
  const auto authority = MakeAuthority(kAuthorityLifetime);
  if (!authority.ok()) return authority.status();
  const auto server =
      // "": with a new key.
      MakeServerCertificate(*authority, options.hosts, options.days * kDay, "");
  if (!server.ok()) return server.status();
  return Write(options, *authority, *server);
}

// The key stays: so only one file changes, in one step, and a daemon that reads
// it meanwhile never meets a key and a certificate of different pairs.
absl::Status Renew(const CertsOptions& options) {
  const auto ca_key = ReadPrivateFile(options.Path("ca.key"));
  if (!ca_key.ok()) return ca_key.status();
  const auto ca = ReadInputFile(options.Path("ca.pem"));
  if (!ca.ok()) return ca.status();
  // The authority signs a new certificate for the old key of the server.
  const auto key = ReadPrivateFile(options.Path("server.key"));
  if (!key.ok()) return key.status();
  std::vector<std::string> hosts = options.hosts;
  // The names of the old certificate, so that nobody has to remember them.
  if (hosts.empty()) {
    const auto old = ReadInputFile(options.Path("server.pem"));
    if (!old.ok()) return old.status();
    const auto facts = ReadCertificate(*old);
    if (!facts.ok()) return facts.status();
    hosts = facts->hosts;
  }
  const auto server =
      MakeServerCertificate({*ca_key, *ca}, hosts, options.days * kDay, *key);
  if (!server.ok()) return server.status();
  return WritePublicFile(options.Path("server.pem"), server->certificate);
}

// Reads the certificate from its file, as a daemon will.
absl::Status Show(const Context& context, const CertsOptions& options) {
  const auto text = ReadInputFile(options.Path("server.pem"));
  if (!text.ok()) return text.status();
  const auto facts = ReadCertificate(*text);
  if (!facts.ok()) return facts.status();
  const std::string ends =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", facts->ends, absl::UTCTimeZone());
  if (context.json()) {
    Json json;
    json["certificate"] = options.Path("server.pem");
    json["key"] = options.Path("server.key");
    json["authority"] = options.Path("ca.pem");
    json["hosts"] = facts->hosts;
    json["ends"] = ends;
    std::cout << PrettyJson(json) << std::flush;
    return absl::OkStatus();
  }
  // Lines that people copy: each file with the program that it is for.
  std::cout << options.Path("server.pem") << " for "
            << absl::StrJoin(facts->hosts, ", ") << " until " << ends << "\n"
            << "on the daemon's host: traincheckd --tls-cert "
            << options.Path("server.pem") << " --tls-key "
            << options.Path("server.key") << "\n"
            << "for its clients: TRAINCHECK_TLS_CA=" << options.Path("ca.pem")
            << "\n"
            << "for nobody else: " << options.Path("ca.key") << "\n"
            << std::flush;
  return absl::OkStatus();
}

int Report(const Context& context, const CertsOptions& options,
           absl::Status status) {
  // Behind init and renew alike: it says which file belongs where, and which
  // one to nobody.
  if (status.ok()) status = Show(context, options);
  if (status.ok()) return kExitDone;
  Complain(absl::StrCat("certs: ", status.message()));
  // No server takes part, so every failure is one of arguments or files.
  return kExitUsage;
}

// Both commands share one set of values, because only one of them is parsed.
CLI::App* AddCommon(CLI::App* command, CertsOptions* options) {
  command
      ->add_option("--dir", options->folder,
                   "Folder of the four files: ca.pem, ca.key, server.pem and "
                   "server.key")
      ->capture_default_str();
  command
      ->add_option("--days", options->days,
                   "How long the server's certificate is valid")
      ->check(CLI::Range(1, kMaxDays))
      ->capture_default_str();
  return command;
}

}  // namespace

void AddCerts(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);
  auto options = std::make_shared<CertsOptions>();

  CLI::App* init = AddCommon(
      group->add_subcommand("init",
                            "Make an authority and the certificate of "
                            "a server"),
      options.get());
  init->add_option("--host", options->hosts,
                   "Names and IP addresses by which clients reach the server: "
                   "NAME,IP")
      ->delimiter(',')
      ->required();
  init->callback([=] {
    *action = [=] { return Report(*context, *options, Init(*options)); };
  });

  CLI::App* renew = AddCommon(
      group->add_subcommand("renew",
                            "Make another certificate of the same authority; a "
                            "server takes it within seconds"),
      options.get());
  renew
      ->add_option("--host", options->hosts,
                   "Names and IP addresses; default: those of the last one")
      ->delimiter(',');
  renew->callback([=] {
    *action = [=] { return Report(*context, *options, Renew(*options)); };
  });
}

}  // namespace traincheck::ctl
