"""Inference jobs on real recordings: the same sets, in processes of their own."""

import os
import signal
import subprocess
import unittest

import harness


def state_of(pid) -> tuple[str, int]:
    """(state, parent); ("Z", 0): there is no such process any more."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
    except (OSError, ValueError):
        return "Z", 0
    return state, int(parent)


def children(pid: int) -> list[int]:
    """Live child processes of pid."""
    found = []
    for entry in os.listdir("/proc"):
        state, parent = state_of(entry)
        if parent == pid and state != "Z":
            found.append(int(entry))
    return found


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
            job = daemon.ctl("infer", "--from", "a", "--set", name, "--detach")["job"]
            child = self.stop_child(daemon, job)
            if child is not None:
                return job, child, learned
            self.assertEqual(self.job_ended(daemon, job)["status"], "done")
            learned.append(name)
        self.fail("50 jobs ended before they could be stopped")

    def stop_child(self, daemon, job: str):
        """Stops the process of a job; None: it ended before."""

        def found():
            shown = daemon.ctl("jobs", "show", job)
            return children(daemon.pid) or shown["status"] not in ("queued", "running")

        child = harness.wait_until(found, "a job's process")
        if child is True:
            return None
        try:
            os.kill(child[0], signal.SIGSTOP)
        except ProcessLookupError:
            return None
        state = harness.wait_until(
            lambda: {"T": "stopped", "Z": "gone"}.get(state_of(child[0])[0]),
            "the process to stop",
        )
        return child[0] if state == "stopped" else None

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
        self.assertEqual(sets, {"next", *learned})

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
