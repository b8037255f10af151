"""Forty kills of random parts: the short part of kills.sh."""

import os
import pathlib
import random
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path("tests/fault").resolve()))
os.environ.setdefault("TRAINCHECK_FAULT_TOOLS", "tests/fault")

import harness  # noqa: E402
import kills  # noqa: E402


class Kills(unittest.TestCase):
    def test_forty_kills(self):
        base = os.environ.get("TEST_TMPDIR")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="kills-", dir=base))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        verdict = kills.Verdict()
        kills.kill_writers(folder, random.Random(harness.seed(4711)), 40, verdict)
        self.assertGreater(verdict.records, 10000)
        self.assertEqual(verdict.problems, [])


if __name__ == "__main__":
    unittest.main()
