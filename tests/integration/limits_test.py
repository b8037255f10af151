"""Who is slow or stopped stops nobody else."""

import signal
import subprocess
import time
import unittest

import harness

STOPPED_S = 20


class Limits(harness.TrainingCase):
    def books(self, shown: dict) -> tuple:
        """Stored, committed and dropped records over all rings."""
        rings = [ring for process in shown["processes"] for ring in process["rings"]]
        keys = ("stored", "committed", "dropped")
        return tuple(sum(ring[key] for ring in rings) for key in keys)

    def assert_stored_once(self, shown: dict) -> None:
        stored, committed, dropped = self.books(shown)
        self.assertGreater(stored, 0)
        self.assertEqual((committed, dropped), (stored, 0))
        self.assertEqual(shown["records"], stored)
        self.assertEqual((shown["dropped"], shown["lost"]), (0, 0))

    def start_ranks(self, daemon, arguments):
        """Two ranks that have begun to send."""
        training = self.monitored_start(
            harness.SCRIPTS / "drift_ddp.py",
            *arguments,
            options=("--run", "r", "--collect"),
        )

        def records() -> int:
            return sum(row["records"] for row in daemon.ctl("runs", "list", "--all"))

        harness.wait_until(lambda: records() > 300, "records of the run")
        return training

    def finish(self, daemon, training, seen: str, plain: str) -> None:
        out, err = training.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(training.returncode, 0, err)
        self.assertEqual(seen + out, plain)
        self.assert_stored_once(daemon.run_ended("r"))

    def test_a_stopped_daemon_stops_no_rank(self):
        steps = 200
        arguments = (f"--steps={steps}", "--healthy", "--sleep=0.03")
        plain = self.plain(harness.SCRIPTS / "drift_ddp.py", *arguments)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        daemon = self.start_daemon()
        training = self.start_ranks(daemon, arguments)
        daemon.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        seen = ""
        # It reads to the last step while nobody answers the relays.
        while f"step {steps - 1} " not in seen:
            line = training.stdout.readline()
            self.assertNotEqual(line, "", "the training ended early")
            seen += line
        time.sleep(max(0, stopped + STOPPED_S - time.monotonic()))
        daemon.signal(signal.SIGCONT)
        self.finish(daemon, training, seen, plain.stdout)

    def test_a_daemon_that_stops_again_and_again_slows_no_rank(self):
        arguments = ("--steps=100", "--healthy", "--sleep=0.05")
        plain = self.plain(harness.SCRIPTS / "drift_ddp.py", *arguments)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        daemon = self.start_daemon()
        training = self.start_ranks(daemon, arguments)
        while training.poll() is None:
            daemon.signal(signal.SIGSTOP)
            time.sleep(0.9)
            daemon.signal(signal.SIGCONT)
            time.sleep(0.1)
        self.finish(daemon, training, "", plain.stdout)

    def test_a_watcher_that_does_not_read_stops_no_checker(self):
        daemon = self.start_daemon()
        # They watch long before the reference run has ended: who is stopped in a call
        # has no answer in time.
        command = [str(harness.DIST / "traincheckctl"), "--server", daemon.address]
        command += ["-o", "json", "violations", "watch", "--all"]
        watchers = []
        for name in ("stopped", "quick"):
            with open(self.folder / name, "wb") as file:
                watchers.append(subprocess.Popen(command, stdout=file))
        for watcher in watchers:
            self.addCleanup(watcher.wait)
            self.addCleanup(watcher.kill)
        done = self.monitored(
            harness.PIPELINES / "mlp_ddp.py",
            *("--steps", "20"),
            options=("--run", "ref", "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        daemon.run_ended("ref")
        daemon.ctl("infer", *harness.ONE_PROGRAM, "--from", "ref", "--set", "rules")
        watchers[0].send_signal(signal.SIGSTOP)

        checked = self.monitored(
            harness.SCRIPTS / "drift_ddp.py",
            *("--steps=60", "--fault-step=20"),
            options=("--run", "r", "--check", "rules"),
        )
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertTrue(daemon.run_ended("r")["check"]["finished"])
        found = {row["id"] for row in daemon.ctl("violations", "list", "--run", "r")}
        self.assertGreater(len(found), 2)

        def seen_all(name: str) -> bool:
            text = (self.folder / name).read_text()
            return all(violation in text for violation in found)

        harness.wait_until(lambda: seen_all("quick"), "the quick watcher's lines")
        self.assertFalse(seen_all("stopped"))
        watchers[0].send_signal(signal.SIGCONT)
        harness.wait_until(lambda: seen_all("stopped"), "the stopped watcher's lines")


if __name__ == "__main__":
    unittest.main()
