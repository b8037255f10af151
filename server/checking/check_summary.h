// What a check has covered, as it is stored and as clients see it.
#ifndef TRAINCHECK_SERVER_CHECKING_CHECK_SUMMARY_H_
#define TRAINCHECK_SERVER_CHECKING_CHECK_SUMMARY_H_

#include <cstdint>

#include "checker/checker.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/runs/registry.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

// The fields that say what was covered; the others are the caller's.
stored::Check Summarise(const CheckSummary& summary);

// Of a check that has finished.
stored::DecidedRules DecidedBy(const Checker& checker);

// Reasons are in the order of their texts.
v1::CheckProgress ToApi(const stored::Check& check);

// Over all processes of the run.
uint64_t BatchCountOf(const RunView& run);

// All that the run has was checked to the end.
void MarkFinished(const RunView& run, stored::Check* check);
// Was it, and nothing has come since?
bool IsFinished(const stored::Check& check, const RunView& run);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_CHECK_SUMMARY_H_
