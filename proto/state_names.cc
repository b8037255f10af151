#include "proto/state_names.h"

namespace traincheck {

// These names are shown by the client and in metrics. "": a state that this
// build does not know.
std::string StateName(v1::ProcessState state) {
  switch (state) {
    case v1::PROCESS_STATE_STREAMING:
      return "streaming";
    case v1::PROCESS_STATE_DISCONNECTED:
      return "disconnected";
    case v1::PROCESS_STATE_ENDED:
      return "ended";
    case v1::PROCESS_STATE_LOST:
      return "lost";
    default:
      return "";
  }
}

std::string JobStatusName(v1::JobStatus status) {
  switch (status) {
    case v1::JOB_STATUS_QUEUED:
      return "queued";
    case v1::JOB_STATUS_RUNNING:
      return "running";
    case v1::JOB_STATUS_DONE:
      return "done";
    case v1::JOB_STATUS_FAILED:
      return "failed";
    case v1::JOB_STATUS_CANCELLED:
      return "cancelled";
    default:
      return "";
  }
}

}  // namespace traincheck
