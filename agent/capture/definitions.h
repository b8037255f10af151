// The tables of this process in ring 0: each name or thing that records refer
// to gets a small number, and a definition record says once what it stands
// for. A definition is committed before its number is given out, so that it
// always precedes its use. Ring 0 never drops: where it is full the number is
// 0 ("not known") and the next use tries again.
//
// Threads: externally synchronised (in the agent: GIL held).
#ifndef TRAINCHECK_AGENT_CAPTURE_DEFINITIONS_H_
#define TRAINCHECK_AGENT_CAPTURE_DEFINITIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/capture/process_identity.h"
#include "agent/ring/ring_writer.h"
#include "proto/record_format.h"
#include "proto/record_writer.h"

namespace traincheck {

class Definitions {
 public:
  // REQUIRES: ring is ring 0 of this process.
  explicit Definitions(std::unique_ptr<RingWriter> ring);

  RingWriter& ring() { return *ring_; }

  // Must be the first one; written again when the process turns out to be
  // something else. False: no room.
  bool Process(const ProcessIdentity& identity);

  uint32_t String(std::string_view text);
  uint32_t Function(std::string_view name, std::string_view category,
                    const std::vector<std::string>& roles);
  uint32_t Site(std::string_view file, uint32_t line,
                std::string_view function);

 private:
  friend class Definition;

  std::unique_ptr<RingWriter> ring_;
  uint64_t last_us_ = 0;
  std::unordered_map<std::string, uint32_t> strings_;
  uint32_t functions_ = 0;
  uint32_t sites_ = 0;
};

// One definition being put together:
//
//   Definition def(definitions, id);
//   def.Text(Field::kClass, "Net");
//   if (def.fingerprint() != last) def.Commit(RecordType::kObjectDef);
class Definition {
 public:
  explicit Definition(Definitions& all, uint32_t id, uint32_t aux = 0);

  // The text as a string's number. Without room for it Commit will fail.
  void Text(Field field, std::string_view text);
  // The text itself; for ProcessDef and StringDef.
  void Inline(Field field, std::string_view text);
  void Number(Field field, uint64_t value);

  // Equal for equal content.
  uint64_t fingerprint() const { return fingerprint_; }

  // False: ring 0 has no room, or the definition is longer than a record.
  [[nodiscard]] bool Commit(RecordType type);

 private:
  void Mix(Field field, std::string_view bytes);

  Definitions& all_;
  std::unique_ptr<char[]> buffer_;
  FieldWriter out_;
  uint64_t fingerprint_ = 0;
  bool complete_ = true;
};

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_CAPTURE_DEFINITIONS_H_
