"""Clocks and stages of training loops of many shapes.

Each loop of loops.py runs under the real agent; what invariants/facts makes of
its records is compared with the table below, and with what the agent itself
counted while it ran.
"""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import clocks_harness  # noqa: E402

LOOPS = pathlib.Path("tests/clocks/loops.py").resolve()


class Expected:
    """What a loop is expected to look like.

    steps: closed at the end. optimizers: for each, the step in which each of
    its own steps fell. stages: one letter a root forward. forwards: training
    root forwards by step. epochs: of each optimizer step.
    """

    def __init__(self, steps, optimizers, stages, epochs=None, forwards=None, **more):
        self.steps, self.optimizers, self.stages = steps, optimizers, stages
        self.epochs, self.forwards = epochs, forwards
        self.skipped = more.get("skipped", [0] * len(optimizers))


ALL = [0, 1, 2]
TABLE = {
    "plain": Expected(6, [[0, 1, 2, 3, 4, 5]], "T" * 6, [0, 0, 0, 1, 1, 1], [1] * 6),
    "without_loader": Expected(3, [ALL], "TTT", [None] * 3, [1] * 3),
    "accumulation": Expected(3, [ALL], "T" * 7, [0] * 3, [3, 3, 1]),
    # Nothing tells before the first step that a second optimizer is to come:
    # from then on a step is one of the generator and one of the critic.
    "gan": Expected(5, [[1, 2, 3, 4], [0, 1, 2, 3]], "T" * 16),
    # After the first round a step begins with the generator's, and the critic's
    # second step closes the one that waits for the generator.
    "wgan": Expected(
        10, [[3, 6, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8]], ("ET" * 3 + "TT") * 3
    ),
    "closure": Expected(3, [ALL], "T" * 9, [0] * 3),
    "scaler_skips": Expected(4, [[0, 2, 3]], "T" * 4, [0] * 3, [1] * 4, skipped=[1]),
    "step_never_reached": Expected(4, [[]], "T" * 4, forwards=[1] * 4),
    # Until the first epoch ends it may be an accumulation.
    "step_and_clear_never_reached": Expected(4, [[]], "T" * 6, forwards=[3, 1, 1, 1]),
    "without_optimizer": Expected(3, [], "T" * 3, forwards=[1] * 3),
    "without_backward": Expected(3, [], "T" * 3, forwards=[1] * 3),
    "evaluation_inside": Expected(4, [[0, 1, 2, 3]], "TTEE" * 2, [0] * 4, [1] * 4),
    "evaluation_with_gradients_at_the_fetch": Expected(
        4, [[0, 1, 2, 3]], "TTEEE" * 2, [0, 0, 1, 1], [1] * 4
    ),
    "evaluation_before": Expected(3, [ALL], "EETTT", [0] * 3, [1] * 3),
    "evaluation_on_the_training_data": Expected(
        6, [[0, 1, 2, 3, 4, 5]], "TTEE" * 3, [0, 0, 1, 1, 2, 2], [1] * 6
    ),
    "evaluation_with_dropout_on": Expected(2, [[0, 1]], "TETE", [0, 0], [1, 1]),
    "checkpointed_reentrant": Expected(3, [ALL], "TR" * 3, forwards=[1] * 3),
    "checkpointed": Expected(3, [ALL], "TR" * 3, [0] * 3, [1] * 3),
    "teacher": Expected(3, [ALL], "TE" * 3, [0] * 3, [1] * 3),
    "frozen_teacher": Expected(3, [ALL], "ET" * 3, [0] * 3, [1] * 3),
    "actor_critic": Expected(3, [ALL], "T" * 12, forwards=[4, 4, 4]),
    "optimizer_per_layer": Expected(3, [ALL] * 3, "T" * 3, [0] * 9, [1] * 3),
    "optimizer_in_backward": Expected(3, [ALL] * 2, "T" * 3, [0] * 6, [1] * 3),
    "hogwild_processes": Expected(0, [[]], ""),
    "hogwild_processes/0": Expected(3, [ALL], "TTT", forwards=[1] * 3),
    "hogwild_processes/1": Expected(3, [ALL], "TTT", forwards=[1] * 3),
    "two_loaders": Expected(
        6, [[0, 1, 2, 3, 4, 5]], "T" * 6, [0, 0, 0, 1, 1, 1], [1] * 6
    ),
    "loader_per_epoch": Expected(
        6, [[0, 1, 2, 3, 4, 5]], "T" * 6, [0, 0, 1, 1, 2, 2], [1] * 6
    ),
    # Both are fetched before either is trained with: the second leads.
    "tasks_in_turn": Expected(
        12, [list(range(12))], "T" * 12, [0] * 6 + [1] * 6, [1] * 12
    ),
    "batch_skipped": Expected(3, [ALL], "TTTTT", [0] * 3),
    # Two steps of the new optimizer show that the old one will not come back.
    "resume": Expected(4, [[0, 1], [2, 3]], "T" * 4),
    "abandoned_epoch": Expected(4, [[0, 1, 2, 3]], "T" * 4, [0, 0, 1, 1], [1] * 4),
    "user_steps": Expected(4, [[0, 1, 2, 3]] * 2, "T" * 16, [0] * 8, [4] * 4),
    "user_stages": Expected(2, [[0, 1]], "TETETE"),
}
LETTERS = {"training": "T", "evaluation": "E", "recomputation": "R", "init": "I"}


class Loops(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        clocks_harness.install(cls.folder)
        done = clocks_harness.run(cls.folder, LOOPS)
        assert done.returncode == 0 and not done.stderr, done.stderr
        cls.pids = dict(line.split() for line in done.stdout.splitlines())

    def facts(self, name):
        facts = clocks_harness.facts(self.folder, self.pids[name])
        self.assertEqual((facts["gaps"], facts["disagreements"]), (0, 0))
        self.assertEqual(facts["closed_by_agent"], facts["steps"])
        return facts

    def test_every_loop_is_in_the_table(self):
        names = set(self.pids)
        self.assertEqual(names - set(TABLE), {"hogwild_threads"})
        self.assertEqual(set(TABLE) - names, set())

    def test_loops(self):
        for name, expected in TABLE.items():
            with self.subTest(name):
                self.compare(self.facts(name), expected)

    def compare(self, facts, expected):
        steps = facts["optimizer_steps"]
        ids = sorted(map(int, facts["optimizers"]))
        self.assertEqual(
            [[s["step"] for s in steps if s["optimizer"] == i] for i in ids],
            expected.optimizers,
        )
        self.assertEqual(facts["steps"], expected.steps)
        optimizers = [facts["optimizers"][str(i)] for i in ids]
        self.assertEqual(
            [(row["steps"], row["skipped"]) for row in optimizers],
            list(zip(map(len, expected.optimizers), expected.skipped)),
        )
        stages = "".join(LETTERS[f["stage"]] for f in facts["forwards"])
        self.assertEqual(stages, expected.stages)
        if expected.epochs is not None:
            self.assertEqual([s["epoch"] for s in steps], expected.epochs)
        if expected.forwards is not None:
            training = [f["step"] for f in facts["forwards"] if f["stage"][0] == "t"]
            counts = [training.count(step) for step in range(expected.steps)]
            self.assertEqual(counts, expected.forwards)

    def test_threads_that_train_have_a_loop_each(self):
        facts = self.facts("hogwild_threads")
        self.assertEqual(facts["steps"], 10)
        counts = [row["steps"] for row in facts["optimizers"].values()]
        self.assertEqual(counts, [5, 5])
        stages = [forward["stage"] for forward in facts["forwards"]]
        self.assertEqual(stages, ["training"] * 10)


if __name__ == "__main__":
    unittest.main()
