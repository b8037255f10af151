#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/json.h"

namespace traincheck::ctl {
namespace {

std::string Text(const v1::BackupReply& reply) {
  return absl::StrCat("backup in ", reply.folder(), ", ", reply.bytes(),
                      " bytes\n");
}

Json ToJson(const v1::BackupReply& reply) {
  Json json;
  json["folder"] = reply.folder();
  json["bytes"] = reply.bytes();
  return json;
}

// The daemon copies its store while it goes on working. The folder is one of
// its own host, so nothing is checked here.
int Backup(const Context& context, const std::string& folder) {
  return Query<v1::BackupReply>(
      context, [&](Client& client) { return client.Backup(folder); },
      {Text,
       [](const v1::BackupReply& reply) { return PrettyJson(ToJson(reply)); }});
}

}  // namespace

void AddBackup(CLI::App* backup, const Context* context, Action* action) {
  auto folder = std::make_shared<std::string>();
  backup
      // Absolute, because the daemon's working directory says nothing to users.
      ->add_option("DIR", *folder,
                   "Absolute path on the server's host; must not exist")
      ->required();
  backup->callback(
      [=] { *action = [=] { return Backup(*context, *folder); }; });
}

}  // namespace traincheck::ctl
