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
    def test_the_examples(self):
        self.assertTrue(
            shutil.which("slurmctld", path="/usr/sbin"), "needs Debian's slurm-wlm"
        )
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

        nodes = parts["own daemon on nodes"]
        self.assertIn("VIOLATION", nodes)
        self.assertIn(HEADLINE, nodes)
        kept = parts["kept of nodes"]
        self.assertIn(HEADLINE, kept)
        self.assertIn("0.0.0.0:", kept)
        self.assertIn("/certs/server.key 600", kept)
        self.assertIn("/token 600", kept)
        self.assertIn("/ 700", kept)
        self.assertNotIn("certs/ca.key", kept)
        self.assertIn("stopped", kept)


if __name__ == "__main__":
    unittest.main()
