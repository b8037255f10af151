"""Slurm as Debian packages it, with two node daemons, in a root of its own. Part
of the long tier: tools/long_tests.sh run launchers.
"""

import json
import pathlib
import shutil
import sys
import unittest

import clean_root
import harness

EXAMPLES = pathlib.Path("deploy/slurm").resolve()
# DistributedDataParallel is bypassed.
HEADLINE = "gradients are not averaged"


class Slurm(harness.TrainingCase):
    def test_both_examples(self):
        self.assertTrue(shutil.which("slurmctld"), "needs Debian's slurm-wlm")
        parts = clean_root.run(
            self.folder,
            "inside_slurm_root.sh",
            [EXAMPLES, clean_root.HERE / "launched.py"],
            [sys.executable, "slurm", "launched.py"],
        )

        site = parts["site daemon"]
        shown = json.loads(site[site.index("\n{") :])
        ranks = sorted(p["rank"] for p in shown["processes"] if p["rank"] is not None)
        self.assertEqual(ranks, [0, 1], site)
        self.assertEqual(shown["world"], 2)
        self.assertIn(HEADLINE, site)

        own = parts["own daemon"]
        self.assertIn("VIOLATION", own)
        self.assertIn(HEADLINE, own)
        self.assertIn(HEADLINE, parts["kept"])
        self.assertIn("stopped", parts["kept"])


if __name__ == "__main__":
    unittest.main()
