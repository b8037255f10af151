"""traincheckctl dies or stops: `run`, `watch`, and an inference job."""

import os
import pathlib
import signal
import time

import harness
from faults.base import NOTHING, Cost, Fault
from setting import RUN


class RunKilled(Fault):
    name = "ctl-run-kill"
    what = "kill -9 of `traincheckctl run`; the training goes on"

    def strike(self, s):
        s.training.kill()
        s.training.wait()


class RunStopped(Fault):
    name = "ctl-run-stop"
    what = "SIGSTOP of `traincheckctl run` for up to 3 s"

    def strike(self, s):
        s.training.send_signal(signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.3, 3))
        s.training.send_signal(signal.SIGCONT)


class RunTerminated(Fault):
    name = "ctl-run-term"
    what = "SIGTERM to `traincheckctl run`, which ends the training"
    cost = Cost(dies=True, verdicts="unknown")

    def strike(self, s):
        s.training.terminate()


def _watch(s):
    return s.start_other(
        *(s.dist / "traincheckctl", "--server", s.daemon.address),
        *("violations", "watch", "--run", RUN),
    )


class WatchKilled(Fault):
    name = "ctl-watch-kill"
    what = "kill -9 of twenty `violations watch`"
    cost = NOTHING

    def strike(self, s):
        watches = [_watch(s) for _ in range(20)]
        time.sleep(self.draw.uniform(0, 0.5))
        for watch in watches:
            watch.kill()


class WatchStopped(Fault):
    name = "ctl-watch-stop"
    what = "a `violations watch` that never reads"
    cost = NOTHING

    def strike(self, s):
        self.watch = _watch(s)
        time.sleep(0.2)
        self.watch.send_signal(signal.SIGSTOP)

    def after(self, s):
        self.watch.send_signal(signal.SIGCONT)


def _children(pid: int) -> list:
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return [int(child) for child in found]


class InferenceKilled(Fault):
    name = "inference-kill"
    what = "kill -9 of an inference job's child process, or of its client"
    cost = NOTHING

    def strike(self, s):
        infer = s.start_other(
            *(s.dist / "traincheckctl", "--server", s.daemon.address),
            *("infer", "--from", "reference", "--set", "others"),
        )
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and infer.poll() is None:
            for child in _children(s.daemon.pid):
                os.kill(child, signal.SIGKILL)
                harness.wait_until(lambda: infer.poll() is not None, "infer's end")
                if infer.returncode == 0:
                    raise AssertionError("infer succeeded though its job was killed")
                return
        infer.kill()
