"""The daemon dies, stops, changes, or is not there."""

import os
import shutil
import signal
import subprocess
import time

import harness
from faults.base import COUNTED, NOTHING, Fault
from setting import RUN, SET


class DaemonKilled(Fault):
    name = "daemon-kill"
    what = "kill -9 of the daemon, started again within a second"

    def strike(self, s):
        s.daemon.kill()
        time.sleep(self.draw.uniform(0, 1))
        s.daemon.start()


class DaemonTerminated(Fault):
    name = "daemon-term"
    what = "SIGTERM to the daemon, started again within a second"

    def strike(self, s):
        s.daemon.stop()
        time.sleep(self.draw.uniform(0, 1))
        s.daemon.start()


class DaemonKilledAgainAndAgain(Fault):
    name = "daemon-kill-repeated"
    what = "kill -9 of the daemon four times, some during its start"
    last = 15

    def strike(self, s):
        for _ in range(4):
            s.daemon.kill()
            s.daemon.spawn()
            time.sleep(self.draw.uniform(0.01, 0.5))
        s.daemon.kill()
        s.daemon.start()


class DaemonStopped(Fault):
    name = "daemon-stop"
    what = "SIGSTOP of the daemon for up to 3 s"

    def strike(self, s):
        s.daemon.signal(signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.3, 3))
        s.daemon.signal(signal.SIGCONT)


class DaemonHangs(Fault):
    name = "daemon-hang"
    what = "the daemon hangs until the training is over"

    def strike(self, s):
        s.daemon.signal(signal.SIGSTOP)

    def after(self, s):
        s.daemon.signal(signal.SIGCONT)


class EmptyDataDirectory(Fault):
    name = "daemon-new-store"
    what = "the data directory is replaced by an empty one while ranks run"
    cost = COUNTED

    def strike(self, s):
        rules = s.folder / "rules.json"
        s.daemon.do("invariants", "export", "--set", SET, str(rules))
        s.daemon.kill()
        shutil.move(s.daemon.data_dir, s.folder / "data.old")
        s.daemon.start()
        s.daemon.do("invariants", "import", "--set", SET, str(rules))


class DaemonReplaced(Fault):
    name = "daemon-replaced"
    what = "another daemon binary takes over the data directory"

    def strike(self, s):
        other = s.folder / "traincheckd.next"
        shutil.copy(harness.DIST / "traincheckd", other)
        s.daemon.stop()
        s.daemon.program = other
        s.daemon.start()


class DaemonLate(Fault):
    name = "daemon-late"
    what = "no daemon at the start; it comes while ranks train"
    daemon_first = False

    def strike(self, s):
        s.daemon.start()


class DaemonNever(Fault):
    name = "daemon-never"
    what = "no daemon at all; `spool send` delivers afterwards"
    daemon_first = False

    def prepare(self, s):
        s.environment["TRAINCHECK_GRACE"] = "1"

    def after(self, s):
        harness.wait_until(lambda: not s.relays(), "the end of the relays")
        s.daemon.start()
        done = subprocess.run(
            [s.dist / "traincheckctl", "--server", s.daemon.address]
            + ["spool", "send", s.spool],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise AssertionError(f"spool send: {done.returncode} {done.stderr}")


class DaemonAddressTaken(Fault):
    name = "daemon-second"
    what = "a second daemon is started on the same data directory and address"

    def strike(self, s):
        second = s.start_other(
            *(s.daemon.program, "--data-dir", s.daemon.data_dir),
            *("--listen", s.daemon.address),
        )
        if second.wait(harness.PATIENCE_S) == 0:
            raise AssertionError("a second daemon ran on the same data directory")


class DaemonAndRelayKilled(Fault):
    name = "daemon-and-relay-kill"
    what = "kill -9 of the daemon and a relay at once; the daemon comes back"

    def strike(self, s):
        relay = s.relay_of(self.rank(s))
        s.daemon.kill()
        os.kill(relay, signal.SIGKILL)
        time.sleep(self.draw.uniform(0, 1))
        s.daemon.start()


class KilledWhileChecking(Fault):
    name = "daemon-kill-while-checked"
    what = "kill -9 of the daemon in the steps after the error"
    cost = NOTHING
    first, last = 13, 20

    def strike(self, s):
        s.daemon.kill()
        s.daemon.start()
        s.daemon.ctl("violations", "list", "--run", RUN)
