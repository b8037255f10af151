// Calls of a trace as call records, nested as the trace has them.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_CALLS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_CALLS_H_

#include <cstdint>
#include <map>
#include <string>

#include "invariants/traincheck/conversion.h"

namespace traincheck {

class TraceCalls {
 public:
  // `conversion` must outlive this object.
  explicit TraceCalls(Conversion* conversion) : conversion_(*conversion) {}

  // Why nothing became of the line; "": it is a record now. REQUIRES:
  // line.is_call().
  std::string Take(const TraceLine& line, TraceThread* thread);

  // Has an optimizer stepped?
  bool stepped() const { return stepped_; }

 private:
  // What is known of an iterator of a loader.
  struct Iterator {
    uint32_t loader = 0;
    uint64_t ordinal = 0;
    uint64_t fetched = 0;
    bool exhausted = false;
  };

  std::string Begin(const TraceLine& line, TraceThread* thread);
  std::string End(const TraceLine& line, TraceThread* thread);
  uint32_t ObjectOf(const TraceLine& line);
  uint8_t FlagsOf(const TraceLine& line, const TraceThread& thread,
                  const Call& call) const;
  void WriteBegin(const TraceLine& line, const TraceThread& thread,
                  const Call& call);
  void WriteEnd(const TraceLine& line, const TraceThread& thread,
                const Call& call);
  void TellLoader(const TraceLine& line, const Call& call, TraceThread* thread);
  static void FollowGradMode(const std::string& function, const TraceLine& line,
                             TraceThread* thread);
  uint32_t SiteOf(const TraceLine& line);

  Conversion& conversion_;
  bool stepped_ = false;
  std::map<uint32_t, Iterator> iterators_;  // by object
  std::map<uint32_t, uint64_t> ordinals_;   // iterators of a loader so far
  uint32_t last_loader_ = 0;                // whose iterator was made last
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_CALLS_H_
