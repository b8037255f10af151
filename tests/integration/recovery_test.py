"""A check survives its daemon: killed in the middle, it goes on where it was."""

import re
import shutil
import unittest

import harness

KILLS = 4
STEPS = 160
FAULT_STEP = 30
# As in violations list -o json, without the time of first sight.
TIMED = ("first_seen", "first_seen_unix_ns")


class Recovery(harness.TrainingCase):
    daemon_options = ("--snapshot-every", "0.1", "--lost-after", "20")

    def setUp(self):
        super().setUp()
        self.start_daemon()
        done = self.monitored(
            harness.PIPELINES / "mlp_ddp.py",
            *("--steps", "20"),
            options=("--run", "ref", "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended("ref")
        self.daemon.ctl(
            "infer", *harness.ONE_PROGRAM, "--from", "ref", "--set", "rules"
        )

    def start_copy(self) -> harness.Daemon:
        """A second daemon with the same sets, so that a run of the same name has
        violations of the same ids."""
        self.assertEqual(self.daemon.stop(), 0)
        folder = self.folder / "copy"
        folder.mkdir()
        shutil.copytree(self.daemon.data_dir, folder / "data")
        self.daemon.start()
        copy = harness.Daemon(folder, *self.daemon_options).start()
        self.addCleanup(self._end_daemon, copy)
        return copy

    def train(self, daemon: harness.Daemon):
        self.daemon = daemon
        return self.monitored_start(
            harness.SCRIPTS / "drift_ddp.py",
            f"--steps={STEPS}",
            f"--fault-step={FAULT_STEP}",
            "--sleep=0.05",
            options=("--run", "drift", "--check", "rules"),
        )

    @staticmethod
    def found(daemon: harness.Daemon) -> tuple:
        check = daemon.run_ended("drift")["check"]
        violations = daemon.ctl("violations", "list", "--run", "drift")
        shown = [daemon.ctl("violations", "show", v["id"]) for v in violations]
        for violation in shown:
            for others in ("follows", "beside"):
                violation[others].sort(key=lambda v: v["id"])
            for row in [violation, *violation["follows"], *violation["beside"]]:
                for key in TIMED:
                    row.pop(key, None)
        return sorted(shown, key=lambda v: v["id"]), check

    def test_a_daemon_that_is_killed_often_finds_the_same(self):
        calm = self.start_copy()
        shaken = self.daemon
        done = self.train(calm)
        self.assertEqual(done.wait(harness.PATIENCE_S), 0)
        expected, expected_check = self.found(calm)
        self.assertTrue(expected)
        self.assertEqual(min(v["first_step"] for v in expected), FAULT_STEP)
        # Each of two ranks calls past its wrapper in each step.
        self.assertEqual(max(v["count"] for v in expected), 2 * (STEPS - FAULT_STEP))

        training = self.train(shaken)
        last_step = lambda: next(
            (
                run["last_step"] or 0
                for run in shaken.ctl("runs", "list")
                if run["id"] == "drift"
            ),
            0,
        )
        for kill in range(1, KILLS + 1):
            # Before the first violation, then while they count.
            wanted = kill * STEPS // (KILLS + 2)
            harness.wait_until(lambda: last_step() >= wanted, f"step {wanted}")
            shaken.kill()
            shaken.start()
        self.assertEqual(training.wait(harness.PATIENCE_S), 0)
        found, check = self.found(shaken)
        self.assertEqual(found, expected)
        self.assertEqual(check, expected_check)

        log = shaken.log.read_text()
        resumed = re.findall(
            r"check resumes run=drift batches_read=(\d+) of=(\d+)", log
        )
        self.assertEqual(len(resumed), KILLS, log)
        for read, of in resumed:
            self.assertGreater(int(read), 0)
            self.assertLessEqual(int(read), int(of))
        self.assertNotIn("check begins anew", log)
        self.assertNotIn("left aside", log)

        # Nothing is left of it that would be resumed once more.
        self.assertEqual(shaken.stop(), 0)
        shaken.start()
        self.assertEqual(self.found(shaken), (found, check))
        again = shaken.log.read_text()
        self.assertEqual(again.count("check resumes run=drift"), KILLS)


if __name__ == "__main__":
    unittest.main()
