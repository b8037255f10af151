"""A dozen kinds of fault once, on two ranks: the short part of the suite.

run.sh has all of them, with repeats and four ranks.
"""

import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path("tests/fault").resolve()))
os.environ.setdefault("TRAINCHECK_FAULT_TOOLS", "tests/fault")

from suite import Suite  # noqa: E402

CHOSEN = (
    "clock-jump",
    "ctl-run-kill",
    "daemon-kill",
    "daemon-new-store",
    "daemon-stop",
    "net-cut",
    "net-truncate",
    "rank-kill",
    "rank-kill-relay-stopped",
    "relay-and-rank-kill",
    "relay-kill",
    "skew-relay-daemon",
    "spool-corrupt",
    "worker-kill",
)
# Trainings mostly sleep: three at a time share the processors well.
JOBS = 3


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        seed = int(os.environ.get("TRAINCHECK_TEST_SEED", time.time())) % 10**6
        print(f"seed {seed} (TRAINCHECK_TEST_SEED repeats it)")
        base = os.environ.get("TEST_TMPDIR")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fault-", dir=base))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        suite = Suite(folder, seed)
        pool = concurrent.futures.ThreadPoolExecutor(JOBS)
        cls.addClassCleanup(pool.shutdown)
        cls.outcomes = {name: pool.submit(suite.run, name, 0, 2) for name in CHOSEN}


def _case(name):
    def case(self):
        outcome, why, _ = self.outcomes[name].result()
        if outcome == "skipped":
            self.skipTest(why)
        self.assertEqual(outcome, "passed", why)

    return case


for _name in CHOSEN:
    setattr(Faults, "test_" + _name.replace("-", "_"), _case(_name))


if __name__ == "__main__":
    unittest.main()
