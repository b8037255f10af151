"""Each error of the catalogue shows without us, and its fixed variant has none.

Part of the long tier: each of more than two hundred programs, in four ways.
"""

import os
import pathlib
import subprocess
import sys
import unittest

import catalogue

ERRORS = pathlib.Path("tests/errors").resolve()


class Proven(unittest.TestCase):
    def said(self, script: pathlib.Path, *arguments: str) -> list:
        """What the program says of its fault."""
        done = subprocess.run(
            [sys.executable, script, "--prove", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=600,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        lines = done.stdout.splitlines()
        return [line for line in lines if line.startswith("fault shows")]

    def test_faults_show(self):
        for error in catalogue.ERRORS:
            script = ERRORS / f"{error.name}.py"
            if "--prove" not in script.read_text():
                continue  # errors_test proves these by what finds them
            with self.subTest(error=error.name):
                faulty = self.said(script, *error.arguments)
                fixed = self.said(script, *error.arguments, "--fixed")
                self.assertEqual(faulty, ["fault shows: yes"])
                self.assertEqual(fixed, ["fault shows: no"])


if __name__ == "__main__":
    unittest.main()
