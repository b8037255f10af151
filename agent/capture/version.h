// The agent's version as its records carry it.
#ifndef TRAINCHECK_AGENT_CAPTURE_VERSION_H_
#define TRAINCHECK_AGENT_CAPTURE_VERSION_H_

namespace traincheck::agent {

inline constexpr char kAgentVersion[] = "0.1.0";

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_VERSION_H_
