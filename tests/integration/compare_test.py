"""Two runs of one script and seed do not differ; one with a fault differs in the
step and the thing that the fault is."""

import json
import subprocess
import unittest

import harness

SCRIPT = "tests/integration/scripts/compared.py"
FAULT_STEP = 5


class Compare(harness.SharedDaemonCase):
    def prepare(self):
        self.train("good")
        self.train("good-ddp", "--ranks", "2")

    def train(self, run, *arguments, options=(), code=0):
        done = self.monitored(
            SCRIPT, *arguments, options=("--run", run, *options), PYTHONHASHSEED="0"
        )
        self.assertEqual(done.returncode, code, done.stderr)
        self.daemon.run_ended(run)

    def ctl(self, *arguments):
        return subprocess.run(
            [str(harness.DIST / "traincheckctl"), "--server", self.daemon.address]
            + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def compare(self, a, b, code):
        done = self.ctl("-o", "json", "compare", a, b)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def differ(self, name, *arguments, good="good"):
        """What `compare` names first of a training with these arguments."""
        self.train(name, *arguments, code=1 if "raise" in arguments else 0)
        result = self.compare(good, name, 1)
        self.assertEqual(result["before"], [])
        return result["first"], result

    def test_the_same_script_and_seed_do_not_differ(self):
        self.train("again")
        result = self.compare("good", "again", 0)
        self.assertEqual(result["ranks"][0]["steps_a"], 16)
        counts = result["compared_counts"]
        self.assertEqual(counts["whole_steps"], 16)
        for what in ("calls", "weights", "gradients"):
            self.assertGreater(counts[what], 16, what)
        for what in ("generators", "batches"):
            self.assertGreater(counts[what], 0, what)
        shown = self.ctl("compare", "good", "again").stdout
        self.assertIn("no difference in what was compared", shown)

    def test_with_everything_recorded(self):
        plan = self.folder / "full.json"
        plan.write_text('{"format": 1, "mode": "full"}')
        for run in ("full-1", "full-2"):
            self.train(run, options=("--plan", str(plan)))
        result = self.compare("full-1", "full-2", 0)
        counts = result["compared_counts"]
        self.assertGreater(counts["arguments"], 200)
        self.assertGreater(counts["optimizer_states"], 16)
        # What the other run has no records of is unknown.
        result = self.compare("full-1", "good", 0)
        missed = {(one["what"], one["why"]) for one in result["not_compared"]}
        self.assertIn(("states of optimizers", "recorded in run A only"), missed)
        self.assertIn(("calls of functions", "recorded in run B only"), missed)

    def test_another_learning_rate(self):
        first, result = self.differ("rate", "--fault", "rate")
        self.assertEqual((first["step"], first["rung"]), (FAULT_STEP, "setup"))
        self.assertEqual(first["what"], "lr of SGD, parameter group 0")
        self.assertEqual((first["a"], first["b"]), ("0.1", "0.05"))
        self.assertEqual(result["variables_first"]["step"], FAULT_STEP)
        self.assertGreater(result["variables_first"]["different"], 0)
        self.assertEqual(result["steps_behind_different"], 10)

    def test_a_loader_that_does_not_shuffle(self):
        first, _ = self.differ("shuffle", "--fault", "shuffle")
        self.assertEqual((first["step"], first["rung"]), (0, "data"))
        self.assertEqual(first["what"], "shuffles of DataLoader")

    def test_one_bit_of_a_weight(self):
        first, _ = self.differ("flip", "--fault", "flip")
        self.assertEqual((first["step"], first["rung"]), (FAULT_STEP, "weights"))
        self.assertIn("Net.last.weight", first["what"])

    def test_evaluation_mode_left_on(self):
        first, _ = self.differ("eval", "--fault", "eval")
        self.assertEqual((first["step"], first["rung"]), (FAULT_STEP, "mode"))

    def test_gradients_that_are_not_cleared(self):
        first, _ = self.differ("no-clear", "--fault", "no_clear")
        self.assertEqual((first["step"], first["rung"]), (FAULT_STEP, "call"))
        self.assertIn("zero_grad", first["what"])
        self.assertEqual(first["b"], "not called")
        self.assertIn("compared.py:", first["site_a"])

    def test_gradients_that_are_cleared_too_late(self):
        first, _ = self.differ("order", "--fault", "order")
        self.assertEqual((first["step"], first["rung"]), (FAULT_STEP, "call"))
        self.assertEqual(first["what"], "the order of calls")
        self.assertIn("zero_grad", first["a"])

    def test_a_run_that_ends_by_an_exception(self):
        first, _ = self.differ("raise", "--fault", "raise")
        self.assertEqual((first["step"], first["rung"]), (FAULT_STEP, "totals"))
        self.assertIn("exception", first["b"])

    def test_a_shorter_run(self):
        # The longer one fetches a batch before its step 8 is over.
        first, result = self.differ("short", "--steps", "9")
        self.assertEqual((first["step"], first["rung"]), (8, "data"))
        self.assertIn("__next__", first["what"])
        rank = result["ranks"][0]
        self.assertEqual((rank["steps_a"], rank["steps_b"]), (16, 9))

    def test_two_ranks(self):
        self.train("again-ddp", "--ranks", "2")
        result = self.compare("good-ddp", "again-ddp", 0)
        self.assertEqual([rank["rank"] for rank in result["ranks"]], [0, 1])
        first, _ = self.differ(
            "flip-ddp", "--fault", "flip", "--ranks", "2", good="good-ddp"
        )
        self.assertEqual((first["step"], first["rung"]), (FAULT_STEP, "weights"))
        self.assertEqual(first["ranks"], [1])
        # Another number of ranks is said before anything else.
        result = self.compare("good", "good-ddp", 1)
        self.assertEqual(result["before"][0]["what"], "the number of ranks")

    def test_what_is_not_there_is_named(self):
        done = self.ctl("compare", "good", "nowhere")
        self.assertEqual(done.returncode, 3)
        self.assertIn("nowhere", done.stderr)
        # The first letters of an id do, where they name one run.
        done = self.ctl("compare", "good-d", "good-d")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
