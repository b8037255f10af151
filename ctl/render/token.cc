#include "ctl/render/token.h"

#include "absl/strings/ascii.h"
#include "ctl/render/names.h"
#include "ctl/text/since.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

std::string RoleText(const v1::Token& token) {
  // ROLE_VIEWER is shown as "viewer", the word that token create takes.
  constexpr size_t kPrefix = sizeof "ROLE_" - 1;
  // "" for a role that a newer daemon has.
  const std::string name = v1::Role_Name(token.role());
  return name.size() < kPrefix ? "unknown"
                               : absl::AsciiStrToLower(name.substr(kPrefix));
}

// By this host's clock; the daemon refuses by its own.
bool HasExpired(const v1::Token& token) {
  return token.expires_unix_ns() != 0 && token.expires_unix_ns() <= NowUnixNs();
}

}  // namespace

Json TokenJson(const v1::Token& token) {
  Json json;
  json["id"] = token.id();
  json["role"] = RoleText(token);
  json["owner"] = TextOrNull(token.owner());
  json["created"] = TimeOrNull(token.created_unix_ns());
  json["expires"] = TimeOrNull(token.expires_unix_ns());
  json["expired"] = HasExpired(token);
  json["comment"] = TextOrNull(token.comment());
  return json;
}

// Expired tokens may be among these, and are marked.
std::string TokensTable(const std::vector<v1::Token>& tokens) {
  Table table({{"ID"},
               {"ROLE"},
               {"OWNER"},
               {"STATUS"},
               {"EXPIRES"},
               {"CREATED"},
               {"COMMENT"}});
  for (const v1::Token& token : tokens) {
    table.AddRow({token.id(), RoleText(token), TextOrUnknown(token.owner()),
                  HasExpired(token) ? "expired" : "valid",
                  TimeOrUnknown(token.expires_unix_ns()),
                  TimeOrUnknown(token.created_unix_ns()), token.comment()});
  }
  return table.Render(StdoutColumns());
}

}  // namespace traincheck::ctl
