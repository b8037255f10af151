"""What the shipped binaries ask of the system that they are loaded on.

A preloaded library that needs more than the system has ends every program.
"""

import re
import subprocess
import unittest

import harness

PRELOAD = "libtraincheck_agent.so"
CORE = "libtraincheck_agent_core.so"
PROGRAMS = ("traincheck-relay", "traincheckctl", "traincheckd")


class ShippedFiles(unittest.TestCase):
    """What the binaries ask of a system (readelf)."""

    def readelf(self, name: str, *options: str) -> str:
        command = ["readelf", "-W", *options, str(harness.DIST / name)]
        return subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def newest_libc(self, name: str) -> tuple:
        versions = re.findall(r"GLIBC_(2[0-9.]*)", self.readelf(name, "-V"))
        self.assertTrue(versions)
        return max(tuple(map(int, version.split("."))) for version in versions)

    def needed(self, name: str) -> set:
        lines = self.readelf(name, "-d").splitlines()
        return {l.split("[")[1].rstrip("]") for l in lines if "(NEEDED)" in l}

    def test_preload_library(self):
        self.assertLessEqual(self.newest_libc(PRELOAD), (2, 17))
        self.assertEqual(self.needed(PRELOAD), {"libc.so.6"})

    def test_core(self):
        self.assertLessEqual(self.newest_libc(CORE), (2, 28))
        allowed = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
        self.assertLessEqual(self.needed(CORE), allowed)

    def test_programs_need_nothing(self):
        for name in PROGRAMS:
            self.assertIn("DYN (", self.readelf(name, "-h"), name)
            self.assertEqual(self.needed(name), set(), name)
            self.assertNotIn("INTERP", self.readelf(name, "-l"), name)

    def test_no_executable_stack_and_no_text_relocations(self):
        for name in (PRELOAD, CORE, *PROGRAMS):
            with self.subTest(name):
                stack = [
                    l for l in self.readelf(name, "-l").splitlines() if "GNU_STACK" in l
                ]
                self.assertEqual([l.split()[6] for l in stack], ["RW"])
                self.assertNotIn("TEXTREL", self.readelf(name, "-d"))


if __name__ == "__main__":
    unittest.main()
