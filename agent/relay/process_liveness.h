// Is a process still there? Asked about the owner of a spool file, by a relay
// that may live in another container.
//
// Threads: all functions only read /proc.
#ifndef TRAINCHECK_AGENT_RELAY_PROCESS_LIVENESS_H_
#define TRAINCHECK_AGENT_RELAY_PROCESS_LIVENESS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

// Of the running system; empty: unknown.
std::string BootId();
std::string HostName();
// Field 22 of /proc/PID/stat; nothing if there is no such process.
std::optional<uint64_t> StartTicks(uint32_t pid);
// CLOCK_REALTIME of a start that /proc/PID/stat gives in ticks since the boot,
// by the clocks as they stand now; nanoseconds.
uint64_t UnixNsOfStart(uint64_t start_ticks);
// Inode of this process's pid namespace; 0: unknown.
uint64_t PidNamespace();

// Does the process have a file mapped that has this inode? Nothing: its
// mappings cannot be read.
std::optional<bool> HasMapped(uint32_t pid, uint64_t inode);

enum class Liveness {
  kAlive,
  kDead,
  kUnknown,  // it ran where this process cannot look
};

// `pid_namespace`: of the relay that wrote the identity down; 0: unknown.
Liveness LivenessOf(const v1::ProcessIdentity& process, uint64_t pid_namespace);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_PROCESS_LIVENESS_H_
