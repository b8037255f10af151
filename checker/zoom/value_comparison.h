// Compares what was recorded of one value in several steps and on several
// ranks.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_ZOOM_VALUE_COMPARISON_H_
#define TRAINCHECK_CHECKER_ZOOM_VALUE_COMPARISON_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checker/zoom/zoomed_process.h"

namespace traincheck {

using ValuesBySteps = std::map<uint64_t, ZoomedValue>;
// By rank; never null.
using ValuesByRank = std::map<int32_t, const ValuesBySteps*>;

// "ranks 0, 1"
std::string RanksWords(const std::vector<int32_t>& ranks);

// "3 of 64 rows: 2, 5, 7"; "": rows were not recorded of both.
std::string DifferentRowsWords(const ZoomedValue& a, const ZoomedValue& b);

// "norm 0.31 to 0.42, largest magnitude 0.07, all finite"; "": not recorded.
std::string SizeWords(const ValuesByRank& values);

// "there is none in 8 of 8 records", "all zero in 2 of 8 records"; "": neither.
std::string AbsenceWords(const ValuesByRank& values);

// "equal on ranks 0, 1", "rank 1 differs from ranks 0, 2 since step 14 in 3 of
// 64 rows: 2, 5, 7"; "": one rank alone recorded it.
std::string RankWords(const ValuesByRank& values);

// Of a value before and after the optimizer's step: "the optimizer's step
// changed it in 8 of 8 records, first in 3 of 64 rows: 2, 5, 7"; "": no step
// has both.
std::string ChangeWords(const ValuesByRank& before, const ValuesByRank& after);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_ZOOM_VALUE_COMPARISON_H_
