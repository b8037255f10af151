"""Real processes for integration tests: daemon, traincheckctl, trainings.

Every test gets a folder of its own below TEST_TMPDIR, a daemon on a port of its
own, and spools inside that folder. Nothing outlives the test, and tests may run
side by side.
"""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

DIST = pathlib.Path(os.environ.get("TRAINCHECK_DIST", "deploy/dist")).resolve()
SCRIPTS = pathlib.Path("tests/integration/scripts").resolve()
# Rules of one program, for programs of every kind: a test has no time for two.
ONE_PROGRAM = ("--min-programs", "1")
PIPELINES = pathlib.Path("tests/pipelines").resolve()
# Ten times what is promised: only a hang fails a test by time.
PATIENCE_S = 120
# What a rank's process says that ends while a thread of torch's wants the
# interpreter: rarely, and without the agent too.
_TORCH_ABORTS = "terminate called without an active exception"


def wait_until(condition, what: str, timeout_s: float = PATIENCE_S):
    """Polls condition() until it is true and returns its value."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up after {timeout_s} s waiting for: {what}")
        time.sleep(0.05)


def seed(fixed: int) -> int:
    """What a test draws from: always the same, or TRAINCHECK_SEED."""
    number = int(os.environ.get("TRAINCHECK_SEED", fixed))
    print(f"seed {number} (TRAINCHECK_SEED repeats it)")
    return number


_PORTS = range(20000, 30000)  # below those that the system gives to anybody


def take_port() -> tuple:
    """(a port, what keeps other tests from it as long as it is there). The system
    gives it to nobody while a daemon on it is dead."""
    folder = pathlib.Path(f"/tmp/traincheck-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    first = os.getpid() * 37 % len(_PORTS)
    for port in [*_PORTS[first:], *_PORTS[:first]]:
        lock = open(folder / str(port), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        return port, lock
    raise AssertionError(f"no port of {_PORTS} is free")


def others_environment() -> dict:
    """Without TRAINCHECK_ variables: the tests' own are no settings of the agent."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")}


def run_captured(command: list, environment: dict):
    """Runs a command to its end."""
    return subprocess.run(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=5 * PATIENCE_S,
        env=environment,
    )


def expect_usual_torch(case: unittest.TestCase) -> None:
    """Of a test that compares a training with one without us: what tests/quick
    replaces would be replaced in both."""
    case.assertNotIn("tests/quick", os.environ.get("PYTHONPATH", ""))


def relay_pids(marker: str) -> list[int]:
    """Relays whose environment names the folder of this test."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/comm") as comm:
                if not comm.read().startswith("traincheck-rela"):
                    continue
            with open(f"/proc/{entry}/environ", "rb") as environ:
                if marker.encode() in environ.read():
                    found.append(int(entry))
        except OSError:
            continue
    return found


def end_relays(marker: str) -> None:
    """Of a test that is over: they would deliver to the next daemon on its port."""
    for pid in relay_pids(marker):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has ended


class Daemon:
    """One traincheckd with its data directory; may be killed and started again."""

    def __init__(self, folder: pathlib.Path, *options: str, host="127.0.0.1"):
        self.client_environment: dict = {}  # of ctl
        self.dist = DIST  # of it and its ctl
        self.data_dir = folder / "data"
        self.log = folder / "traincheckd.log"
        self._port_file = folder / "address"
        self.options = options
        self._process = None
        port, self._port_lock = take_port()
        self.address = f"{host}:{port}"

    def start(self) -> "Daemon":
        self._port_file.unlink(missing_ok=True)
        command = [self.dist / "traincheckd", "--data-dir", self.data_dir]
        command += ["--listen", self.address, "--port-file", self._port_file]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [*map(str, command), *self.options], stderr=log
            )
        wait_until(self._port_file.exists, f"the daemon's address; log: {self.log}")
        self.address = self._port_file.read_text().strip()
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """Kills it unless it has ended."""
        if self._process.poll() is None:
            self.kill()

    def ctl(self, *arguments: str):
        """Runs traincheckctl -o json and returns what it printed."""
        done = subprocess.run(
            [str(self.dist / "traincheckctl"), "--server", self.address, "-o", "json"]
            + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            env={**os.environ, **self.client_environment},
        )
        if done.returncode != 0:
            raise AssertionError(
                f"traincheckctl {' '.join(arguments)}: {done.returncode}\n{done.stderr}"
            )
        return json.loads(done.stdout)

    def await_first_steps(self) -> None:
        """Of any run."""
        wait_until(
            lambda: any(run["last_step"] for run in self.ctl("runs", "list")),
            "first steps of a run",
        )

    def run_ended(self, run: str) -> dict:
        """Waits until the run has ended and, with a set, is checked."""

        def ended():
            shown = self.ctl("runs", "show", run)
            if shown["status"] == "running":
                return None
            check = shown["check"]
            return shown if check is None or check["finished"] else None

        return wait_until(ended, f"the end of run {run}")


class TrainingCase(unittest.TestCase):
    """A test with a folder, trainings and at most one daemon."""

    daemon_options: tuple = ()
    python = sys.executable  # that trains
    # Whether trainings start and exit as in tests/quick/sitecustomize.py.
    quick_programs = True

    def setUp(self):
        base = os.environ.get("TEST_TMPDIR")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tc-", dir=base))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(end_relays, str(self.folder))
        self.daemon = None

    def start_daemon(self) -> Daemon:
        self.daemon = Daemon(self.folder, *self.daemon_options).start()
        self.addCleanup(self._end_daemon, self.daemon)
        return self.daemon

    def _end_daemon(self, daemon: Daemon) -> None:
        daemon.end()
        if sys.exc_info()[0] or not self._outcome_ok():
            print(daemon.log.read_text()[-4000:], file=sys.stderr)

    def _outcome_ok(self) -> bool:
        result = self._outcome.result
        return not any(test is self for test, _ in result.failures + result.errors)

    def environment(self, **extra: str) -> dict:
        env = others_environment()
        env["TRAINCHECK_SPOOL_DIR"] = str(self.folder / "spool")
        env["XDG_STATE_HOME"] = str(self.folder / "state")
        env["OMP_NUM_THREADS"] = "1"
        if self.quick_programs:
            env["QUICK_PROGRAMS"] = "1"
        env.update(extra)
        return env

    def plain(self, script, *arguments: str, **extra: str):
        """Runs a training without us; again where torch itself aborted it."""
        for _ in range(3):
            done = run_captured(
                [sys.executable, script, *arguments], self.environment(**extra)
            )
            if done.returncode == 0 or _TORCH_ABORTS not in done.stderr:
                break
        return done

    def monitored_command(self, script, arguments, options) -> list:
        return [
            str(DIST / "traincheckctl"),
            "--server",
            self.daemon.address if self.daemon else "127.0.0.1:9",
            "run",
            *options,
            "--",
            str(self.python),
            str(script),
            *arguments,
        ]

    def monitored(self, script, *arguments: str, options=("--collect",), **extra: str):
        """Runs a training under traincheckctl run, to its end."""
        return run_captured(
            self.monitored_command(script, arguments, options),
            self.environment(**extra),
        )

    def monitored_start(self, script, *arguments: str, options=("--collect",), **extra):
        """Starts a monitored training in a process group of its own."""
        process = subprocess.Popen(
            self.monitored_command(script, arguments, options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**extra),
            start_new_session=True,
        )
        self.addCleanup(self._end_group, process)
        return process

    @staticmethod
    def _end_group(process) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class SharedDaemonCase(TrainingCase):
    """One folder and one daemon for all cases of a class, and what prepare() put
    there. Runs and sets of a case have names that no other case takes."""

    @classmethod
    def setUpClass(cls):
        base = os.environ.get("TEST_TMPDIR")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tc-", dir=base))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.addClassCleanup(end_relays, str(cls.folder))
        cls.daemon = Daemon(cls.folder, *cls.daemon_options).start()
        cls.addClassCleanup(cls.daemon.end)
        cls().prepare()

    def prepare(self) -> None:
        """Once, before the first case. Starts nothing that outlives it."""

    def setUp(self):
        self.addCleanup(self._show_log)

    def _show_log(self) -> None:
        if sys.exc_info()[0] or not self._outcome_ok():
            print(self.daemon.log.read_text()[-4000:], file=sys.stderr)
