#include "ctl/run/drain.h"

#include <algorithm>
#include <utility>

namespace traincheck::ctl {
namespace {

constexpr std::chrono::milliseconds kPause{100};
// A run that the server does not know by then will not come: the agent waits
// at exit until its records are delivered or spooled, at most 2 s.
constexpr std::chrono::milliseconds kAppearsWithin{3000};

// Nothing more is to be expected of the run: it has ended, and its check, if it
// has one, has judged all of it or has failed.
bool Finished(const v1::Run& run) {
  if (run.status() != v1::RUN_STATUS_ENDED &&
      run.status() != v1::RUN_STATUS_LOST) {
    return false;
  }
  return !run.has_check() || run.check().finished() ||
         !run.check().error().empty();
}

}  // namespace

DrainResult Drain(const DrainOptions& options,
                  const DrainDependencies& dependencies) {
  const auto start = dependencies.now();
  DrainResult result;
  // Each turn asks the server once. `limit` is set anew in each, because how
  // long the wait is worthwhile depends on the last answer.
  for (;;) {
    absl::StatusOr<v1::Run> run = dependencies.get_run();
    result.status = run.status();
    auto limit = options.timeout;
    // A server that is away for a moment may be restarting, and is waited for
    // if it was there before; every other error is its answer.
    if (run.ok()) {
      result.run = *std::move(run);
      result.finished = Finished(*result.run);
    } else if (absl::IsNotFound(result.status)) {
      limit = std::min(limit, kAppearsWithin);
    } else if (!absl::IsUnavailable(result.status) ||
               !options.server_answered) {
      return result;
    }
    if (result.finished || dependencies.now() - start >= limit ||
        dependencies.interrupted_within(kPause)) {
      return result;
    }
  }
}

}  // namespace traincheck::ctl
