#include "server/feedback/marks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/sets/human_text.h"
#include "server/store/keys.h"
#include "server/store/named_entries.h"

namespace traincheck::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

// Comment and name are shown to other users and may be left out.
absl::Status CheckRequest(const v1::MarkViolationRequest& request) {
  if (request.mark() != kConfirmed && request.mark() != kFalseAlarm &&
      request.mark() != kNoMark) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mark is ", kConfirmed, ", ", kFalseAlarm, " or ",
                     kNoMark, ", not ", QuotePrintable(request.mark())));
  }
  if (!request.comment().empty()) {
    const absl::Status text = CheckHumanText("the comment", request.comment());
    if (!text.ok()) return text;
  }
  if (request.by().empty()) return absl::OkStatus();
  return CheckHumanText("who marks it", request.by());
}

}  // namespace

// Read anew each time: marks of a run are few, and deleting the run deletes
// them without a word to this class.
absl::StatusOr<Marks::OfRun> Marks::Of(uint64_t run) const {
  OfRun marks;
  if (absl::Status s = ReadEntries(store_, MarkKey(run, ""), &marks); !s.ok()) {
    return s;
  }
  return marks;
}

absl::StatusOr<v1::MarkViolationReply> Marks::SetUntrusted(
    uint64_t run, const v1::MarkViolationRequest& request,
    const std::vector<v1::Violation>& incident) {
  if (absl::Status s = CheckRequest(request); !s.ok()) return s;
  absl::MutexLock lock(&changing_);
  if (request.mark() == kNoMark) return TakeBack(run, incident.front().id());
  return Give(run, request, incident);
}

// An incident is judged once: the mark of its lead goes to all that follow from
// it.
absl::StatusOr<v1::MarkViolationReply> Marks::Give(
    uint64_t run, const v1::MarkViolationRequest& request,
    const std::vector<v1::Violation>& incident) {
  const absl::StatusOr<OfRun> before = Of(run);
  if (!before.ok()) return before.status();
  const std::string& named = incident.front().id();
  v1::MarkViolationReply reply;
  WriteSet writes;
  for (const v1::Violation& violation : incident) {
    const std::string& id = violation.id();
    // What somebody has said of this very violation outweighs what follows from
    // another one.
    const auto own = before->find(id);
    if (id != named && own != before->end() && own->second.through() == id) {
      reply.set_kept(reply.kept() + 1);
      continue;
    }
    v1::Mark* const mark = reply.add_marks();
    mark->set_violation(id);
    mark->set_run(violation.run());
    mark->set_mark(request.mark());
    mark->set_comment(request.comment());
    mark->set_by(request.by());
    mark->set_since_unix_ns(absl::ToUnixNanos(absl::Now()));
    // So that taking back the mark of the named one takes back this one, and so
    // that a mark of its own is known from one that follows.
    mark->set_through(named);
    writes.Put(Table::kMeta, MarkKey(run, id), mark->SerializeAsString());
  }
  absl::Status written = store_.WriteAndWait(std::move(writes), kPatience);
  if (!written.ok()) return written;
  spdlog::info("violation marked id={} mark={} with={} by={}", named,
               request.mark(), reply.marks_size() - 1,
               QuotePrintable(request.by()));
  return reply;
}

// REQUIRES: changing_ is held, as for Give: marks are read and then deleted.
absl::StatusOr<v1::MarkViolationReply> Marks::TakeBack(
    uint64_t run, const std::string& violation) {
  const absl::StatusOr<OfRun> before = Of(run);
  if (!before.ok()) return before.status();
  v1::MarkViolationReply reply;
  WriteSet writes;
  for (const auto& [id, mark] : *before) {
    // Marks that were given with it go with it.
    if (id != violation && mark.through() != violation) continue;
    *reply.add_marks() = mark;
    writes.Delete(Table::kMeta, MarkKey(run, id));
  }
  if (reply.marks().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("violation ", violation, " has no mark"));
  }
  // The reply begins with the violation that was asked for.
  std::stable_partition(
      reply.mutable_marks()->begin(), reply.mutable_marks()->end(),
      [&](const v1::Mark& mark) { return mark.violation() == violation; });
  absl::Status written = store_.WriteAndWait(std::move(writes), kPatience);
  if (!written.ok()) return written;
  spdlog::info("mark taken back id={} with={}", violation,
               reply.marks_size() - 1);
  return reply;
}

}  // namespace traincheck::server
