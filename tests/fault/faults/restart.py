"""A training is started again under the id of its run.

The first start dies before its error, the second one trains to its end: what an
undisturbed training shows has to be shown of it, and nothing of the first, of
whose ranks none may be compared with any of the second.
"""

import os
import signal

import harness
from faults.base import Cost, Fault

_SEEN = Cost(restarts=True)
_UNSEEN = Cost(records="unknown", spool=True, restarts=True)


class _Restart(Fault):
    first, last = 3, 8
    cost = _SEEN

    def prepare(self, s):
        s.run_under = "preload"

    def strike(self, s):
        self.end(s, [s.rank_pid(rank) for rank in range(s.ranks)])
        s.restart()

    def end(self, s, pids: list) -> None:
        raise NotImplementedError


class RestartAfterDeathsSeen(_Restart):
    name = "restart-seen"
    what = "all ranks are killed, and started again under the same run id"

    def end(self, s, pids):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        harness.wait_until(lambda: not s.relays(), "the end of the relays")


class RestartAfterDeathsUnseen(_Restart):
    name = "restart-unseen"
    what = "ranks and relays are killed, one death is told; started again"
    cost = _UNSEEN

    def end(self, s, pids):
        seen = self.draw.choice(pids)
        relays = s.relays()
        unseen = [pid for pid in pids if pid != seen]
        # Else they would notice that a rank is gone, and end in order.
        for pid in unseen:
            os.kill(pid, signal.SIGSTOP)
        os.kill(seen, signal.SIGKILL)
        harness.wait_until(lambda: s.is_told_dead(seen), "the first death")
        for pid in unseen:
            os.kill(relays[pid], signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)


class RestartBeforeDeathsAreSeen(_Restart):
    name = "restart-seen-late"
    what = "ranks are killed under stopped relays, which go on after the restart"

    def end(self, s, pids):
        self.relays = [s.relay_of(rank) for rank in range(s.ranks)]
        for relay in self.relays:
            os.kill(relay, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def after(self, s):
        for relay in self.relays:
            os.kill(relay, signal.SIGCONT)


class RestartWithoutDaemon(_Restart):
    name = "restart-spooled"
    what = "two starts while the daemon is away, one without a rank; `spool send`"
    cost = _UNSEEN
    daemon_first = False

    def prepare(self, s):
        super().prepare(s)
        s.environment["TRAINCHECK_GRACE"] = "1"

    def end(self, s, pids):
        lost = self.rank(s)
        s.kill(s.relay_of(lost))
        for pid in pids:
            s.kill(pid)
        harness.wait_until(lambda: not s.relays(), "the end of the relays")
        # Its node is gone.
        for file in s.spool.rglob(f"*-{pids[lost]}-*.spool"):
            file.unlink()

    def after(self, s):
        harness.wait_until(lambda: not s.relays(), "the end of the relays")
        s.daemon.start()
        s.daemon.do("spool", "send", str(s.spool))
