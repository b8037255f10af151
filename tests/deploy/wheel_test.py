"""The wheel: what pip makes of it, and the main job with what pip has installed."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import unittest
import zipfile

import clean_root
import harness

WHEEL = next(pathlib.Path("deploy").glob("traincheckd-*.whl")).resolve()
MAIN_JOB = pathlib.Path("tests/deploy/main_job.sh").resolve()
MISTAKE = [harness.SCRIPTS / "built_in.py", "left_in_evaluation"]


class Wheel(harness.TrainingCase):
    """One virtual environment with the wheel for all cases."""

    def install(self) -> pathlib.Path:
        """A new environment with the wheel, and the torch of this one."""
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        packages = next((venv / "lib").glob("python3*")) / "site-packages"
        (packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [venv / "bin/python", "-m", "pip", "--quiet", "install"]
        pip += ["--no-index", "--no-deps", "--disable-pip-version-check", WHEEL]
        subprocess.run(pip, check=True)
        return venv

    def environment_of(self, venv: pathlib.Path) -> dict:
        """A shell's in which the environment is active and nothing else is set."""
        return {
            "PATH": f"{venv}/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "OMP_NUM_THREADS": "1",
        }

    def test_pip_install_and_run_is_all(self):
        venv = self.install()
        environment = self.environment_of(venv)
        done = harness.run_captured([MAIN_JOB, "python", *MISTAKE], environment)
        self.assertEqual(done.returncode, 10, done.stderr)
        self.assertIn("VIOLATION", done.stderr)
        found = json.loads(done.stdout[done.stdout.index("[") :])
        self.assertTrue(found, done.stdout)

        # The module is there, does nothing without the agent, and imports none.
        code = (
            "import sys, traincheckd; traincheckd.step(); print('torch' in sys.modules)"
        )
        done = harness.run_captured([venv / "bin/python", "-c", code], environment)
        self.assertEqual((done.stdout, done.stderr), ("False\n", ""))

        # Python ignores SIGPIPE; a training must not inherit that.
        ignored = ["python3", "-c", "print(open('/proc/self/status').read())"]
        for command in (ignored, ["sh", "-c", "exec cat /proc/self/status"]):
            line = self.ignored_signals(["traincheckctl", "run", "--", *command], venv)
            mask = int(line, 16)
            by_itself = command[0] == "python3"
            self.assertEqual(bool(mask & 1 << 12), by_itself, line)

        pip = [venv / "bin/python", "-m", "pip", "--quiet", "uninstall", "-y"]
        subprocess.run([*pip, "traincheckd"], check=True)
        left = [p for p in venv.rglob("*traincheck*")]
        self.assertEqual(left, [])

    def test_runs_where_nothing_else_of_it_is(self):
        if reason := clean_root.why_not(self.folder):
            self.skipTest(f"no root of its own can be made: {reason}")
        parts = clean_root.run(
            self.folder,
            "inside_wheel_root.sh",
            [MAIN_JOB, harness.SCRIPTS / "built_in.py"],
            [sys.executable, MAIN_JOB.name, "built_in.py", "left_in_evaluation"],
            package=WHEEL,
        )
        self.assertIn("/opt/venv/bin/traincheckctl", parts["installed"])
        self.assertIn("VIOLATION", parts["job"])
        self.assertTrue(parts["job"].endswith("code 10\n"), parts["job"])
        self.assertEqual(parts["removed"], "")

    def ignored_signals(self, command: list, venv: pathlib.Path) -> str:
        done = harness.run_captured(command, self.environment_of(venv))
        lines = done.stdout.splitlines()
        return next(line for line in lines if line.startswith("SigIgn:")).split()[1]


class WheelFile(unittest.TestCase):
    def test_says_what_it_is(self):
        with zipfile.ZipFile(WHEEL) as wheel:
            names = wheel.namelist()
            info = next(n for n in names if n.endswith("/METADATA")).split("/")[0]
            metadata = wheel.read(f"{info}/METADATA").decode()
            licences = wheel.read(f"{info}/THIRD_PARTY").decode()
            tag = wheel.read(f"{info}/WHEEL").decode()
        version = WHEEL.name.split("-")[1]
        self.assertIn(f"\nVersion: {version}\n", metadata)
        self.assertIn("\nLicense: Apache-2.0\n", metadata)
        self.assertIn("# traincheckd", metadata)  # the README
        self.assertTrue("\nlibgrpc++-dev\n===" in licences)
        self.assertIn("Root-Is-Purelib: false", tag)
        self.assertIn(WHEEL.stem.split("-", 2)[2], tag)

    def test_same_files_give_the_same_bytes(self):
        """Whatever the time, the umask and the order of the files."""
        first = pathlib.Path(os.environ["TEST_TMPDIR"]) / WHEEL.name
        files = sorted(harness.DIST.iterdir(), reverse=True)
        command = [sys.executable, "deploy/wheel/make_wheel.py", "--out", str(first)]
        command += ["--version-header", "base/version.h", "--readme", "README.md"]
        command += [
            "--licence",
            "LICENSE",
            "--third-party",
            "../library_versions/THIRD_PARTY",
        ]
        command += ["--module", "agent/python/module/traincheckd.py"]
        command += ["--programs-module", "deploy/wheel/programs.py"]
        command += [str(f) for f in files if f.suffix != ".py"]
        environment = {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"}
        subprocess.run(command, check=True, env=environment, umask=0o077)
        self.assertEqual(first.read_bytes(), WHEEL.read_bytes())


if __name__ == "__main__":
    unittest.main()
