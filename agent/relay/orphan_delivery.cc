#include "agent/relay/orphan_delivery.h"

#include <sys/stat.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/relay/limits.h"
#include "agent/relay/process_liveness.h"

namespace traincheck::agent {
namespace {

// An Outbox without rings: nothing is added, nothing is released, and no second
// file is made.
Outbox::Dependencies NoRings(Compressor* compressor,
                             std::vector<Outbox::SharedBatch> definitions) {
  return {.open_spool = []() -> absl::StatusOr<std::unique_ptr<SpoolFile>> {
            return absl::FailedPreconditionError("it has its spool file");
          },
          // The rings died with their process.
          .release = [](const Slices&) {},
          .definitions = [definitions =
                              std::move(definitions)] { return definitions; },
          .compressor = compressor};
}

// A process whose goodbye is not in the file died together with its relay.
// Nobody knows what its rings still held, so the goodbye names no counters.
v1::Goodbye GoodbyeOf(const LoadedSpool& loaded) {
  if (loaded.goodbye.has_value()) return *loaded.goodbye;
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_DIED);
  return goodbye;
}

}  // namespace

// Two relays must never deliver one file at the same time, and a file whose
// process lives is not to be taken from its relay. In doubt it stays.
SpoolVerdict JudgeSpool(const std::string& path,
                        const absl::StatusOr<SpoolOwner>& owner,
                        int64_t unix_seconds) {
  struct stat status;
  const int64_t age =
      stat(path.c_str(), &status) == 0 ? unix_seconds - status.st_mtime : 0;
  if (!owner.ok()) {
    const std::string why(owner.status().message());
    if (owner.status().code() == absl::StatusCode::kNotFound) {
      return {SpoolFate::kGone, why};
    }
    if (owner.status().code() != absl::StatusCode::kDataLoss) {
      return {SpoolFate::kUnreadable, why};
    }
    // The relay that makes a file writes header and Hello right afterwards: a
    // young file may be in the making.
    return {age >= kUnfinishedSpoolAge.count() ? SpoolFate::kDamaged
                                               : SpoolFate::kInUse,
            why};
  }
  const v1::ProcessIdentity& process = owner->hello.process();
  switch (LivenessOf(process, owner->pid_namespace)) {
    case Liveness::kDead:
      return {};
    case Liveness::kAlive:
      // Its own relay delivers the file, or the next one that its agent starts.
      return {SpoolFate::kInUse,
              absl::StrCat("process ", process.pid(), " still runs")};
    case Liveness::kUnknown:
      break;
  }
  // Age is all that is left to judge by. A relay that still has the file keeps
  // it all the same, by its lock (SpoolFile::Open).
  if (age >= kForeignOrphanAge.count()) return {};
  return {SpoolFate::kInUse,
          absl::StrCat("process ", process.pid(), " on ", process.host(),
                       " cannot be seen from here, and the file was written "
                       "to ",
                       age, " s ago; it counts as left after ",
                       kForeignOrphanAge.count(), " s")};
}

// The file is locked by now (SpoolFile::Open), so no other relay delivers it.
OrphanDelivery::OrphanDelivery(const Dependencies& dependencies,
                               LoadedSpool loaded, TimePoint now)
    : path_(loaded.file->path()),
      outbox_(NoRings(dependencies.compressor, loaded.definitions)),
      delivery_({dependencies.channel, dependencies.wake,
                 [](const RingCoverages&) {}, [](const v1::PlanChange&) {}},
                loaded.hello, &outbox_),
      moved_at_(now) {
  // At once: no batch will come in addition to these.
  delivery_.Finish(GoodbyeOf(loaded));
  outbox_.Adopt(std::move(loaded));
  held_ = outbox_.held();
}

void OrphanDelivery::Turn(TimePoint now) {
  delivery_.Turn(now);
  // A stream that has just opened counts as well, so that the first
  // acknowledgement has the whole patience.
  if (outbox_.held() != held_ || delivery_.open() != was_open_) moved_at_ = now;
  held_ = outbox_.held();
  was_open_ = delivery_.open();
  // Only behind the acknowledged goodbye: if this relay dies before, the file
  // is there for the next one.
  if (delivery_.done()) {
    outbox_.RemoveSpool();
    done_ = true;
  }
}

// The next orphan may be for a server that answers; this one is tried again
// after a later scan.
bool OrphanDelivery::stuck(TimePoint now) const {
  return now - moved_at_ >= kOrphanPatience;
}

}  // namespace traincheck::agent
