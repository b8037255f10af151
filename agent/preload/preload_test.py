"""The preload library: inert outside Python, needs little, stands before torch."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LIBRARY = pathlib.Path("agent/preload/libtraincheck_agent.so").resolve()

# Stands for torch: what matters here is the import, not what it brings.
FAKE_TORCH = "__version__ = '{version}'\nprint('torch body runs')\n"


def run(command, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")}
    env.update(LD_PRELOAD=str(LIBRARY), PYTHONPATH="", **environment)
    return subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


class Needs(unittest.TestCase):
    def readelf(self, *options):
        command = ["readelf", *options, str(LIBRARY)]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout

    def test_no_symbol_version_above_glibc_2_17(self):
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", self.readelf("-V"))
        self.assertTrue(versions)
        for major, minor in versions:
            self.assertLessEqual((int(major), int(minor)), (2, 17))

    def test_no_library_but_libc(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]", self.readelf("-d"))
        self.assertEqual(needed, ["libc.so.6"])

    def test_exports_nothing(self):
        symbols = self.readelf("--dyn-syms", "--wide").splitlines()
        exported = [
            line.split()[-1]
            for line in symbols
            if " GLOBAL " in line and " UND " not in line and " FUNC " in line
        ]
        self.assertEqual(
            [name for name in exported if name not in ("_init", "_fini")], []
        )


class Activation(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def import_torch(self, version="2.13.0", program="import torch", options=()):
        (self.folder / "torch.py").write_text(FAKE_TORCH.format(version=version))
        code = f"import sys; sys.path.insert(0, {str(self.folder)!r}); {program}"
        return run(
            [sys.executable, *options, "-c", code],
            TRAINCHECK_AGENT_DIR=str(self.folder / "absent"),
        )

    def test_other_programs_run_as_before(self):
        done = run(["/bin/echo", "hello"])
        self.assertEqual(
            (done.returncode, done.stdout, done.stderr), (0, "hello\n", "")
        )

    def test_programs_with_sanitizers(self):
        # gcc's shared AddressSanitizer wants to be the first library and exits if
        # it is not, unless it is told not to look.
        for option, environment in (
            ("address", {"ASAN_OPTIONS": "verify_asan_link_order=0"}),
            ("undefined", {}),
            ("thread", {}),
        ):
            with self.subTest(option):
                program = str(self.folder / option)
                built = subprocess.run(
                    ["gcc", f"-fsanitize={option}", "-o", program, "-x", "c", "-"],
                    input='int puts(const char*); int main() { return puts("ran") < 0; }',
                    text=True,
                    stderr=subprocess.PIPE,
                )
                if built.returncode != 0:
                    self.skipTest(f"gcc has no -fsanitize={option}: {built.stderr}")
                done = run([program], **environment)
                self.assertEqual(
                    (done.returncode, done.stdout, done.stderr), (0, "ran\n", "")
                )

    def test_python_without_torch_runs_as_before(self):
        done = run([sys.executable, "-c", "import json; print(json.dumps(1))"])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n", ""))

    def test_missing_core_is_one_line_and_torch_is_imported(self):
        for options in ((), ("-I",), ("-E", "-S")):
            done = self.import_torch(options=options)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, "torch body runs\n")
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn("libtraincheck_agent_core.so", done.stderr)

    def test_finder_is_gone_after_the_import(self):
        done = self.import_torch(
            program="import importlib; importlib.import_module('torch'); "
            "print([f for f in sys.meta_path if 'Torch' in repr(f)])"
        )
        self.assertIn("[]", done.stdout)

    def test_old_torch_is_left_alone(self):
        done = self.import_torch(version="2.3.1")
        self.assertEqual(done.returncode, 0)
        self.assertIn("torch 2.3.1 is older than 2.4", done.stderr)

    def test_exceptions_of_torch_pass(self):
        (self.folder / "torch.py").write_text("raise ValueError('broken torch')")
        code = f"import sys; sys.path.insert(0, {str(self.folder)!r}); import torch"
        done = run([sys.executable, "-c", code])
        self.assertEqual(done.returncode, 1)
        self.assertIn("ValueError: broken torch", done.stderr)
        self.assertNotIn("traincheck:", done.stderr)

    def test_disable_switches_off(self):
        done = run(
            [sys.executable, "-c", "import sys; print(sys.meta_path)"],
            TRAINCHECK_DISABLE="1",
        )
        self.assertNotIn("TorchFinder", done.stdout)

    def test_log_off_is_silent(self):
        (self.folder / "torch.py").write_text(FAKE_TORCH.format(version="2.13.0"))
        code = f"import sys; sys.path.insert(0, {str(self.folder)!r}); import torch"
        done = run(
            [sys.executable, "-c", code],
            TRAINCHECK_AGENT_DIR="/nonexistent",
            TRAINCHECK_LOG="off",
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
