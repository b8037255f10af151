// A real traincheckd on a folder, for benchmarks of whole processes.
//
// Threads: one object, one thread at a time; CpuSeconds and Status any.
#ifndef TRAINCHECK_TESTS_BENCH_DAEMON_PROCESS_H_
#define TRAINCHECK_TESTS_BENCH_DAEMON_PROCESS_H_

#include <sys/types.h>

#include <string>

namespace traincheck::server {

class DaemonProcess {
 public:
  // Starts `program` with its data below `folder`; waits until it listens.
  DaemonProcess(const std::string& program, const std::string& folder);
  // Ends it in order, unless it was killed.
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  const std::string& address() const { return address_; }

  // kill -9.
  void Kill();

  // User and system time.
  double CpuSeconds() const;
  // A row of /proc/PID/status as a number: VmHWM in KiB, Threads.
  long Status(const std::string& name) const;

 private:
  pid_t pid_ = 0;  // 0: it was killed
  std::string address_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_TESTS_BENCH_DAEMON_PROCESS_H_
