#include "agent/capture/call_site.h"

#include <optional>

#include "agent/capture/log.h"
#include "agent/capture/process_recorder.h"

namespace traincheck::agent {
namespace {

constexpr int kMaxFrames = 128;
constexpr int kMaxCallers = 8;  // that a site is given
constexpr size_t kMaxCodes = 8192;
constexpr int kPlaceDepth = 4;       // frames that a place is made of
constexpr int kMaxPlaceFrames = 32;  // that are looked at for it

// No value: ring 0 has no room now, and the next call at this place tries
// again.
std::optional<uint32_t> DefineSite(Definitions& definitions, PyObject* code,
                                   int line, uint32_t caller) {
  const Ref file = Attribute(code, "co_filename");
  const Ref function = Attribute(code, "co_qualname");
  return definitions.Site(Utf8(file.get()),
                          line > 0 ? static_cast<uint32_t>(line) : 0,
                          Utf8(function.get()), caller);
}

// Places are compared within this process alone, so any hash will do.
uint64_t Mix(uint64_t hash, uint64_t word) {
  return (hash ^ word) * 0x9E3779B97F4A7C15u ^ (hash >> 29);
}

int FirstLine(PyObject* code) {
  const Ref line = Attribute(code, "co_firstlineno");
  return line ? static_cast<int>(PyLong_AsLong(line.get())) : 0;
}

}  // namespace

CallSites& CallSites::Get() {
  static auto* sites = new CallSites;
  return *sites;
}

// Whether code is the user's is decided once for each code object, by its file.
CallSites::Code& CallSites::Look(PyObject* code) {
  // The table owns the code, so that no other code can get its address
  // meanwhile.
  const auto known = codes_.find(code);
  if (known != codes_.end()) return known->second;
  // Emptied only when the new entry is in: letting go of code may run Python
  // code, which comes here again.
  std::unordered_map<PyObject*, Code> former;
  if (codes_.size() >= kMaxCodes) former.swap(codes_);
  Code& entry = codes_[code];
  entry.code = Ref::Borrow(code);
  const Ref file = Attribute(code, "co_filename");
  entry.is_user = rules_.IsUserFile(Utf8(file.get()));
  entry.is_ours = Utf8(file.get()) == "<traincheck/call>";
  return entry;
}

// Called once an instruction: later calls of the same line end at the first
// look-up.
uint32_t CallSites::SiteIn(PyObject* code, PyFrameObject* frame, int callers) {
  Code& entry = Look(code);
  // A forked child has rings of its own, in which no site is defined yet.
  if (entry.generation != g_generation) {
    entry.sites.clear();
    entry.generation = g_generation;
  }
  auto known = entry.sites.find(PyFrame_GetLasti(frame));
  if (known != entry.sites.end()) return known->second;
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return 0;
  // The search by instruction comes first, so that sites which have a line of
  // their own keep it when the limit is reached.
  const bool whole = entry.sites.size() >= kMaxSitesOfCode ||
                     process->definitions().sites() >= kMaxLineSites;
  if (whole) {
    known = entry.sites.find(kWholeFunction);
    if (known != entry.sites.end()) return known->second;
    LogOnce("call sites",
            "there are more call sites than can be numbered (generated code?):"
            " further calls are recorded at the first line of their function");
  }
  const uint32_t caller = CallerOf(frame, callers);
  // Finding the line takes as long as the code before it.
  const auto site = DefineSite(
      process->definitions(), code,
      whole ? FirstLine(code) : PyFrame_GetLineNumber(frame), caller);
  // The entry is looked up again, since the callers' code may have emptied the
  // table. Without a number nothing is kept, and the next call tries again.
  const int instruction = whole ? kWholeFunction : PyFrame_GetLasti(frame);
  if (site) Look(code).sites.emplace(instruction, *site);
  return site.value_or(0);
}

// The nearest frame of the user's code around `frame`, however much library
// code lies between.
uint32_t CallSites::CallerOf(PyFrameObject* frame, int callers) {
  // Ends the recursion through SiteIn, also where functions call each other.
  if (callers == kMaxCallers) return 0;
  Ref owner(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
  for (int depth = 0; owner && depth < kMaxFrames; ++depth) {
    auto* const around = reinterpret_cast<PyFrameObject*>(owner.get());
    const Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(around)));
    if (Look(code.get()).is_user) {
      return SiteIn(code.get(), around, callers + 1);
    }
    owner = Ref(reinterpret_cast<PyObject*>(PyFrame_GetBack(around)));
  }
  return 0;
}

// The line comes from the search in the source (a graph's mistake), not from a
// frame.
uint32_t CallSites::At(std::string_view file, uint32_t line,
                       std::string_view function) {
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr || process->definitions().sites() >= kMaxLineSites) {
    return 0;
  }
  return process->definitions()
      .Site(file, line, function, /*caller=*/0)
      .value_or(0);
}

// A wrapper has no frame of its own, so the search begins at the code that
// called it.
uint32_t CallSites::Here() {
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  // Keeps the frame that is looked at; the innermost one belongs to the
  // interpreter.
  Ref owner;
  for (int depth = 0; frame != nullptr && depth < kMaxFrames; ++depth) {
    const Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    if (Look(code.get()).is_user) return SiteIn(code.get(), frame, 0);
    frame = PyFrame_GetBack(frame);
    owner = Ref(reinterpret_cast<PyObject*>(frame));
  }
  return 0;
}

// For details of the plan: only calls that the user's own code makes are shown
// with a line.
uint32_t CallSites::OfCaller() {
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  Ref owner;
  while (frame != nullptr) {
    const Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    const Code& entry = Look(code.get());
    // Only our stand-ins are passed over. A call from library code has no site:
    // the user did not write it.
    if (!entry.is_ours) {
      return entry.is_user ? SiteIn(code.get(), frame, 0) : 0;
    }
    frame = PyFrame_GetBack(frame);
    owner = Ref(reinterpret_cast<PyObject*>(frame));
  }
  return 0;
}

// Distinguishes the places of the program from which something is reached, for
// hooks that keep what they know by place. It writes no record and defines no
// site.
uint64_t CallSites::Place(std::string_view torch) {
  uint64_t place = 0;
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  Ref owner;
  for (int found = 0, looked = 0;
       frame != nullptr && found < kPlaceDepth && looked < kMaxPlaceFrames;
       ++looked) {
    const Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    Code& entry = Look(code.get());
    // Kept for each code object: torch's folder is always the same.
    if (!entry.is_place) {
      const Ref file = Attribute(code.get(), "co_filename");
      const std::string_view name = Utf8(file.get());
      entry.is_place =
          !name.starts_with("<traincheck/") && !name.starts_with(torch);
    }
    if (*entry.is_place) {
      ++found;
      place = Mix(place, reinterpret_cast<uintptr_t>(code.get()));
      place = Mix(place, static_cast<uint64_t>(PyFrame_GetLasti(frame)));
    }
    frame = PyFrame_GetBack(frame);
    owner = Ref(reinterpret_cast<PyObject*>(frame));
  }
  return place;
}

}  // namespace traincheck::agent
