// What `status` prints: the server and the runs that have not ended.
#ifndef TRAINCHECK_CTL_RENDER_STATUS_H_
#define TRAINCHECK_CTL_RENDER_STATUS_H_

#include <string>

#include "ctl/render/json.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// {server: {version, store_id, uptime_s, quarantined_batches, stored_bytes,
// free_bytes, store_error}, runs: [a row of `runs list` and {ranks: [{rank,
// pid, host, state, reason, records, dropped, lost}]}]}
Json StatusJson(const v1::ServerStatus& status);

std::string StatusText(const v1::ServerStatus& status);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_STATUS_H_
