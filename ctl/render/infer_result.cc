#include "ctl/render/infer_result.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

// The message is one of checks, where its number counts rules. Here it counts
// hypotheses that were not kept.
Json DroppedJson(const v1::UnknownReason& dropped) {
  Json json;
  json["reason"] = dropped.reason();
  json["hypotheses"] = dropped.invariants();
  return json;
}

}  // namespace

Json InferResultJson(const v1::InferResult& result) {
  Json json;
  json["job"] = TextOrNull(result.job());
  json["set"] = result.set();
  // A job that fails ends the call with an error instead.
  json["status"] = "done";
  json["invariants"] = result.invariants();
  json["runs"] = ArrayOf(result.runs());
  json["version"] = result.version();
  json["dropped"] = ArrayOf(result.dropped(), DroppedJson);
  return json;
}

std::string InferResultText(const v1::InferResult& result) {
  std::string text =
      absl::StrCat("set ", OneLine(result.set()), " version ", result.version(),
                   ": ", result.invariants(), " invariants from ",
                   OneLine(absl::StrJoin(result.runs(), ", ")), "\n");
  for (const v1::UnknownReason& dropped : result.dropped()) {
    absl::StrAppend(&text, "  dropped ", dropped.invariants(),
                    " hypotheses: ", OneLine(dropped.reason()), "\n");
  }
  return text;
}

}  // namespace traincheck::ctl
