#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ctl/client.h"
#include "ctl/commands/commands.h"
#include "ctl/delivery.h"
#include "ctl/exit_codes.h"
#include "ctl/render/trace_import.h"
#include "ctl/report.h"
#include "ctl/text/progress_line.h"
#include "ctl/text/run_id.h"
#include "invariants/traincheck/trace_folder.h"
#include "invariants/traincheck/trace_records.h"
#include "proto/record_format.h"

namespace traincheck::ctl {
namespace {

// A trace does not name its host; by this name lists show an imported process.
constexpr char kHost[] = "traincheck-import";
constexpr char kAgentVersion[] = "traincheckctl import";
constexpr char kReference[] = "reference";
constexpr char kTarget[] = "target";
// The daemon waits about a second for further processes of a run.
constexpr std::chrono::seconds kEndPatience{15};
constexpr std::chrono::milliseconds kEndPoll{50};

struct Options {
  std::string format;
  std::string run;
  std::string experiment;
  std::string role = kReference;
  std::string folder;
};

// As a relay introduces a process: the daemon takes an imported one like any
// other.
v1::Hello HelloOf(const ImportedProcess& process) {
  v1::Hello hello;
  hello.set_format_version_min(kRecordFormatVersion);
  hello.set_format_version_max(kRecordFormatVersion);
  hello.set_agent_version(kAgentVersion);
  hello.set_run(process.run);
  hello.set_experiment(process.experiment);
  hello.set_role(process.role == RunRole::kReference ? v1::RUN_ROLE_REFERENCE
                                                     : v1::RUN_ROLE_TARGET);
  hello.set_started_unix_ns(process.started_unix_ns);
  v1::ProcessIdentity& identity = *hello.mutable_process();
  identity.set_host(process.host);
  identity.set_boot_id(process.boot_id);
  identity.set_pid(process.pid);
  identity.set_start_ticks(process.start_ticks);
  identity.set_kind(process.kind == ProcessKind::kMain
                        ? v1::PROCESS_KIND_MAIN
                        : v1::PROCESS_KIND_OTHER);
  return hello;
}

// What the goodbye of a relay says of each ring: by it the daemon knows whether
// it has everything.
std::vector<v1::RingReport> ReportsOf(const ProcessReport& report) {
  std::vector<v1::RingReport> rings;
  for (const auto& [number, totals] : report.rings) {
    v1::RingReport& ring = rings.emplace_back();
    ring.set_ring(number);
    ring.set_head(totals.position);
    // All that was offered is committed: an import drops nothing, so that
    // missing records show as lost.
    ring.set_offered_records(totals.records);
    ring.set_committed_records(totals.records);
  }
  return rings;
}

void Book(const ImportedProcess& identity, const TraceProcess& process,
          const ProcessReport& report, TraceImport* import) {
  ImportedProcessRow row;
  row.pid = identity.pid;
  row.kind = identity.kind == ProcessKind::kMain ? "main" : "other";
  row.rank = process.rank;
  row.lines = report.lines;
  row.skipped = report.skipped.size();
  row.records = report.records;
  row.incomplete_calls = report.incomplete_calls;
  import->processes.push_back(row);
  import->records += report.records;
  import->skipped.insert(import->skipped.end(), report.skipped.begin(),
                         report.skipped.end());
  for (const auto& [name, times] : report.left_out) {
    import->left_out[name] += times;
  }
}

// Brings a folder to the daemon; status() is its answer, or what is wrong with
// the folder.
// The order of the steps matters: the folder is read and the run's id is looked
// up before a single record is sent, because records that are stored can only
// be deleted together with the run.
class Importer {
 public:
  Importer(const Context& context, const Options& options)
      : context_(context), options_(options) {
    import_.run = options.run;
    import_.experiment = options.experiment;
    import_.role = options.role;
  }

  int Run() {
    // Mistakes in the folder are found before a server is needed.
    auto folder = TraceFolder::Open(options_.folder);
    if (!folder.ok()) return Refuse(folder.status());
    if ((*folder)->processes().empty()) {
      return Refuse(NothingIn((*folder)->skipped()));
    }
    auto client = Client::Make(context_.server);
    auto delivery = Delivery::Make(context_.server);
    if (!client.ok()) return Fail(client.status());
    if (!delivery.ok()) return Fail(delivery.status());
    // Records of two imports, or of an import and a training, must not become
    // one run.
    const absl::Status known = (*client)->GetRun(options_.run).status();
    if (known.ok()) {
      return Refuse(absl::AlreadyExistsError(absl::StrCat(
          "run \"", options_.run, "\" exists already; --run needs a new id")));
    }
    if (!absl::IsNotFound(known)) return Fail(known);
    return Bring(**folder, client->get(), delivery->get());
  }

 private:
  absl::Status NothingIn(const std::vector<SkippedLine>& skipped) const {
    // A program that was ended before its first call leaves empty files.
    if (skipped.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the files of \"", options_.folder, "\" hold no line"));
    }
    const SkippedLine& line = skipped.front();
    return absl::InvalidArgumentError(absl::StrCat(
        "no line of \"", options_.folder, "\" can be read; the first, ",
        line.file, " line ", line.line, ": ", line.reason));
  }

  static int Refuse(const absl::Status& status) {
    Complain(std::string(status.message()));
    return kExitUsage;
  }
  int Fail(const absl::Status& status) const {
    return ReportFailedCall(status, context_.server);
  }

  // One process after the other, each as a stream of its own, as relays deliver
  // them.
  int Bring(const TraceFolder& folder, Client* client, Delivery* delivery) {
    import_.files = folder.files();
    import_.lines = folder.lines();
    import_.skipped = folder.skipped();
    {
      // In a scope of its own, so that it is gone when the tables are printed.
      ProgressLine line(&std::cerr, isatty(STDERR_FILENO) == 1);
      const size_t count = folder.processes().size();
      for (size_t i = 0; i < count; ++i) {
        line.Update(absl::StrCat("importing ", options_.run),
                    static_cast<double>(i) / static_cast<double>(count));
        const int code = BringOne(folder, folder.processes()[i], delivery);
        if (code == kExitDone) continue;
        // What was sent stays: a second import would be refused because the run
        // exists.
        if (begun_) WriteToStderr(IncompleteWords());
        return code;
      }
    }
    WaitForEnd(client);
    std::cout << (context_.json() ? PrettyJson(TraceImportJson(import_))
                                  : TraceImportText(import_))
              << std::flush;
    return kExitDone;
  }

  std::string IncompleteWords() const {
    return absl::StrCat("run \"", options_.run,
                        "\" is incomplete: delete it before you import the "
                        "folder again (traincheckctl runs delete ",
                        options_.run, ")\n");
  }

  int BringOne(const TraceFolder& folder, const TraceProcess& process,
               Delivery* delivery) {
    ImportedProcess identity =
        IdentityOf(folder, process, folder.processes().size() == 1);
    identity.run = options_.run;
    identity.experiment = options_.experiment;
    identity.role =
        options_.role == kReference ? RunRole::kReference : RunRole::kTarget;
    identity.host = kHost;
    // A process is known by host, boot and pid. With the run in it, equal pids
    // of two folders are two processes.
    identity.boot_id = absl::StrCat("import-", options_.run);
    absl::Status sent = delivery->Begin(HelloOf(identity));
    if (!sent.ok()) return Fail(sent);
    begun_ = true;
    // Batches are sent while the lines are converted, so that memory does not
    // grow with the trace.
    const absl::StatusOr<ProcessReport> report = ConvertProcess(
        folder, process, identity, [&](const StoredBatch& batch) {
          sent = delivery->Send(batch);
          return sent;
        });
    if (!sent.ok()) return Fail(sent);
    // The server has taken everything so far, so this is an error of the
    // folder: a file has changed since it was indexed.
    if (!report.ok()) return Refuse(report.status());
    sent = delivery->End(ReportsOf(*report));
    if (!sent.ok()) return Fail(sent);
    Book(identity, process, *report, &import_);
    return kExitDone;
  }

  // Waits until the run counts as ended, so that a check can follow at once. If
  // that takes longer the import has succeeded all the same.
  void WaitForEnd(Client* client) const {
    const auto deadline = std::chrono::steady_clock::now() + kEndPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      const auto run = client->GetRun(options_.run);
      // Whatever the answer: the import itself is complete by now.
      if (!run.ok() || run->status() != v1::RUN_STATUS_RUNNING) return;
      std::this_thread::sleep_for(kEndPoll);
    }
  }

  const Context& context_;
  const Options& options_;
  TraceImport import_;
  // Decides whether a failure leaves a part of the run behind.
  bool begun_ = false;  // the daemon has something of the run
};

int Import(const Context& context, Options options) {
  if (absl::Status status = CheckRunId(options.run); !status.ok()) {
    Complain(std::string(status.message()));
    return kExitUsage;
  }
  if (options.experiment.empty()) {
    const std::filesystem::path folder(options.folder);
    // "DIR/" has an empty last part.
    options.experiment = (folder.has_filename() ? folder : folder.parent_path())
                             .filename()
                             .string();
  }
  return Importer(context, options).Run();
}

}  // namespace

void AddImport(CLI::App* command, const Context* context, Action* action) {
  auto options = std::make_shared<Options>();
  command
      ->add_option("--format", options->format,
                   "Format of the folder: traincheck")
      ->required()
      ->check(CLI::IsMember({"traincheck"}));
  command->add_option("--run", options->run, "Id of the run; must be new")
      ->required();
  command->add_option(
      "--experiment", options->experiment,
      "Experiment that the run belongs to; default: the folder's "
      "name");
  command->add_option("--role", options->role, "reference or target")
      ->check(CLI::IsMember({kReference, kTarget}))
      ->capture_default_str();
  command->add_option("DIR", options->folder, "Folder with trace_* files")
      ->required();
  command->callback(
      [=] { *action = [=] { return Import(*context, *options); }; });
}

}  // namespace traincheck::ctl
