// Reads what one process recorded while a version of its capture plan zoomed
// in. Batches from the process's first one on are needed: they define what
// later ones name by number.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_ZOOM_ZOOM_READER_H_
#define TRAINCHECK_CHECKER_ZOOM_ZOOM_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "checker/zoom/zoomed_process.h"
#include "invariants/trace/clock.h"
#include "invariants/trace/events.h"
#include "invariants/trace/process_reader.h"
#include "invariants/trace/stored_batch.h"

namespace traincheck {

class ZoomReader : private EventVisitor {
 public:
  // `subject` must outlive the reader.
  ZoomReader(const ZoomSubject* subject, uint64_t plan_version)
      : subject_(*subject), plan_version_(plan_version), reader_(this) {}

  // The next batch in the order of the store.
  void Consume(const StoredBatch& batch) { reader_.Consume(batch); }

  // Nothing that follows adds to it.
  bool over() const { return found_.over; }
  const ZoomedProcess& found() const { return found_; }

 private:
  void OnCallBegin(const Call& call) override { clock_.OnCallBegin(call); }
  void OnCallEnd(const Call& call, CallOutcome outcome,
                 uint8_t output_flags) override;
  void OnState(const StateEvent& event) override;
  void OnStatistics(const StatisticsEvent& event) override;
  void OnRows(const RowsEvent& event) override;
  void OnScalar(const ScalarEvent&) override {}
  void OnMark(const MarkEvent& mark) override;
  void OnPlace(const PlaceRecord&) override {}
  void OnGap(const std::string& reason) override;
  void OnDefinition(RecordType, uint32_t) override {}

  bool is_at_work() const { return found_.began && !found_.over; }
  // nullopt: not kept, or records were missing and it is not known.
  std::optional<uint64_t> Step() const;
  void Keep(const StateEvent& event, bool is_grad, uint64_t step);
  // Of the state that a record tells more of; null: it was not kept.
  ZoomedValue* Find(uint32_t variable, StatePoint point, uint8_t of);

  const ZoomSubject& subject_;
  const uint64_t plan_version_;
  ProcessReader reader_;
  Clock clock_;
  bool whole_ = true;  // is everything of the plan recorded now?
  // The last state of a variable of the subject, and where it was kept.
  std::pair<uint32_t, StatePoint> last_ = {0, StatePoint::kNone};
  ZoomedValue* last_data_ = nullptr;
  ZoomedValue* last_grad_ = nullptr;
  ZoomedProcess found_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_ZOOM_ZOOM_READER_H_
