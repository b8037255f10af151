"""Facts where records are missing.

Programs of many shapes run under the real agent. Then records are taken away,
again and again, as a full ring, a killed relay or a new store of the daemon
take them: a fact that is known all the same has the value that it has with all
records.
"""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import clocks_harness  # noqa: E402

LOOPS = pathlib.Path("tests/clocks/loops.py").resolve()
FACTS = pathlib.Path("tests/integration/scripts/facts.py").resolve()
# How often records are taken away; the long tier does it more often.
TIMES = int(os.environ.get("TRAINCHECK_SEEDS", 25))


class Gaps(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)
        clocks_harness.install(self.folder)
        self.asked = self.known = 0

    def run_script(self, script):
        done = clocks_harness.run(self.folder, script)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def compare(self, pid):
        found = clocks_harness.gaps(self.folder, pid, TIMES)
        self.assertEqual(found["wrong"], [])
        self.asked += found["asked"]
        self.known += found["known"]

    def most_is_known(self):
        self.assertGreater(self.known, 0.7 * self.asked)

    def test_loops(self):
        for line in self.run_script(LOOPS).splitlines():
            name, pid = line.split()
            # The order of threads is no more exact than their clocks.
            if name == "hogwild_threads":
                continue
            with self.subTest(name):
                self.compare(pid)
        self.most_is_known()

    def test_wrapper_autocast_scaler_and_loader(self):
        self.run_script(FACTS)
        pids = {file.name.split(".")[0] for file in self.folder.glob("out/*.0")}
        (main,) = pids
        self.compare(main)
        self.most_is_known()


if __name__ == "__main__":
    unittest.main()
