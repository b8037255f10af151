"""Inference jobs on real recordings: the same sets, in processes of their own."""

import os
import signal
import subprocess
import unittest

import harness


def children(pid: int) -> list[int]:
    """Live child processes of pid."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == pid and state != "Z":
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

    def stop_child(self, daemon) -> int:
        """Stops the process of the job that runs, or of the next one."""
        (child,) = harness.wait_until(lambda: children(daemon.pid), "a job's process")
        os.kill(child, signal.SIGSTOP)
        return child

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
        # The first process is met while it starts; it ends when it is killed.
        job = daemon.ctl("infer", "--from", "a", "--set", "rules", "--detach")["job"]
        child = self.stop_child(daemon)
        queued = daemon.ctl("infer", "--from", "a", "--set", "next", "--detach")["job"]
        os.kill(child, signal.SIGKILL)
        killed = self.job_ended(daemon, job)
        self.assertEqual(killed["status"], "failed")
        self.assertIn("killed by signal 9", killed["reason"])
        self.assertIn("memory limit", killed["reason"])
        self.assertIsNone(killed["invariants"])
        self.assertEqual(self.job_ended(daemon, queued)["status"], "done")
        self.assertEqual([row["name"] for row in daemon.ctl("sets", "list")], ["next"])

    def test_an_interrupted_infer_leaves_its_job_to_the_daemon(self):
        daemon = self.start_daemon()
        self.record(daemon, "a")
        command = [str(harness.DIST / "traincheckctl"), "--server", daemon.address]
        command += ["infer", "--from", "a", "--set", "rules"]
        blocked = daemon.ctl("infer", "--from", "a", "--set", "x", "--detach")["job"]
        child = self.stop_child(daemon)
        infer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        (waiting,) = harness.wait_until(
            lambda: [
                row["id"] for row in daemon.ctl("jobs", "list") if row["id"] != blocked
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
