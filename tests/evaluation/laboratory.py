"""A daemon whose store keeps what was recorded, so that a measurement that was
interrupted, or is repeated with other rules, records nothing twice.
"""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from evaluation.programs import TESTS, Program

sys.path.insert(0, str(TESTS / "integration"))

import harness

PATIENCE_S = 600
# traincheckctl check: violated; nothing decided.
_CHECKED = (0, 10, 11)


class Laboratory:
    """Threads: record() on several, the rest on one."""

    def __init__(self, folder: pathlib.Path, full: bool = True):
        """full: everything is recorded; else what the built-in rules need."""
        self.folder = folder
        self._full = full
        core = harness.DIST / "libtraincheck_agent_core.so"
        self._agent = _digest(core.read_bytes())
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self._daemon = harness.Daemon(folder).start()

    def close(self) -> None:
        self._daemon.stop()

    def ctl(self, *arguments: str, codes=(0,)):
        """As harness.Daemon's, for jobs of any length and further exit codes."""
        done = subprocess.run(
            [harness.DIST / "traincheckctl", "--server", self._daemon.address]
            + ["-o", "json"]
            + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode not in codes:
            what = " ".join(arguments)
            raise RuntimeError(f"{what}: {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    def run_id(self, program: Program) -> str:
        """Of the program as it is and the agent as it is."""
        text = program.script.read_bytes() + repr(program.arguments).encode()
        plan = "" if self._full else ".built-in"
        return f"{program.name}.{_digest(text)}.{self._agent}{plan}"

    def record(self, program: Program) -> str:
        """Records the program, unless that was done; returns the run id."""
        run = self.run_id(program)
        if self._is_whole(run):
            return run
        log = self.folder / "logs" / f"{run}.log"
        command = [harness.DIST / "traincheckctl", "--server", self._daemon.address]
        command += ["run", "--run", run, "--experiment", program.name]
        command += ["--collect", "--full"] if self._full else []
        command += ["--", program.python, program.script, *program.arguments]
        with open(log, "wb") as out:
            training = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                env=self._environment(),
                start_new_session=True,
            )
        try:
            code = training.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(training.pid, signal.SIGKILL)
            raise
        if code != 0:
            raise RuntimeError(f"{program.name} exits with {code}: {log}")
        while not self._is_whole(run):
            time.sleep(0.1)
        return run

    def infer(self, runs: list, name: str) -> dict:
        return self.ctl("infer", "--from", ",".join(runs), "--set", name)

    def check(self, run: str, rules: str) -> dict:
        """By the rules of this set alone."""
        return self.ctl("check", "--run", run, "--set", rules, codes=_CHECKED)

    def check_builtin(self, run: str) -> dict:
        """By the rules that the daemon has of itself."""
        return self.ctl("check", "--run", run, codes=_CHECKED)

    def _is_whole(self, run: str) -> bool:
        rows = {row["id"]: row for row in self.ctl("runs", "list", "--all")}
        return run in rows and rows[run]["status"] != "running"

    def _environment(self) -> dict:
        env = harness.others_environment()
        env["OMP_NUM_THREADS"] = "1"
        if not self._full:
            env["PYTHONPATH"] = str(TESTS / "quick")
            env["QUICK_PROGRAMS"] = "1"
        env["HF_HUB_OFFLINE"] = "1"
        env["TRAINCHECK_BUDGET"] = "off"  # every step in full
        env["TRAINCHECK_SPOOL_DIR"] = str(self.folder / "spool")
        return env


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]
