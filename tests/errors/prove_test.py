"""Each error of the catalogue shows without us, and its fixed variant has none.

Part of the long tier: about four hundred programs, in two variants. TRAINCHECK_SLICE=I/N
runs the Ith of N shares of them.
"""

import os
import pathlib
import subprocess
import sys
import unittest

import catalogue

ERRORS = pathlib.Path("tests/errors").resolve()


def script_of(error: catalogue.Error) -> pathlib.Path:
    return ERRORS / f"{error.name}.py"


def share_of_errors() -> list:
    """Those that this process proves. errors_test proves the few programs without
    --prove by what finds them."""
    share, shares = map(int, os.environ.get("TRAINCHECK_SLICE", "1/1").split("/"))
    assert 1 <= share <= shares, "TRAINCHECK_SLICE is I/N with I from 1 to N"
    able = [e for e in catalogue.ERRORS if "--prove" in script_of(e).read_text()]
    return able[share - 1 :: shares]


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

    def prove(self, error: catalogue.Error) -> None:
        faulty = self.said(script_of(error), *error.arguments)
        self.assertEqual(faulty, ["fault shows: yes"])
        fixed = self.said(script_of(error), *error.arguments, "--fixed")
        self.assertEqual(fixed, ["fault shows: no"])


def case_of(error: catalogue.Error):
    def test(self: Proven) -> None:
        self.prove(error)

    return test


# A case each, so that shards of the target run side by side.
for each in share_of_errors():
    setattr(Proven, f"test_{each.name}", case_of(each))


if __name__ == "__main__":
    unittest.main()
