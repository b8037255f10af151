"""Two versions beside each other, as in an upgrade: agents of one with a daemon of the
other, and a daemon that is replaced under a job.

    tests/upgrade/run.sh [COMMIT]

TRAINCHECK_DIST has this version, TRAINCHECK_OLD_DIST the one before.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import harness

OLD = pathlib.Path(os.environ["TRAINCHECK_OLD_DIST"]).resolve()
NEW = harness.DIST
FAULT_STEP = 20


class Upgrade(harness.TrainingCase):
    def start_daemon_of(self, dist: pathlib.Path) -> None:
        self.daemon = harness.Daemon(self.folder)
        self.daemon.dist = dist
        self.daemon.start()
        self.addCleanup(self._end_daemon, self.daemon)

    def start_job(self, dist: pathlib.Path, steps=FAULT_STEP + 10):
        process = subprocess.Popen(
            [
                *(sys.executable, harness.SCRIPTS / "drift_ddp.py"),
                *("--steps", str(steps), "--fault-step", str(FAULT_STEP)),
                *("--sleep", "0.1"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(
                LD_PRELOAD=str(dist / "libtraincheck_agent.so"),
                TRAINCHECK_SERVER=self.daemon.address,
                TRAINCHECK_RUN="job",
                TRAINCHECK_CHECK="builtin",
                TRAINCHECK_BUDGET="off",
            ),
            start_new_session=True,
        )
        self.addCleanup(self._end_group, process)
        return process

    def replace_daemon(self, dist: pathlib.Path) -> None:
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.dist = dist
        self.daemon.start()

    def check(self, process) -> None:
        """The job is as without us, nothing is lost, and the error is named once."""
        out, err = process.communicate(timeout=2 * harness.PATIENCE_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(f"step {FAULT_STEP + 9} loss", out)
        run = self.daemon.run_ended("job")
        self.assertEqual((run["lost"], run["dropped"]), (0, 0))
        self.assertEqual(run["last_step"], FAULT_STEP + 9)
        alerts = [
            (violation["invariant_id"], violation["first_step"])
            for violation in self.daemon.ctl("violations", "list", "--run", "job")
            if violation["grade"] == "alert"
        ]
        self.assertTrue(alerts)
        self.assertEqual(len(alerts), len({rule for rule, _ in alerts}))
        self.assertEqual({step for _, step in alerts}, {FAULT_STEP})

    def await_step(self, step: int) -> None:
        def reached():
            runs = {run["id"]: run for run in self.daemon.ctl("runs", "list")}
            last = runs.get("job", {}).get("last_step")
            return last is not None and last >= step

        harness.wait_until(reached, f"step {step}")

    def test_agents_of_the_version_before(self):
        self.start_daemon_of(NEW)
        self.check(self.start_job(OLD))

    def test_a_daemon_of_the_version_before(self):
        self.start_daemon_of(OLD)
        self.check(self.start_job(NEW))

    def test_a_daemon_that_is_replaced_under_a_job(self):
        for number, dist in enumerate((OLD, NEW)):
            with self.subTest(agents=dist):
                self.folder /= str(number)
                self.folder.mkdir()
                self.start_daemon_of(OLD)
                job = self.start_job(dist)
                self.await_step(FAULT_STEP // 2)
                self.replace_daemon(NEW)
                self.check(job)

    def test_spool_files_of_the_version_before(self):
        self.start_daemon_of(OLD)
        self.daemon.kill()
        job = self.start_job(OLD)
        job.communicate(timeout=2 * harness.PATIENCE_S)
        self.daemon.dist = NEW
        self.daemon.start()

        def sent():
            done = harness.run_captured(
                [
                    *(NEW / "traincheckctl", "--server", self.daemon.address),
                    *("spool", "send", self.folder / "spool"),
                ],
                self.environment(),
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            return not list(self.folder.glob("spool/*.spool"))

        harness.wait_until(sent, "the delivery")
        run = self.daemon.run_ended("job")
        self.assertEqual((run["lost"], run["dropped"]), (0, 0))

    def test_a_daemon_is_put_back(self):
        """The one before opens the store, or says that it is newer and leaves it as it
        is."""
        self.start_daemon_of(NEW)
        self.check(self.start_job(NEW))
        self.assertEqual(self.daemon.stop(), 0)
        kept = self.folder / "kept"
        shutil.copytree(self.daemon.data_dir, kept)
        done = subprocess.Popen(
            [
                *(OLD / "traincheckd", "--data-dir", self.daemon.data_dir),
                *("--listen", self.daemon.address),
                *("--port-file", self.folder / "put-back"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(done.communicate)
        self.addCleanup(done.kill)
        opened = self.folder / "put-back"
        harness.wait_until(
            lambda: opened.exists() or done.poll() is not None, "its answer"
        )
        if opened.exists():
            self.daemon.dist = OLD
            self.assertEqual(self.daemon.run_ended("job")["lost"], 0)
            print("the version before opens the store")
        else:
            self.assertIn("format", done.stderr.read())
            print("the version before says that the format is newer")
            for file in kept.rglob("*"):
                if file.is_file() and not file.name.startswith(("LOG", "LOCK")):
                    there = self.daemon.data_dir / file.relative_to(kept)
                    self.assertEqual(there.read_bytes(), file.read_bytes(), file)


if __name__ == "__main__":
    unittest.main(verbosity=2)
