"""torch.compile under the agent: the same numbers, the same graphs."""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import clocks_harness  # noqa: E402

COMPILED = pathlib.Path("tests/clocks/compiled.py").resolve()
# Those whose optimizer steps once in each of four steps, outside of graphs.
BOUNDARIES = {
    "model_eager",
    "model_full",
    "model_aot",
    "checkpointed",
    "module_in_place",
    "step_sgd",
    "step_adam",
}
OTHERS = (
    "checkpointed_reentrant",
    "step_full",
    "step_in_a_function",
    "whole_step",
    "compiled_autograd",
    "evaluation",
)


class Compiled(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)
        clocks_harness.install(self.folder)

    def same(self, *names):
        plain = clocks_harness.run(None, COMPILED, *names)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        watched = clocks_harness.run(self.folder, COMPILED, *names)
        self.assertEqual(watched.returncode, 0, watched.stderr)
        self.assertEqual(watched.stdout, plain.stdout)
        return plain.stdout

    def facts(self):
        """Of the one process."""
        (path,) = (self.folder / "out").glob("*.0.json")
        return clocks_harness.facts(self.folder, path.name.split(".")[0])

    def test_numbers_and_graphs_are_the_same(self):
        said = self.same(*sorted(BOUNDARIES), *OTHERS)
        self.assertIn("model_full graphs 1", said)

    def test_inductor(self):
        said = self.same("model_inductor")
        self.assertIn("model_inductor graphs 1", said)

    def test_boundaries_are_seen(self):
        names = sorted(BOUNDARIES)
        done = clocks_harness.run(self.folder, COMPILED, *names)
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = self.facts()
        self.assertEqual((facts["gaps"], facts["disagreements"]), (0, 0))
        self.assertEqual(facts["steps"], facts["closed_by_agent"])
        counts = [row["steps"] for row in facts["optimizers"].values()]
        self.assertEqual(counts, [4] * len(names))
        # One root forward a step; what is inside a graph is not seen.
        self.assertEqual(len(facts["forwards"]), 4 * len(names))
        stages = {forward["stage"] for forward in facts["forwards"]}
        self.assertEqual(stages, {"training"})


if __name__ == "__main__":
    unittest.main()
