// The user's line from which a call comes: file, line and function of the
// innermost frame in the user's own code, as the number of a SiteDef. A site
// names the one of the next frame in the user's code, as it was when the site
// was reached first.
//
// Code objects are looked at once; after that a site costs a hash lookup for
// each frame down to the user's, and one for the instruction. Code is kept
// alive by the table, which is emptied when a program makes code without end.
// Where a function has more calls than people write, the further ones have its
// first line (see also definitions.h, kMaxLineSites).
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_CALL_SITE_H_
#define TRAINCHECK_AGENT_CAPTURE_CALL_SITE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/capture/site_rules.h"
#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

class CallSites {
 public:
  static CallSites& Get();

  SiteRules& rules() { return rules_; }

  // Site of the code that runs now; 0: none of it is the user's, or ring 0 is
  // full.
  uint32_t Here();
  // Site of the frame that called; 0: it is no code of the user's.
  uint32_t OfCaller();
  // Site of a line that does not run now, as the source says; 0: there are too
  // many sites, or ring 0 is full.
  static uint32_t At(std::string_view file, uint32_t line,
                     std::string_view function);
  // Equal for equal places in the code: of the innermost frames that are
  // neither ours nor of files below `torch`, some of them, down to the
  // instruction.
  uint64_t Place(std::string_view torch);

 private:
  struct Code {
    Ref code;
    bool is_user = false;
    bool is_ours = false;  // a Python function that stands before a wrapper
    std::optional<bool> is_place;  // see Place
    uint32_t generation = 0;
    // By instruction, or kWholeFunction; a handful in each function.
    std::unordered_map<int, uint32_t> sites;
  };

  static constexpr size_t kMaxSitesOfCode = 1024;
  static constexpr int kWholeFunction = -1;

  Code& Look(PyObject* code);
  // Of a frame of the user's code, `callers` deep in what called it.
  uint32_t SiteIn(PyObject* code, PyFrameObject* frame, int callers);
  // Of the next frame of the user's code around this one; 0: there is none, or
  // there are too many.
  uint32_t CallerOf(PyFrameObject* frame, int callers);

  SiteRules rules_;
  std::unordered_map<PyObject*, Code> codes_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CALL_SITE_H_
