"""What a healthy run of the same script teaches of the script's own ways: how functions
are called, which course the learning rates take, and what its steps compute."""

import unittest

import harness


class ExperimentRules(harness.TrainingCase):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.run_script("healthy", "--collect", "--full")
        self.daemon.run_ended("healthy")
        self.daemon.ctl("infer", "--from", "healthy", "--set", "own")

    def run_script(self, run: str, *options: str, arguments=()) -> None:
        done = self.monitored(
            harness.SCRIPTS / "scheduled.py",
            *arguments,
            options=("--run", run, "--experiment", "scheduled", *options),
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def found(self, run: str, *arguments: str) -> dict:
        """{(relation, grade): violations}"""
        self.run_script(run, "--no-builtin", "--check", "own", arguments=arguments)
        self.daemon.run_ended(run)
        found: dict = {}
        for violation in self.daemon.ctl("violations", "list", "--run", run):
            key = violation["relation"], violation["grade"]
            found.setdefault(key, []).append(violation)
        return found

    def test_what_was_changed_is_advice_and_what_was_not_is_quiet(self):
        self.assertEqual(self.found("again"), {})
        self.assertEqual(self.found("another-seed", "--seed", "2"), {})

        found = self.found("too-fast", "--every", "3")
        self.assertEqual(set(found), {("RateSchedule", "advice")}, found)
        (violation,) = found["RateSchedule", "advice"]
        self.assertEqual(violation["first_step"], 3, violation)
        self.assertIn("group 0 at step 3 of the optimizer is 0.05", violation["seen"])

        found = self.found("without-dropout", "--share", "0.0")
        self.assertIn(("APIArg", "advice"), found)
        texts = " ".join(v["seen"] for v in found["APIArg", "advice"])
        self.assertIn("p = 0.0", texts)
        # It began with the same weights, random numbers and rows.
        (violation,) = found["ReproducedSteps", "advice"]
        self.assertEqual((violation["first_step"], violation["count"]), (0, 1))
        self.assertIn("the forward or the loss has changed", violation["seen"])

        # Over the samples of a batch, too: the second element of the shape is new.
        found = self.found("all-together", "--normalised", "2")
        texts = " ".join(v["seen"] for v in found["APIArg", "advice"])
        self.assertIn("normalized_shape.length = 2", texts)

        # Other settings are no error: the course begins elsewhere.
        self.assertEqual(self.found("slower", "--rate", "0.02"), {})

        # So is another function in the model, however many rules know it.
        found = self.found("rewritten", "--activation", "tanh")
        self.assertTrue(found)
        self.assertEqual({grade for _, grade in found}, {"advice"}, found)


if __name__ == "__main__":
    unittest.main()
