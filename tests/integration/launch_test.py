"""Every usual way to start a training is seen: ranks, workers, threads."""

import pathlib
import subprocess
import sys
import unittest

import harness


class Launch(harness.TrainingCase):
    def record(self, run, command, **extra):
        """Runs a command under traincheckctl and returns the run as shown."""
        done = subprocess.run(
            [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            + ["run", "--run", run, "--collect", "--", *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=5 * harness.PATIENCE_S,
            env=self.environment(**extra),
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        shown = self.daemon.run_ended(run)
        self.assertEqual((shown["dropped"], shown["lost"]), (0, 0))
        return shown

    def ranks(self, shown):
        return sorted(p["rank"] for p in shown["processes"] if p["rank"] is not None)

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_torchrun(self):
        shown = self.record(
            "t",
            [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            + ["--nproc-per-node", "2", harness.PIPELINES / "mlp_ddp.py"]
            + ["--steps", "6"],
        )
        self.assertEqual(self.ranks(shown), [0, 1])
        self.assertEqual(shown["world"], 2)
        self.assertEqual(shown["last_step"], 5)
        # The launcher imports torch and trains nothing: it is no rank.
        self.assertEqual(len(shown["processes"]), 2, shown["processes"])
        self.assertEqual(shown["experiment"], "mlp_ddp")

    def test_spawned_ranks_with_forked_workers(self):
        shown = self.record(
            "s",
            [sys.executable, harness.PIPELINES / "cnn_ddp.py"]
            + ["--steps", "6", "--steps-per-epoch", "3"],
        )
        self.assertEqual(self.ranks(shown), [0, 1])
        workers = [p for p in shown["processes"] if p["kind"] == "worker"]
        self.assertGreaterEqual(len(workers), 4)
        self.assertEqual({p["worker_id"] for p in workers}, {0, 1})
        self.assertEqual(shown["experiment"], "cnn_ddp")

    def test_spawned_workers(self):
        shown = self.record(
            "w",
            [sys.executable, harness.SCRIPTS / "single.py", "--steps", "4"]
            + ["--workers", "2", "--start-method", "spawn"],
        )
        self.assertEqual(self.ranks(shown), [0])
        workers = [p for p in shown["processes"] if p["kind"] == "worker"]
        self.assertEqual({p["worker_id"] for p in workers}, {0, 1})

    def test_module_after_m(self):
        (self.folder / "my_training.py").write_text(
            pathlib.Path(harness.SCRIPTS / "single.py").read_text()
        )
        shown = self.record(
            "m",
            [sys.executable, "-m", "my_training", "--steps", "4"],
            PYTHONPATH=str(self.folder),
        )
        self.assertEqual(shown["experiment"], "my_training")
        self.assertEqual(shown["last_step"], 3)

    def test_isolated_interpreter(self):
        shown = self.record(
            "i", [sys.executable, "-I", harness.SCRIPTS / "single.py", "--steps", "4"]
        )
        self.assertEqual(shown["last_step"], 3)

    def test_threads_have_rings_of_their_own(self):
        shown = self.record(
            "h",
            [sys.executable, harness.SCRIPTS / "single.py", "--steps", "4"]
            + ["--threads", "3"],
        )
        (process,) = shown["processes"]
        # Definitions, the main thread and two more.
        self.assertGreaterEqual(len(process["rings"]), 4)

    def test_forked_child_is_a_process_of_its_own(self):
        shown = self.record(
            "f",
            [sys.executable, harness.SCRIPTS / "single.py", "--steps", "4"]
            + ["--fork-child"],
        )
        self.assertEqual(len(shown["processes"]), 2)
        self.assertEqual(len({p["pid"] for p in shown["processes"]}), 2)

    def test_environment_lines_of_env_do_the_same(self):
        lines = subprocess.run(
            [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            + ["env", "--run", "e", "--experiment", "by-hand", "--collect"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=self.environment(),
        ).stdout
        script = harness.SCRIPTS / "single.py"
        done = subprocess.run(
            ["bash", "-c", f"{lines}\nexec {sys.executable} {script} --steps 4"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.daemon.run_ended("e")
        self.assertEqual(shown["experiment"], "by-hand")
        self.assertEqual(shown["role"], "reference")
        self.assertEqual(shown["last_step"], 3)


if __name__ == "__main__":
    unittest.main()
