"""Prepares what all runs share and runs one fault once."""

import pathlib
import random
import shutil
import threading
import time
import traceback

import checks
import harness
from faults import KINDS
from faults.base import Skipped
from setting import ERROR_STEP, SET, Setting


class Suite:
    def __init__(self, folder: pathlib.Path, seed: int, keep=None):
        self.folder = folder
        self.seed = seed
        self.keep = keep
        self._lock = threading.Lock()
        self._calm = {}
        self._numbers = iter(range(10**9))
        self.template = self._make_template()

    def run(self, name: str, repeat: int, ranks: int, seed=None) -> tuple:
        """("passed" | "failed" | "skipped", why, seconds). What the fault draws
        comes from `seed`, or else from that of the suite."""
        start = time.monotonic()
        draws_from = self.seed if seed is None else seed
        fault = KINDS[name](random.Random(f"{draws_from}/{name}/{repeat}"))
        s = self._setting(ranks, self.template)
        outcome, why = "passed", ""
        try:
            fault.prepare(s)
            problems = self._suffer(s, fault)
            if problems:
                outcome, why = "failed", "; ".join(dict.fromkeys(problems))
        except Skipped as reason:
            outcome, why = "skipped", str(reason)
        except (AssertionError, OSError, ValueError, KeyError) as error:
            outcome = "failed"
            why = f"{error} ({traceback.format_exc(limit=-2).strip()})"
        if outcome == "failed" and self.keep:
            self._keep(s, f"{name}-{repeat}", f"step {fault.step}: {why}")
        s.close()
        return outcome, why, time.monotonic() - start

    def calm(self, like: Setting) -> checks.Calm:
        """The undisturbed training with the same ranks and options."""
        key = (like.ranks, *like.train_options)
        with self._lock:
            if key not in self._calm:
                self._calm[key] = self._measure_calm(like)
            return self._calm[key]

    def _setting(self, ranks: int, template) -> Setting:
        folder = self.folder / f"run-{next(self._numbers)}"
        return Setting(folder, ranks, self.seed % 1000, template)

    def _suffer(self, s: Setting, fault) -> list:
        s.train_options.append(f"--error-step={ERROR_STEP}")
        calm = self.calm(s)
        if fault.daemon_first:
            s.daemon.start()
        s.start_training()
        s.wait_step(fault.step)
        if s.training_over():
            raise AssertionError(f"over before the fault: {s.log()[-500:]}")
        fault.strike(s)
        code = s.wait_training()
        fault.after(s)
        return checks.check_all(s, fault, calm, code)

    def _make_template(self) -> pathlib.Path:
        """A data directory with a healthy run and the rules learned from it."""
        s = self._setting(2, None)
        s.run, s.check_set = "reference", None
        s.daemon.start()
        s.start_training()
        s.wait_training()
        s.daemon.run_ended("reference")
        learned = s.daemon.ctl("infer", "--from", "reference", "--set", SET)
        if not learned["invariants"]:
            raise AssertionError(f"nothing was learned: {s.log()}")
        s.daemon.stop()
        template = self.folder / "template"
        shutil.move(s.daemon.data_dir, template)
        s.close()
        return template

    def _measure_calm(self, like: Setting) -> checks.Calm:
        plain = self._setting(like.ranks, None)
        plain.train_options = list(like.train_options)
        plain.start_training(monitored=False)
        plain.wait_training()
        losses = {rank: checks.losses_of(plain, rank)[0] for rank in range(like.ranks)}
        plain.close()
        calm = self._setting(like.ranks, self.template)
        calm.train_options = list(like.train_options)
        calm.daemon.start()
        calm.start_training()
        calm.wait_training()
        calm.daemon.run_ended(calm.run)
        violations = checks.verdict_rows(calm)
        calm.close()
        if not violations:
            raise AssertionError("the seeded error goes unnoticed")
        return checks.Calm(losses, violations)

    def _keep(self, s: Setting, name: str, why: str) -> None:
        kept = self.keep / name
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        (kept / "why").write_text(why + "\n")
        for file in s.folder.glob("*.log"):
            shutil.copy(file, kept)
        if s.daemon.alive():
            shown = s.daemon.ctl("runs", "list", "--all")
            (kept / "runs.json").write_text(harness.json.dumps(shown, indent=1))
