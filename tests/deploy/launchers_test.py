"""The lines of docs/deploy.md: one training under each launcher. Part of the long
tier: tools/long_tests.sh run launchers.
"""

import pathlib
import sys
import unittest

import harness

SCRIPT = pathlib.Path("tests/deploy/launched.py").resolve()
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
LAUNCHERS = {
    "torchrun": [*TORCHRUN, "--nproc-per-node", "2", SCRIPT],
    "spawn": [sys.executable, SCRIPT, "--spawn", "2"],
    "mpi": ["mpirun", "--oversubscribe", "-n", "2", sys.executable, SCRIPT],
}


class Launchers(harness.TrainingCase):
    def test_each_is_one_run_of_two_ranks(self):
        daemon = self.start_daemon()
        environment = self.environment(
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"
        )
        for name, launcher in LAUNCHERS.items():
            with self.subTest(name):
                command = [harness.DIST / "traincheckctl", "--server", daemon.address]
                command += ["run", "--run", name, "--", *launcher]
                done = harness.run_captured(command, environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("gradients are not averaged", done.stderr)
                shown = daemon.run_ended(name)
                processes = shown["processes"]
                ranks = [p["rank"] for p in processes if p["rank"] is not None]
                self.assertEqual(sorted(ranks), [0, 1], shown)
                self.assertEqual(shown["world"], 2)


if __name__ == "__main__":
    unittest.main()
