"""The first steps of a training, looked at without a daemon: what is found, what the
exit code says, and that nothing is left behind."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree

import harness

BUILT_IN = harness.SCRIPTS / "built_in.py"
SINGLE = harness.SCRIPTS / "single.py"


class Preflight(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.addCleanup(self.nothing_is_left)

    def nothing_is_left(self):
        self.assertEqual(list(self.temporary.glob("traincheck-*")), [])
        for line in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = line.read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has ended meanwhile
            self.assertNotIn(str(self.temporary), words)

    def command(self, options, training):
        ctl = str(harness.DIST / "traincheckctl")
        return [ctl, "preflight", *options, "--", *map(str, training)]

    def environment(self, **extra):
        return super().environment(TMPDIR=str(self.temporary), **extra)

    def preflight(self, *training, options=(), code=0):
        done = harness.run_captured(
            self.command(options, [sys.executable, *training]), self.environment()
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_hand_made_backwards(self):
        script = harness.SCRIPTS / "own_functions.py"
        probed = ("--probe", "--format", "json")
        done = self.preflight(script, options=probed, code=10)
        report = json.loads(done.stdout)
        self.assertEqual(report["findings"], [])
        outcomes = {row["function"]: row for row in report["probed"]}
        self.assertEqual(outcomes["__main__.Step"]["outcome"], "on purpose")
        root = outcomes["__main__.Root"]
        self.assertEqual(root["outcome"], "differs")
        self.assertAlmostEqual(root["ratio"], 2.0, 2)
        self.assertIn("own_functions.py:", root["site"])
        # The training itself is what it is without.
        plain = harness.run_captured([sys.executable, script], self.environment())
        said = [line for line in done.stderr.splitlines() if line.startswith("step ")]
        self.assertEqual(said, plain.stdout.splitlines()[: len(said)])
        self.assertEqual(len(said), 20)
        right = self.preflight(script, "--right", options=("--probe",))
        self.assertIn("1 is the derivative of its forward", right.stdout)
        unasked = self.preflight(script)
        self.assertNotIn("backward", unasked.stdout)

    def test_a_healthy_training(self):
        done = self.preflight(
            *(BUILT_IN, "--right", "dropout_in_evaluation"),
            options=("--steps", "5", "--format", "json"),
        )
        report = json.loads(done.stdout)
        self.assertEqual(report["findings"], [])
        self.assertEqual(report["steps"], 5)
        self.assertGreater(report["coverage"]["decided"], 4)
        self.assertTrue(report["coverage"]["finished"])
        # What did not come up is no failure, and nothing hid it.
        coverage = report["coverage"]
        self.assertEqual(coverage["unknown"], [])
        self.assertGreater(coverage["no_occasion"], 50)
        self.assertEqual(
            coverage["decided"] + coverage["no_occasion"], coverage["total"]
        )
        # After four steps this one evaluates.
        self.assertNotIn("evaluation", report["not_reached"])
        self.assertIn("saving", report["not_reached"])

    def test_a_mistake_is_told_with_its_fix(self):
        done = self.preflight(BUILT_IN, "broadcast_loss", code=10)
        self.assertIn("found        1 incident", done.stdout)
        self.assertRegex(done.stdout, r"VIOLATION .*\(.*built_in.py:\d+\)")
        self.assertRegex(done.stdout, "what to do: .*view_as")
        self.assertNotIn("VIOLATION", done.stderr)

    def test_the_line_of_the_cause(self):
        """Not only that of the backward, the step or the next batch."""
        for script, case, source in (
            ("built_in_steps.py", "sigmoid_twice", "scores.sigmoid()"),
            ("built_in_steps.py", "one_order", "loader = DataLoader("),
            ("built_in_outputs.py", "rate_as_a_factor", "scheduler = make("),
            ("built_in_signs.py", "clipping_of_nothing", "clip_grad_norm_("),
        ):
            with self.subTest(case):
                path = harness.SCRIPTS / script
                done = self.preflight(path, case, options=("--steps", "60"), code=10)
                written = re.search(rf"written at: .*{script}:(\d+)\n", done.stdout)
                self.assertIsNotNone(written, done.stdout)
                line = path.read_text().splitlines()[int(written[1]) - 1]
                self.assertIn(source, line)

    def test_a_training_of_hours_ends_after_some_steps(self):
        begun = time.monotonic()
        done = self.preflight(
            *(SINGLE, "--steps", "1000000", "--sleep", "0.01"),
            options=("--steps", "3", "--format", "junit"),
        )
        self.assertLess(time.monotonic() - begun, harness.PATIENCE_S)
        suite = ElementTree.fromstring(done.stdout).find("testsuite")
        self.assertEqual(suite.get("failures"), "0")
        self.assertEqual(suite.get("tests"), str(len(suite.findall("testcase"))))
        self.assertGreater(len(suite.findall("testcase")), 4)

    def test_a_training_that_fails_by_itself(self):
        done = self.preflight(
            *(SINGLE, "--crash-at", "2"), options=("--format", "sarif"), code=1
        )
        self.assertIn("RuntimeError: crashed as asked", done.stderr)
        self.assertIn("the training failed by itself: exit code 1", done.stderr)
        [run] = json.loads(done.stdout)["runs"]
        self.assertEqual(run["results"], [])

    def test_what_hides_the_subject_of_rules_is_named(self):
        hidden = {
            "compiled": "parts of the training are compiled",
            "packed": "saved tensors are packed",
            "threads": "several threads train",
        }
        for how, words in hidden.items():
            with self.subTest(how):
                done = self.preflight(
                    *(harness.SCRIPTS / "hidden.py", how), options=("--format", "json")
                )
                unknown = json.loads(done.stdout)["coverage"]["unknown"]
                reasons = [row["reason"] for row in unknown]
                self.assertTrue(any(words in reason for reason in reasons), reasons)

    def test_two_ranks(self):
        done = self.preflight(
            *("-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", harness.PIPELINES / "mlp_ddp.py"),
            *("--steps", "100000"),
            options=("--steps", "4"),
        )
        self.assertIn(": 4 steps of 2 ranks\n", done.stdout)
        self.assertRegex(done.stdout, r"checked .* ddp \d")
        self.assertIn("found        nothing", done.stdout)

    def test_ranks_of_different_steps(self):
        # The learner ends at its third step, and the actor loses its peer.
        script = harness.PIPELINES / "drawbridge_actor_learner_gloo.py"
        done = self.preflight(script, options=("--steps", "3"))
        self.assertIn("after a rank had been ended at its step 3", done.stderr)
        self.assertNotIn("by itself", done.stderr)

    def test_an_interruption_leaves_nothing(self):
        script = "import time; print('started', flush=True); time.sleep(600)"
        process = subprocess.Popen(
            self.command([], [sys.executable, "-c", script]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            start_new_session=True,
        )
        self.addCleanup(self._end_group, process)
        self.assertEqual(process.stderr.readline(), "started\n")
        [folder] = self.temporary.glob("traincheck-*")
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(harness.PATIENCE_S), 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
