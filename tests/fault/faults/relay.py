"""The relay dies, stops, runs out of memory."""

import os
import resource
import signal
import time

from faults.base import KILLED_RANK, UNKNOWN, Cost, Fault


class RelayKilled(Fault):
    name = "relay-kill"
    what = "kill -9 of one relay"

    def strike(self, s):
        os.kill(s.relay_of(self.rank(s)), signal.SIGKILL)


class AllRelaysKilled(Fault):
    name = "relay-kill-all"
    what = "kill -9 of the relays of all ranks at once"

    def strike(self, s):
        for relay in s.relays().values():
            os.kill(relay, signal.SIGKILL)


class RelayKilledTwice(Fault):
    name = "relay-kill-twice"
    what = "kill -9 of a relay, and of its successor"
    last = 15

    def strike(self, s):
        rank = self.rank(s)
        first = s.relay_of(rank)
        os.kill(first, signal.SIGKILL)
        s.wait_step(self.step + self.draw.randint(4, 12))
        second = s.relays().get(s.rank_pid(rank))
        if second and second != first:
            os.kill(second, signal.SIGKILL)


class RelayTerminated(Fault):
    name = "relay-term"
    what = "SIGTERM to one relay"

    def strike(self, s):
        os.kill(s.relay_of(self.rank(s)), signal.SIGTERM)


class RelayStopped(Fault):
    name = "relay-stop"
    what = "SIGSTOP of one relay for up to 3 s"

    def strike(self, s):
        relay = s.relay_of(self.rank(s))
        os.kill(relay, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.3, 3))
        os.kill(relay, signal.SIGCONT)


class RelayHangs(Fault):
    name = "relay-hang"
    what = "one relay hangs until the training is over"

    def strike(self, s):
        self.relay = s.relay_of(self.rank(s))
        os.kill(self.relay, signal.SIGSTOP)

    def after(self, s):
        os.kill(self.relay, signal.SIGCONT)


class RelayWithoutMemory(Fault):
    name = "relay-memory"
    what = "one relay may not take any more memory"
    cost = UNKNOWN

    def strike(self, s):
        relay = s.relay_of(self.rank(s))
        with open(f"/proc/{relay}/statm") as statm:
            now = int(statm.read().split()[0]) * resource.getpagesize()
        resource.prlimit(relay, resource.RLIMIT_AS, (now, now))


class RelayKilledWhileDaemonAway(Fault):
    name = "relay-kill-spooling"
    what = "kill -9 of a relay that spools because the daemon is away"
    last = 15

    def strike(self, s):
        s.daemon.kill()
        s.wait_step(self.step + 6)
        os.kill(s.relay_of(self.rank(s)), signal.SIGKILL)
        s.wait_step(self.step + 14)
        s.daemon.start()


class RelayAndRankKilled(Fault):
    name = "relay-and-rank-kill"
    what = "kill -9 of a rank and its relay at once"
    cost = Cost(dies=True, records="unknown", verdicts="unknown", spool=True)

    def strike(self, s):
        rank = self.rank(s)
        relay = s.relay_of(rank)
        os.kill(relay, signal.SIGKILL)
        os.kill(s.rank_pid(rank), signal.SIGKILL)


class RankKilledUnderStoppedRelay(Fault):
    name = "rank-kill-relay-stopped"
    what = "kill -9 of a rank while its relay is stopped"
    cost = KILLED_RANK

    def strike(self, s):
        rank = self.rank(s)
        self.relay = s.relay_of(rank)
        os.kill(self.relay, signal.SIGSTOP)
        s.wait_step(self.step + 3)
        os.kill(s.rank_pid(rank), signal.SIGKILL)

    def after(self, s):
        os.kill(self.relay, signal.SIGCONT)
