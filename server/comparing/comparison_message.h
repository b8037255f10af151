// A comparison as clients get it.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_COMPARING_COMPARISON_MESSAGE_H_
#define TRAINCHECK_SERVER_COMPARING_COMPARISON_MESSAGE_H_

#include "checker/compare/run_comparison.h"
#include "proto/traincheck/v1/compare.pb.h"

namespace traincheck::server {

// All but which runs were compared.
v1::CompareRunsResult ToApi(const ComparisonResult& result);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_COMPARING_COMPARISON_MESSAGE_H_
