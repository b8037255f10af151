"""Slurm as Debian packages it, with two node daemons, in a root of its own. Part
of the long tier: tools/long_tests.sh run launchers.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest

import harness
from deb_test import DEB, HERE, parts_of

EXAMPLES = pathlib.Path("deploy/slurm").resolve()
# DistributedDataParallel is bypassed.
HEADLINE = "gradients are not averaged"


class Slurm(harness.TrainingCase):
    def inside(self) -> dict:
        for path in (DEB, HERE / "inside_slurm_root.sh", HERE / "launched.py"):
            shutil.copy(path, self.folder)
        shutil.copytree(EXAMPLES, self.folder / "slurm")
        command = [HERE / "clean_root.sh", self.folder]
        command += [self.folder / "inside_slurm_root.sh", self.folder / DEB.name]
        command += [sys.executable, self.folder / "slurm", self.folder / "launched.py"]
        done = subprocess.run(
            [*map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=5 * harness.PATIENCE_S,
            env=harness.others_environment(),
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return parts_of(done.stdout)

    def test_both_examples(self):
        self.assertTrue(shutil.which("slurmctld"), "needs Debian's slurm-wlm")
        parts = self.inside()

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
