// The tables of this process in ring 0: each name or thing that records refer
// to gets a small number, and a definition record says once what it stands
// for. Ring 0 never drops. Where it has no room, the tables are *blocked*:
// a name's number is 0 ("not known") and its next use tries again, while what
// is said only once (a variable, what an optimizer holds) is kept here until
// there is room. Whoever writes events must not commit any while the tables
// are blocked: so a definition always precedes its use, and nothing is lost.
//
// Threads: externally synchronised (in the agent: GIL held).
#ifndef TRAINCHECK_AGENT_CAPTURE_DEFINITIONS_H_
#define TRAINCHECK_AGENT_CAPTURE_DEFINITIONS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "agent/capture/process_identity.h"
#include "agent/ring/ring_writer.h"
#include "proto/record_format.h"
#include "proto/record_writer.h"

namespace traincheck::agent {

// A default that a signature names; monostate: none, or nothing that a record
// could tell.
using PlainValue = std::variant<std::monostate, std::nullptr_t, bool, int64_t,
                                double, std::string>;

// A parameter whose argument calls tell.
struct ParameterFacts {
  std::string name;
  PlainValue fallback;
};

struct FunctionFacts {
  std::string name;
  std::string category;
  std::vector<std::string> roles;  // narrow to general
  // What calls tell, from now on.
  std::vector<ParameterFacts> parameters;
  bool tells_return = false;
};

// Generated code has call sites without end, and every table of them, here, in
// the relay and in the daemon, grows with them. From kMaxLineSites on a call is
// where its function begins; beyond kMaxSites it is nowhere.
inline constexpr uint32_t kMaxLineSites = 16'384;
inline constexpr uint32_t kMaxValueNames = 10'000;
inline constexpr uint32_t kMaxSites = 2 * kMaxLineSites;

class Definitions {
 public:
  // REQUIRES: ring is ring 0 of this process.
  explicit Definitions(std::unique_ptr<RingWriter> ring);

  RingWriter& ring() { return *ring_; }

  // Told when the tables become blocked, and free again.
  void OnBlocked(std::function<void(bool blocked)> told) {
    told_ = std::move(told);
  }
  bool blocked() const { return blocked_; }
  // Commits what is kept and frees the tables, if there is room by now. Not
  // while a record is put together that may have got a 0 for a number: after
  // it was dropped. Cheap enough for every such record.
  void Retry() {
    if (blocked_) RetrySlow();
  }

  // Must be the first one; written again when the process turns out to be
  // something else, and for a relay that takes over. Kept; false: too much is.
  bool Process(const ProcessIdentity& identity);

  uint32_t String(std::string_view text);
  // Of an argument, or of a class, that recorded values have: a program may
  // make such names without end. 0 also: there are kMaxValueNames of others.
  uint32_t ValueName(std::string_view name);
  // How many there are.
  uint32_t strings() const { return static_cast<uint32_t>(strings_.size()); }
  uint32_t Function(const FunctionFacts& facts);
  // The same number for the same place, whoever called it later. `caller`: the
  // site through which it is reached now; 0: none. 0: there are kMaxSites of
  // others. nothing: no room now.
  std::optional<uint32_t> Site(std::string_view file, uint32_t line,
                               std::string_view function, uint32_t caller);
  // How many there are.
  uint32_t sites() const { return static_cast<uint32_t>(sites_.size()); }

 private:
  friend class Definition;

  void RetrySlow();
  void SetBlocked(bool blocked);
  // False: not committed, and not kept.
  bool Put(const char* record, size_t size, bool keep);
  uint32_t StringId(std::string_view text, bool keep);
  uint32_t KnownString(std::string_view text) const;

  std::unique_ptr<RingWriter> ring_;
  std::function<void(bool)> told_;
  uint32_t value_names_ = 0;
  bool blocked_ = false;
  // Some were more than may be kept: blocked for good.
  bool overfull_ = false;
  std::deque<std::string> kept_;
  size_t kept_bytes_ = 0;
  uint64_t last_us_ = 0;
  std::unordered_map<std::string, uint32_t> strings_;
  uint32_t functions_ = 0;
  // By file, line and function.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> sites_;
};

// One definition being put together:
//
//   Definition def(definitions, id);
//   def.Text(Field::kClass, "Net");
//   if (def.fingerprint() != last) def.Commit(RecordType::kObjectDef);
class Definition {
 public:
  // What happens where ring 0 has no room.
  enum class NoRoom { kFail, kKeep };

  Definition(Definitions& all, uint32_t id, uint32_t aux = 0,
             NoRoom no_room = NoRoom::kFail);

  // The text as a string's number. Without room for it Commit will fail.
  void Text(Field field, std::string_view text);
  // The text itself; for ProcessDef and StringDef.
  void Inline(Field field, std::string_view text);
  void Number(Field field, uint64_t value);
  // Under the field of its kind; nothing for monostate.
  void Plain(const PlainValue& value);

  // Equal for equal content.
  uint64_t fingerprint() const { return fingerprint_; }

  // False: ring 0 has no room and it is not kept, or the definition is longer
  // than a record.
  [[nodiscard]] bool Commit(RecordType type);

 private:
  void Mix(Field field, std::string_view bytes);

  Definitions& all_;
  const bool keep_;
  std::unique_ptr<char[]> buffer_;
  FieldWriter out_;
  uint64_t fingerprint_ = 0;
  bool complete_ = true;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_DEFINITIONS_H_
