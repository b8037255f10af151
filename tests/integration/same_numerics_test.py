"""A monitored run computes bitwise what an unmonitored one computes."""

import unittest

import harness


class SameNumerics(harness.TrainingCase):
    quick_programs = False

    def setUp(self):
        super().setUp()
        harness.expect_usual_torch(self)

    def assert_same(self, script, *arguments):
        self.start_daemon()
        plain = self.plain(script, *arguments)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertIn("digest", plain.stdout)
        monitored = self.monitored(
            script, *arguments, options=("--run", "m", "--collect")
        )
        self.assertEqual(monitored.returncode, 0, monitored.stderr)
        self.assertEqual(plain.stdout, monitored.stdout)
        # The agent was there: the comparison is not of two plain runs.
        shown = self.daemon.run_ended("m")
        self.assertGreater(shown["records"], 500)

    def test_one_process(self):
        self.assert_same(
            harness.SCRIPTS / "single.py", "--steps", "20", "--print-digest"
        )

    def test_two_ranks_with_batchnorm_dropout_and_loader_workers(self):
        self.assert_same(
            harness.PIPELINES / "cnn_ddp.py", "--steps", "12", "--print-digest"
        )

    def test_two_ranks_without_loader(self):
        self.assert_same(
            harness.PIPELINES / "mlp_ddp.py", "--steps", "20", "--print-digest"
        )


if __name__ == "__main__":
    unittest.main()
