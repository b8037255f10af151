// A training that counts its SIGINT, SIGTERM and SIGHUP: says "started", and
// when none has come for half a second after the first, or for two seconds
// from the start, exits with 40 + their number. With an argument it leaves the
// process group, so that a terminal's signals do not reach it.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

int main(int argc, char**) {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  if (argc > 1) setpgid(0, 0);
  std::puts("started");
  std::fflush(stdout);
  int count = 0;
  timespec limit{2, 0};
  while (sigtimedwait(&signals, nullptr, &limit) > 0) {
    ++count;
    limit = {0, 500'000'000};
  }
  return 40 + count;
}
