"""Inference jobs on real recordings: the same sets, in processes of their own."""

import os
import pathlib
import signal
import subprocess
import threading
import unittest

import harness


def children(pid: int) -> list[int]:
    """Child processes of pid, those that have ended and were not reaped too."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # a thread that has ended
    return found


def command_of(pid: int) -> bytes:
    """b"": it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


class Trap(threading.Thread):
    """Stops the first process that a daemon starts, as soon as it runs a program
    of its own: jobs on small runs last some milliseconds."""

    def __init__(self, daemon_pid: int):
        super().__init__(daemon=True)
        self._pid = daemon_pid
        self._given_up = threading.Event()
        self.caught = None
        self.start()

    def run(self):
        own = command_of(self._pid)
        while self.caught is None and not self._given_up.is_set():
            for child in children(self._pid):
                if command_of(child) not in (b"", own):
                    self._catch(child)
                    return

    def _catch(self, child):
        try:
            os.kill(child, signal.SIGSTOP)
        except ProcessLookupError:
            return
        # A process that ended meanwhile has no command any more.
        if command_of(child):
            self.caught = child

    def give_up(self):
        self._given_up.set()
        self.join()


class Jobs(harness.TrainingCase):
    def record(self, daemon, run: str, steps: int = 20) -> None:
        done = self.monitored(
            harness.PIPELINES / "mlp_ddp.py",
            *("--steps", str(steps)),
            options=("--run", run, "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        daemon.run_ended(run)

    def job_ended(self, daemon, job: str) -> dict:
        def ended():
            shown = daemon.ctl("jobs", "show", job)
            return shown if shown["status"] not in ("queued", "running") else None

        return harness.wait_until(ended, f"the end of job {job}")

    def stopped_job(self, daemon) -> tuple[str, int, list]:
        """A job whose process is stopped: its id, the process, and the sets of
        jobs that ended before they could be stopped."""
        learned = []
        for attempt in range(50):
            name = f"rules{attempt}"
            trap = Trap(daemon.pid)
            job = daemon.ctl("infer", "--from", "a", "--set", name, "--detach")["job"]
            harness.wait_until(
                lambda: trap.caught or not self.goes_on(daemon, job),
                "the job's process",
            )
            trap.give_up()
            if trap.caught is not None:
                return job, trap.caught, learned
            self.assertEqual(self.job_ended(daemon, job)["status"], "done")
            learned.append(name)
        self.fail("50 jobs ended before they could be stopped")

    def goes_on(self, daemon, job: str) -> bool:
        shown = daemon.ctl("jobs", "show", job)
        return shown["status"] in ("queued", "running")

    def invariants(self, daemon, name: str) -> list:
        rows = daemon.ctl("invariants", "list", name)
        return sorted((row["id"], row["support"], row["text"]) for row in rows)

    def test_learned_again_a_set_is_the_same(self):
        daemon = self.start_daemon()
        self.record(daemon, "a")
        self.record(daemon, "b", steps=25)
        infer = ("infer", "--from", "a,b", "--set")
        waited = daemon.ctl(*infer, "waited")
        self.assertGreater(waited["invariants"], 5)
        self.assertEqual(waited["runs"], ["a", "b"])
        self.assertEqual(waited["status"], "done")

        detached = daemon.ctl("infer", "--from", "b,a,b", "--set", "later", "--detach")
        self.assertIn(detached["status"], ("queued", "running", "done"))
        self.assertEqual(detached["id"], detached["job"])
        shown = self.job_ended(daemon, detached["job"])
        self.assertEqual(shown["status"], "done", shown)
        self.assertEqual(shown["invariants"], waited["invariants"])
        self.assertGreater(shown["peak_bytes"], 1 << 20)
        self.assertEqual(
            self.invariants(daemon, "waited"), self.invariants(daemon, "later")
        )
        listed = daemon.ctl("jobs", "list")
        self.assertEqual(
            [(row["id"], row["set"], row["status"]) for row in listed],
            [(waited["job"], "waited", "done"), (detached["job"], "later", "done")],
        )
        self.assertEqual(children(daemon.pid), [])

    def test_a_killed_job_leaves_no_set_and_the_next_one_works(self):
        daemon = self.start_daemon()
        self.record(daemon, "a")
        job, child, learned = self.stopped_job(daemon)
        queued = daemon.ctl("infer", "--from", "a", "--set", "next", "--detach")["job"]
        os.kill(child, signal.SIGKILL)
        killed = self.job_ended(daemon, job)
        self.assertEqual(killed["status"], "failed")
        self.assertIn("killed by signal 9", killed["reason"])
        self.assertIn("memory limit", killed["reason"])
        self.assertIsNone(killed["invariants"])
        self.assertEqual(self.job_ended(daemon, queued)["status"], "done")
        sets = {row["name"] for row in daemon.ctl("sets", "list")}
        self.assertEqual(sets, {"builtin", "next", *learned})

    def test_an_interrupted_infer_leaves_its_job_to_the_daemon(self):
        daemon = self.start_daemon()
        self.record(daemon, "a")
        command = [str(harness.DIST / "traincheckctl"), "--server", daemon.address]
        command += ["infer", "--from", "a", "--set", "rules"]
        blocked, child, _ = self.stopped_job(daemon)
        earlier = {row["id"] for row in daemon.ctl("jobs", "list")}
        infer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        (waiting,) = harness.wait_until(
            lambda: [
                row["id"]
                for row in daemon.ctl("jobs", "list")
                if row["id"] not in earlier
            ],
            "the second job",
        )
        self.assertEqual(infer.stderr.readline(), "waiting\n")
        infer.send_signal(signal.SIGINT)
        err = infer.communicate(timeout=harness.PATIENCE_S)[1]
        self.assertEqual(infer.returncode, 128 + signal.SIGINT)
        self.assertIn(f"job {waiting} goes on", err)
        self.assertIn(f"jobs cancel {waiting}", err)
        os.kill(child, signal.SIGCONT)
        self.assertEqual(self.job_ended(daemon, waiting)["status"], "done")
        self.assertEqual(self.job_ended(daemon, blocked)["status"], "done")


if __name__ == "__main__":
    unittest.main()
