// How two sets of invariants differ: `invariants diff`.
#ifndef TRAINCHECK_CTL_RENDER_SET_DIFF_H_
#define TRAINCHECK_CTL_RENDER_SET_DIFF_H_

#include <string>
#include <utility>
#include <vector>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// Rules are the same where relation, parameters and precondition are: then
// they have the same id.
struct SetDiff {
  v1::SetSummary a;
  v1::SetSummary b;
  std::vector<v1::Invariant> only_a;
  std::vector<v1::Invariant> only_b;
  // The same rule with another scope: as in a, as in b.
  std::vector<std::pair<v1::Invariant, v1::Invariant>> rescoped;
  size_t same = 0;
};

SetDiff DiffSets(const v1::SetDetail& a, const v1::SetDetail& b);

// {a, b: {name, version}, only_a, only_b: rows of `invariants list`,
// rescoped: [{id, relation, text, a, b}], same}
Json SetDiffJson(const SetDiff& diff);

// A line a rule, as diff(1): "-" only in a, "+" only in b, "~" rescoped.
std::string SetDiffText(const SetDiff& diff);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_SET_DIFF_H_
