"""Trainings that are driven by a framework: as before, with their steps, and with
what the catalogue names of the framework.

They need an environment of their own, next to that of the tests, which
tools/frameworks.sh makes; without it they say that they are skipped.
"""

import sys
import unittest

import harness
from agent_test import AgentCase, marks

PROGRAMS = harness.pathlib.Path("tests/frameworks").resolve()
sys.path.insert(0, str(PROGRAMS))

import on_frameworks  # noqa: E402

WITHOUT = "no frameworks are installed: tools/frameworks.sh"


class Frameworks(AgentCase):
    def setUp(self):
        super().setUp()
        self.python = on_frameworks.python()
        if self.python is None:
            self.skipTest(WITHOUT)

    def trains(self, script, steps, functions):
        command = [harness.SCRIPTS / script, self.folder / "out"]
        offline = {"HF_HUB_OFFLINE": "1"}
        plain = self.run_plain(*command, **offline)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        watched = self.run_watched(*command, TRAINCHECK_COLLECT="full", **offline)
        self.assertNotIn("not active", watched.stderr)
        losses = [_loss(run.stdout) for run in (plain, watched)]
        self.assertEqual(losses[0], losses[1])

        (rank,) = self.ranks(1)
        closed = [mark["value"] for mark in marks(rank, "step_closed")]
        self.assertEqual(closed, list(range(steps)))
        recorded = {f["name"] for f in rank.defined("function")}
        self.assertLessEqual(functions, recorded)

    def test_transformers(self):
        trainer = "transformers.trainer.Trainer."
        self.trains("transformers_trainer.py", 10, {trainer + "train"})

    def test_accelerate(self):
        accelerator = "accelerate.accelerator.Accelerator."
        self.trains(
            "accelerate_loop.py",
            8,
            {accelerator + n for n in ("prepare", "backward", "clip_grad_norm_")},
        )

    def test_lightning(self):
        trainer = "lightning.pytorch.trainer.trainer.Trainer."
        self.trains("lightning_fit.py", 16, {trainer + "fit"})


class BuiltInRules(harness.SharedDaemonCase):
    """Of the programs that tests/evaluate.sh measures, some of each framework."""

    def test_healthy_programs_are_quiet(self):
        self.python = on_frameworks.python()
        if self.python is None:
            self.skipTest(WITHOUT)
        for name in ("distilbert_ticket_triage", "lightning_ddp_birdsong"):
            with self.subTest(name):
                done = self.monitored(
                    PROGRAMS / "healthy" / f"{name}.py",
                    options=("--run", name),
                    HF_HUB_OFFLINE="1",
                    OMP_NUM_THREADS="1",
                    TRAINCHECK_BUDGET="off",
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                shown = self.daemon.run_ended(name)
                self.assertGreater(shown["check"]["decided"], 25, shown["check"])
                found = self.daemon.ctl("violations", "list", "--run", name)
                self.assertEqual(found, [])


class Pictures(harness.SharedDaemonCase):
    """Data that PIL prepares."""

    INTERPOLATED = "88f4a2f1883ae682"  # maps of classes in its samples

    def test_maps_of_classes_that_pil_resizes(self):
        self.python = on_frameworks.python()
        if self.python is None:
            self.skipTest(WITHOUT)
        for options, told in (((), {self.INTERPOLATED}), (("--right",), set())):
            name = "-".join(("pil", *options))
            done = self.monitored(
                harness.SCRIPTS / "pil_masks.py",
                *options,
                options=("--run", name),
                TRAINCHECK_BUDGET="off",
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.daemon.run_ended(name)
            found = self.daemon.ctl("violations", "list", "--run", name)
            self.assertEqual({one["invariant_id"] for one in found}, told)


def _loss(stdout):
    (line,) = [line for line in stdout.splitlines() if line.startswith("loss ")]
    return line


if __name__ == "__main__":
    unittest.main()
