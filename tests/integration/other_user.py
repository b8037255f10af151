"""What tests of attacks have in common: processes of another user of the host."""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

import harness

NOBODY = 65534
UNAUTHENTICATED, RESOURCE_EXHAUSTED = 16, 8
_RAW_CALL = next(
    path.resolve()
    for folder in ("", "bazel-bin")
    if (path := pathlib.Path(folder, "tests/integration/raw_call")).exists()
)
_TABLE = pathlib.Path("server/access/method_roles.cc")


def all_methods() -> list:
    return re.findall(r'\{"(/traincheck\.v1\.\w+/\w+)"', _TABLE.read_text())


def becomes_others() -> bool:
    """Root, and not of a user namespace that has nobody else."""
    rows = pathlib.Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, rows)]
    return os.geteuid() == 0 and any(
        first <= NOBODY < first + count for first, count in ranges
    )


@unittest.skipUnless(becomes_others(), "only root becomes another user")
class OtherUserCase(harness.TrainingCase):
    """A folder into which everybody may look, with our clients in it."""

    def setUp(self):
        super().setUp()
        self.open_folder = pathlib.Path(tempfile.mkdtemp(prefix="tc-open-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.open_folder, ignore_errors=True)
        self.open_folder.chmod(0o755)
        for program in (harness.DIST / "traincheckctl", _RAW_CALL):
            shutil.copy(program, self.open_folder)
        self.home = self.open_folder / "nobody"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)

    def user_environment(self, **extra: str) -> dict:
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.home), **extra}

    @staticmethod
    def identity(user: int) -> dict:
        """For subprocess."""
        return {"user": user, "group": user, "extra_groups": [], "cwd": "/"}

    def as_user(self, *command, user=NOBODY, stdin=b"", **extra: str):
        return subprocess.run(
            [*map(str, command)],
            input=stdin,
            capture_output=True,
            timeout=harness.PATIENCE_S,
            env=self.user_environment(**extra),
            **self.identity(user),
        )

    def ctl(self, *arguments, address=None, **extra):
        server = ["--server", address or self.daemon.address]
        return self.as_user(
            self.open_folder / "traincheckctl", *server, *arguments, **extra
        )

    def raw_call(self, method: str, *messages: bytes, **extra):
        """(code, text) of a call of nobody's."""
        framed = b"".join(struct.pack("<I", len(m)) + m for m in messages)
        done = self.as_user(
            self.open_folder / "raw_call",
            self.daemon.address,
            method,
            stdin=framed,
            **extra,
        )
        _, code, text = done.stdout.splitlines()[-1].split(b" ")
        return int(code), bytes.fromhex(text.decode()).decode()

    def raw_calls(self, count: int, method: str, message: bytes, **extra) -> list:
        """(code, text) of each of so many calls of nobody's at once."""
        done = self.as_user(
            *(self.open_folder / "raw_call", self.daemon.address, method, count),
            stdin=struct.pack("<I", len(message)) + message,
            **extra,
        )
        ends = [line.split(b" ") for line in done.stdout.splitlines()]
        return [
            (int(end[1]), bytes.fromhex(end[2].decode()).decode())
            for end in ends
            if end[0] == b"status"
        ]

    def hold_calls(self, count: int, method: str, message: bytes, **extra):
        """So many calls of nobody's that stay open until stdin of the process is
        closed; returns once the daemon has begun to answer each."""
        process = subprocess.Popen(
            [self.open_folder / "raw_call", self.daemon.address, method]
            + [str(count), "hold"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.user_environment(**extra),
            **self.identity(NOBODY),
        )
        self.addCleanup(self._end_process, process)
        process.stdin.write(struct.pack("<I", len(message)) + message)
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"open\n")
        return process

    @staticmethod
    def _end_process(process) -> None:
        process.kill()
        process.communicate()

    def token_of_nobody(self, role: str, owner: str) -> str:
        """A token of the owner's, in a file that nobody can read."""
        made = self.folder / f"{owner}.{role}.made"
        self.daemon.ctl(
            *("token", "create", "--role", role, "--owner", owner),
            *("--out", str(made)),
        )
        file = self.home / f"{owner}.{role}"
        shutil.copy(made, file)
        file.chmod(0o600)
        os.chown(file, NOBODY, NOBODY)
        return str(file)

    def peak_mib(self) -> int:
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        line = next(l for l in status.splitlines() if l.startswith("VmHWM"))
        return int(line.split()[1]) // 1024

    def train(self, run: str) -> None:
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            *("--steps", "10"),
            options=("--run", run, "--collect"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended(run)
