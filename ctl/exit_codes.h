// Exit codes of traincheckctl; `run` passes the training's own code on.
#ifndef TRAINCHECK_CTL_EXIT_CODES_H_
#define TRAINCHECK_CTL_EXIT_CODES_H_

namespace traincheck::ctl {

inline constexpr int kExitDone = 0;
// doctor found something that keeps trainings from being recorded.
inline constexpr int kExitUnhealthy = 1;
// compare found a difference, as diff does.
inline constexpr int kExitDifferent = 1;
// Wrong arguments, an unknown set, a file that cannot be read.
inline constexpr int kExitUsage = 2;
// The server answered with an error.
inline constexpr int kExitServerError = 3;
inline constexpr int kExitUnreachable = 4;
// stdout cannot be written.
inline constexpr int kExitOutput = 5;
// Of `check`, and of `run` where the training itself exited with 0:
// --fail-on-violation found a violation,
inline constexpr int kExitViolations = 10;
// or less was decided than --fail-on-violation or --min-coverage ask for. Of
// `compare`: no step was recorded in both runs.
inline constexpr int kExitTooLittle = 11;
// As shells do.
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitCommandNotFound = 127;
inline constexpr int kExitSignalBase = 128;

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_EXIT_CODES_H_
