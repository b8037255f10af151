#include "ctl/render/token.h"

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/private_file.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/id_prefix.h"
#include "ctl/commands/query.h"
#include "ctl/text/input_file.h"
#include "ctl/text/since.h"

namespace traincheck::ctl {
namespace {

using Tokens = std::vector<v1::Token>;

struct CreateOptions {
  std::string role;
  std::string owner;
  std::string ttl;
  std::string comment;
  std::string out;
};

const std::map<std::string, v1::Role>& Roles() {
  static const auto& roles =
      *new std::map<std::string, v1::Role>{{"relay", v1::ROLE_RELAY},
                                           {"viewer", v1::ROLE_VIEWER},
                                           {"owner", v1::ROLE_OWNER},
                                           {"admin", v1::ROLE_ADMIN}};
  return roles;
}

// Without the text that makes it a secret, which only the answer to create has.
std::string TokenObject(const v1::Token& token) {
  return PrettyJson(TokenJson(token));
}

absl::Status Keep(const std::string& text, const std::string& out) {
  if (out != kStandardStream) return WritePrivateFile(out, text + "\n");
  std::cout << text << std::endl;
  return absl::OkStatus();
}

// Without Query, which prints: the answer is a secret, and goes to the file
// alone.
int Create(const Context& context, const CreateOptions& options) {
  v1::CreateTokenRequest request;
  // IsMember lets only these names through.
  request.set_role(Roles().at(options.role));
  request.set_owner(options.owner);
  request.set_comment(options.comment);
  // Parsed here, where "30d" counts from this moment; the daemon gets a time.
  if (!options.ttl.empty()) {
    const auto until = ParseUntil(options.ttl, NowUnixNs());
    if (!until.ok()) {
      Complain(absl::StrCat("--ttl: ", until.status().message()));
      return kExitUsage;
    }
    request.set_expires_unix_ns(*until);
  }
  auto client = Client::Make(context.server);
  if (!client.ok()) return ReportFailedCall(client.status(), context.server);
  const auto reply = (*client)->CreateToken(request);
  if (!reply.ok()) return ReportFailedCall(reply.status(), context.server);
  if (absl::Status s = Keep(reply->text(), options.out); !s.ok()) {
    // Nobody has its text: it must not stay.
    (void)(*client)->RevokeToken(reply->token().id());
    Complain(absl::StrCat("--out: ", s.message(), "; no token was made"));
    return kExitUsage;
  }
  // stdout has the token and nothing else, for the pipe.
  if (options.out == kStandardStream) return kExitDone;
  std::cout << (context.json() ? TokenObject(reply->token())
                               : absl::StrCat("token ", reply->token().id(),
                                              " is in ", options.out, "\n"))
            << std::flush;
  return kExitDone;
}

int List(const Context& context) {
  return Query<Tokens>(context,
                       [](Client& client) { return client.ListTokens(); },
                       {TokensTable, [](const Tokens& tokens) {
                          return PrettyJson(ArrayOf(tokens, TokenJson));
                        }});
}

// By the id that `token list` shows, or its first letters: nobody has to have
// the secret at hand.
int Revoke(const Context& context, const std::string& id) {
  const auto ask = [&](Client& client) {
    return GetByPrefix<v1::Token>(
        id, [&](const std::string& whole) { return client.RevokeToken(whole); },
        [&] { return client.ListTokens(); });
  };
  return Query<v1::Token>(context, ask,
                          {[](const v1::Token& token) {
                             return absl::StrCat("token ", token.id(),
                                                 " is revoked\n");
                           },
                           TokenObject});
}

void AddCreate(CLI::App* group, const Context* context, Action* action) {
  auto options = std::make_shared<CreateOptions>();
  CLI::App* create = group->add_subcommand(
      "create", "Make a token and put it into a file of mode 0600");
  create
      ->add_option("--role", options->role,
                   "relay: delivers records; viewer: reads what the owner has; "
                   "owner: both, and changes it; admin: everything")
      ->required()
      ->check(CLI::IsMember({"relay", "viewer", "owner", "admin"}));
  create->add_option("--owner", options->owner,
                     "The owner of the runs and sets that it is about; for "
                     "every role but admin");
  create->add_option("--ttl", options->ttl,
                     "When it expires: 12h, 30d, 2026-12-01 (UTC); default: "
                     "when it is revoked");
  create->add_option("--comment", options->comment, "What it is for");
  create
      ->add_option("--out", options->out,
                   "The file; \"-\" is stdout, for a pipe into a secret store")
      ->required();
  create->callback(
      [=] { *action = [=] { return Create(*context, *options); }; });
}

}  // namespace

void AddToken(CLI::App* group, const Context* context, Action* action) {
  group->require_subcommand(1);
  AddCreate(group, context, action);

  group->add_subcommand("list", "All tokens, without their secrets")
      ->callback([=] { *action = [=] { return List(*context); }; });

  auto id = std::make_shared<std::string>();
  CLI::App* revoke = group->add_subcommand(
      "revoke", "Refuse a token from now on; what is open with it ends");
  revoke->add_option("ID", *id, "Token; the first letters of its id do")
      ->required();
  revoke->callback([=] { *action = [=] { return Revoke(*context, *id); }; });
}

}  // namespace traincheck::ctl
