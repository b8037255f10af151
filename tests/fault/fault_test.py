"""A dozen kinds of fault once, on two ranks: the short part of the suite.

run.sh has all of them, with repeats and four ranks.
"""

import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path("tests/fault").resolve()))
os.environ.setdefault("TRAINCHECK_FAULT_TOOLS", "tests/fault")

import harness  # noqa: E402
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
    "restart-spooled",
    "restart-unseen",
    "skew-relay-daemon",
    "spool-corrupt",
    "worker-kill",
)
# (kind, repeat, seed) of runs of run.sh that failed and were mended.
FOUND: tuple = ()
# Trainings mostly sleep: three at a time share the processors well.
JOBS = 3


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        base = os.environ.get("TEST_TMPDIR")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fault-", dir=base))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        suite = Suite(folder, harness.seed(3101))
        pool = concurrent.futures.ThreadPoolExecutor(JOBS)
        cls.addClassCleanup(pool.shutdown)
        cls.outcomes = {
            run: pool.submit(suite.run, run[0], run[1], 2, run[2]) for run in RUNS
        }


def _case(run):
    def case(self):
        outcome, why, _ = self.outcomes[run].result()
        if outcome == "skipped":
            self.skipTest(why)
        self.assertEqual(outcome, "passed", why)

    return case


RUNS = [*[(name, 0, None) for name in CHOSEN], *FOUND]
for _run in RUNS:
    _words = [str(word) for word in _run if word] if _run in FOUND else [_run[0]]
    setattr(Faults, "_".join(["test", *_words]).replace("-", "_"), _case(_run))


if __name__ == "__main__":
    unittest.main()
