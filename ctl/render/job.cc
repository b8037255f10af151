#include "ctl/render/job.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ctl/render/infer_result.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

// Of the whole job, not of the stage that is named beside it.
std::string Percent(const v1::Job& job) {
  return absl::StrFormat("%.0f%%", job.fraction() * 100);
}

std::string Invariants(const v1::Job& job) {
  return NumberOrUnknown(job.has_result(), job.result().invariants());
}

std::string PeakMiB(const v1::Job& job) {
  return NumberOrUnknown(job.peak_bytes() > 0,
                         static_cast<int64_t>(job.peak_bytes() >> 20));
}

}  // namespace

Json JobRowJson(const v1::Job& job) {
  Json json;
  json["id"] = job.id();
  json["set"] = job.request().set();
  json["runs"] = ArrayOf(job.request().runs());
  json["status"] = JobStatusName(job.status());
  json["stage"] = TextOrNull(job.stage());
  json["fraction"] = job.fraction();
  json["reason"] = TextOrNull(job.reason());
  json["queued"] = TimeOrNull(job.queued_unix_ns());
  json["started"] = TimeOrNull(job.started_unix_ns());
  json["ended"] = TimeOrNull(job.ended_unix_ns());
  // Null until there is a result.
  json["invariants"] =
      job.has_result() ? Json(job.result().invariants()) : Json();
  json["peak_bytes"] = job.peak_bytes() > 0 ? Json(job.peak_bytes()) : Json();
  return json;
}

namespace {

Json OptionsJson(const v1::InferOptions& options) {
  Json json;
  json["include_functions"] = ArrayOf(options.include_functions());
  json["exclude_functions"] = ArrayOf(options.exclude_functions());
  json["include_variables"] = ArrayOf(options.include_variables());
  json["exclude_variables"] = ArrayOf(options.exclude_variables());
  // Null: the default.
  json["min_programs"] =
      options.has_min_programs() ? Json(options.min_programs()) : Json();
  json["max_chance"] =
      options.has_max_chance() ? Json(options.max_chance()) : Json();
  json["max_invariants"] =
      options.has_max_invariants() ? Json(options.max_invariants()) : Json();
  json["max_hypotheses"] =
      options.has_max_hypotheses() ? Json(options.max_hypotheses()) : Json();
  return json;
}

}  // namespace

Json JobDetailJson(const v1::Job& job) {
  Json json = JobRowJson(job);
  json["relations"] = ArrayOf(job.request().relations());
  json["options"] = OptionsJson(job.request().options());
  json["version"] = job.has_result() ? Json(job.result().version()) : Json();
  // Without a result the message is empty, and so is the list.
  json["dropped"] = InferResultJson(job.result())["dropped"];
  return json;
}

// A script that reads what `infer` prints finds its keys here as well.
Json DetachedJobJson(const v1::Job& job) {
  Json json;
  json["job"] = job.id();
  json.update(JobRowJson(job));
  return json;
}

std::string JobsTable(const std::vector<v1::Job>& jobs) {
  Table table({{"ID"},
               {"SET"},
               {"STATUS"},
               {"DONE", Align::kRight},
               {"INVARIANTS", Align::kRight},
               {"PEAK MIB", Align::kRight},
               {"QUEUED"},
               {"ENDED"},
               {"STAGE OR REASON"}});
  for (const v1::Job& job : jobs) {
    table.AddRow(
        {job.id(), job.request().set(), JobStatusName(job.status()),
         Percent(job), Invariants(job), PeakMiB(job),
         TimeOrUnknown(job.queued_unix_ns()),
         TimeOrUnknown(job.ended_unix_ns()),
         // One column for both: a job that failed has a reason, one that runs a
         // stage.
         TextOrUnknown(job.reason().empty() ? job.stage() : job.reason())});
  }
  return table.Render(StdoutColumns());
}

std::string JobText(const v1::Job& job) {
  const v1::InferRequest& request = job.request();
  std::string text = absl::StrCat(
      "job         ", OneLine(job.id()), "\nset         ",
      OneLine(request.set()), "\nruns        ",
      OneLine(absl::StrJoin(request.runs(), ", ")), "\nstatus      ",
      JobStatusName(job.status()), "\nstage       ",
      TextOrUnknown(OneLine(job.stage())), " (", Percent(job), ")",
      "\nreason      ", TextOrUnknown(OneLine(job.reason())), "\nqueued      ",
      TimeOrUnknown(job.queued_unix_ns()), "\nstarted     ",
      TimeOrUnknown(job.started_unix_ns()));
  absl::StrAppend(&text, "\nended       ", TimeOrUnknown(job.ended_unix_ns()),
                  "\npeak        ", PeakMiB(job), " MiB\n");
  if (job.has_result()) {
    absl::StrAppend(&text, "\n", InferResultText(job.result()));
  }
  return text;
}

std::string DetachedJobText(const v1::Job& job) {
  return absl::StrCat(
      "job ", OneLine(job.id()), " is ", JobStatusName(job.status()),
      ": see traincheckctl jobs show ", OneLine(job.id()), "\n");
}

}  // namespace traincheck::ctl
