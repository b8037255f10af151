"""What deploy/kubernetes does in a training's pod, with the processes of this host:
the relay dies with the container, and the sidecar delivers what it has left.
"""

import pathlib
import signal
import stat
import subprocess
import sys
import unittest

import harness

SIDECAR = pathlib.Path("deploy/container/deliver_spool.sh").resolve()


class Pod(harness.TrainingCase):
    def train(self, address: str) -> None:
        """As the container `train` of job.yaml."""
        environment = self.environment(
            TRAINCHECK_SERVER=address,
            TRAINCHECK_CHECK="builtin",
            TRAINCHECK_GRACE="0",
            LD_PRELOAD=str(harness.DIST / "libtraincheck_agent.so"),
            KUBERNETES_SERVICE_HOST="192.0.2.1",
            JOB_NAME="train",
            JOB_UID="d0f1",
        )
        command = [sys.executable, harness.SCRIPTS / "built_in.py"]
        done = harness.run_captured([*command, "left_in_evaluation"], environment)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_sidecar_delivers_what_the_relay_has_left(self):
        daemon = harness.Daemon(self.folder)
        spool = self.folder / "spool"
        spool.mkdir()
        environment = self.environment(TRAINCHECK_SERVER=daemon.address)
        environment["PATH"] = f"{harness.DIST}:/usr/bin:/bin"
        sidecar = subprocess.Popen(
            [str(SIDECAR), str(spool)], stdout=subprocess.PIPE, env=environment
        )
        self.addCleanup(sidecar.kill)
        self.train(daemon.address)  # nobody answers
        self.assertTrue([*spool.iterdir()])
        daemon.start()
        self.addCleanup(daemon.end)
        sidecar.send_signal(signal.SIGTERM)
        said, _ = sidecar.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(sidecar.returncode, 0, said)
        shown = daemon.run_ended("train-d0f1")
        self.assertEqual((shown["dropped"], shown["lost"]), (0, 0))
        self.assertTrue(daemon.ctl("violations", "list", "--run", "train-d0f1"))

    def test_sidecar_copies_a_new_token(self):
        secret, copies, spool = (self.folder / n for n in ("secret", "client", "spool"))
        for folder in (secret, copies, spool):
            folder.mkdir()
        (secret / "token").write_text("old")
        command = [SIDECAR, spool, secret, copies, "1"]
        environment = self.environment(PATH=f"{harness.DIST}:/usr/bin:/bin")
        sidecar = subprocess.Popen([*map(str, command)], env=environment)
        self.addCleanup(sidecar.kill)
        copy = copies / "token"
        for text in ("old", "new"):
            (secret / "next").write_text(text)
            (secret / "next").rename(secret / "token")
            harness.wait_until(
                lambda: copy.exists() and copy.read_text() == text, f"the {text} token"
            )
            self.assertEqual(stat.S_IMODE(copy.stat().st_mode), 0o400)
        sidecar.send_signal(signal.SIGTERM)
        self.assertEqual(sidecar.wait(harness.PATIENCE_S), 0)


if __name__ == "__main__":
    unittest.main()
