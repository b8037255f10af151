#include "ctl/render/status.h"

#include "absl/strings/str_cat.h"
#include "ctl/render/names.h"
#include "ctl/render/process.h"
#include "ctl/render/run.h"
#include "ctl/text/table.h"
#include "ctl/text/utc_time.h"

namespace traincheck::ctl {
namespace {

Json LiveRunJson(const v1::Run& run) {
  Json json = RunRowJson(run);
  json["ranks"] = RanksJson(run);
  return json;
}

// Powers of ten, as disks are labelled.
std::string Megabytes(uint64_t bytes) {
  return absl::StrCat(bytes / 1'000'000, " MB");
}

}  // namespace

Json StatusJson(const v1::ServerStatus& status) {
  Json server;
  server["version"] = status.version();
  server["store_id"] = status.store_id();
  server["uptime_s"] = status.uptime_s();
  server["quarantined_batches"] = status.quarantined_batches();
  Json json;
  server["stored_bytes"] = status.stored_bytes();
  server["free_bytes"] = status.free_bytes();
  server["store_error"] = TextOrNull(status.store_error());
  json["server"] = server;
  json["runs"] = ArrayOf(status.runs(), LiveRunJson);
  return json;
}

std::string StatusText(const v1::ServerStatus& status) {
  std::string text = absl::StrCat("traincheckd ", OneLine(status.version()),
                                  ", up ", Duration(status.uptime_s()),
                                  ", store ", OneLine(status.store_id()));
  if (status.quarantined_batches() > 0) {
    absl::StrAppend(&text, ", ", status.quarantined_batches(),
                    " quarantined batches");
  }
  absl::StrAppend(&text, "\ndata ", Megabytes(status.stored_bytes()), ", free ",
                  Megabytes(status.free_bytes()), "\n");
  // Nothing is lost yet: relays keep what is not acknowledged. Somebody has to
  // look before their spools are full.
  if (!status.store_error().empty()) {
    absl::StrAppend(&text, "STORE NOT WRITABLE, nothing is acknowledged: ",
                    OneLine(status.store_error()), "\n");
  }
  if (status.runs().empty()) return text + "no run in progress\n";
  for (const v1::Run& run : status.runs()) {
    absl::StrAppend(&text, "\nrun ", OneLine(run.id()), " (",
                    TextOrUnknown(OneLine(run.experiment())), ", ",
                    TextOrUnknown(RoleName(run.role())), "), last step ",
                    NumberOrUnknown(run.has_last_step(), run.last_step()),
                    ", world ", NumberOrUnknown(run.world() != 0, run.world()),
                    "\n", RanksText(run));
    // Said while the run goes on, when something can still be done about it.
    if (!run.check().error().empty()) {
      absl::StrAppend(&text, "  not checked: ", OneLine(run.check().error()),
                      "\n");
    }
  }
  return text;
}

}  // namespace traincheck::ctl
