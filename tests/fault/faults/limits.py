"""Too little memory, too few descriptors or a busy machine."""

import resource
import subprocess
import time

from faults.base import NOTHING, UNKNOWN, Cost, Fault


class DaemonWithoutMemory(Fault):
    name = "daemon-memory"
    what = "the daemon may not take any more memory; started again if it dies"
    cost = NOTHING

    def strike(self, s):
        with open(f"/proc/{s.daemon.pid}/statm") as statm:
            now = int(statm.read().split()[0]) * resource.getpagesize()
        resource.prlimit(s.daemon.pid, resource.RLIMIT_AS, (now, now))

    def after(self, s):
        s.daemon.kill()
        s.daemon.start()


class DaemonFewDescriptors(Fault):
    name = "daemon-few-descriptors"
    what = "the daemon may open no further file or socket for up to 3 s"

    def strike(self, s):
        before = resource.prlimit(s.daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(s.daemon.pid, resource.RLIMIT_NOFILE, (10, before[1]))
        time.sleep(self.draw.uniform(0.5, 3))
        resource.prlimit(s.daemon.pid, resource.RLIMIT_NOFILE, before)


class BusyMachine(Fault):
    name = "cpu-busy"
    what = "eight processes take every processor"

    def strike(self, s):
        self.busy = [
            subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(8)
        ]

    def after(self, s):
        for process in self.busy:
            process.kill()
            process.wait()


class RelayFewDescriptors(Fault):
    name = "relay-few-descriptors"
    what = "a relay may open no further file or socket while the daemon is away"
    cost = Cost(records="counted", verdicts="unknown")
    last = 15

    def strike(self, s):
        relay = s.relay_of(self.rank(s))
        before = resource.prlimit(relay, resource.RLIMIT_NOFILE)
        resource.prlimit(relay, resource.RLIMIT_NOFILE, (5, before[1]))
        s.daemon.kill()
        time.sleep(self.draw.uniform(0.5, 2))
        s.daemon.start()
        resource.prlimit(relay, resource.RLIMIT_NOFILE, before)
