// What a check has covered, as it is stored and as clients see it.
#ifndef TRAINCHECK_SERVER_CHECKING_CHECK_SUMMARY_H_
#define TRAINCHECK_SERVER_CHECKING_CHECK_SUMMARY_H_

#include "checker/checker.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/store/stored.pb.h"

namespace traincheck {

// The fields that say what was covered; the others are the caller's.
stored::Check Summarise(const CheckSummary& summary);

// Reasons are in the order of their texts.
v1::CheckProgress ToApi(const stored::Check& check);

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_CHECKING_CHECK_SUMMARY_H_
