"""A thousand kills of randomly chosen parts, and the truth about every record.

Writers without torch (record_load) commit numbered calls and start their
relays anew, as the agent does; a share of the kills meets real two-rank
trainings. After all, each number must lie in the store exactly once, as the
rule in docs/reliability.md says. See kills.sh.
"""

import argparse
import collections
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import checks
import harness
import report
from faults.base import Fault
from setting import Daemon, LOST_AFTER_S, Setting, TOOLS, processes

WRITERS = 3
RATE = 5000  # calls a second
MAX_RESTARTS = 3
RING_BYTES = 4 << 20
CALL_BYTES = 40  # begin and end
KILLS_A_TRAINING = 8
WEIGHTS = {"daemon": 30, "relay": 35, "writer": 25, "writer and relay": 10}


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rsplit(")", 1)[1].split()[0] not in "ZX"


class Writer:
    """One record_load and its relays."""

    def __init__(self, number: int, folder: pathlib.Path, calls: int, env: dict):
        self.run = f"load-{number}"
        self.calls = calls
        self._file = folder / f"counters-{number}"
        # Killed with its relay dead, or ended before it could start another.
        self.together = False
        self._killed_relay = 0
        with open(folder / "writers.log", "ab") as log:
            self.process = subprocess.Popen(
                [TOOLS / "record_load", harness.DIST / "traincheck-relay"]
                + [self._file, str(calls), str(RATE)],
                env={**env, "TRAINCHECK_RUN": self.run},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def counters(self) -> tuple:
        """committed calls, dropped records, relay starts, relay pid, ending"""
        content = self._file.read_bytes() if self._file.exists() else b""
        return struct.unpack("<5Q", content[:40].ljust(40, b"\0"))

    def running(self) -> bool:
        return self.process.poll() is None

    def relay(self) -> int:
        """pid of the relay if it lives, else 0."""
        pid = self.counters()[3]
        return pid if pid not in (0, self._killed_relay) and alive(pid) else 0

    def may_lose_relay(self) -> bool:
        return self.running() and self.counters()[2] <= MAX_RESTARTS and self.relay()

    def kill_relay(self) -> None:
        if pid := self.relay():
            os.kill(pid, signal.SIGKILL)
            self._killed_relay = pid
        if not self.running() or self.counters()[4]:
            self.together = True

    def kill(self) -> None:
        self.together = self.together or not self.relay()
        self.process.kill()
        self.process.wait()


class Field:
    """The daemon, its writers, and whoever kills them."""

    def __init__(self, folder: pathlib.Path, draw: random.Random):
        self.folder = folder
        self.draw = draw
        self.kills = collections.Counter()
        self.spool = folder / "spool"
        self.daemon = Daemon(folder, "--lost-after", str(LOST_AFTER_S))
        self.daemon.start()
        self.writers = []
        self._env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")},
            "TRAINCHECK_SERVER": self.daemon.address,
            "TRAINCHECK_SPOOL_DIR": str(self.spool),
            "TRAINCHECK_GRACE": "20",
        }

    def fill_up(self) -> list:
        running = [writer for writer in self.writers if writer.running()]
        while len(running) < WRITERS:
            calls = self.draw.randint(1000, 40000)
            number = len(self.writers)
            running.append(Writer(number, self.folder, calls, self._env))
            self.writers.append(running[-1])
        return running

    def kill_one(self) -> None:
        running = self.fill_up()
        time.sleep(self.draw.uniform(0.02, 0.4))
        (kind,) = self.draw.choices([*WEIGHTS], WEIGHTS.values())
        if kind == "daemon":
            self.daemon.kill()
            time.sleep(self.draw.choice([0, 0, 0.3]))
            self.daemon.start()
        elif kind == "relay":
            able = [writer for writer in running if writer.may_lose_relay()]
            if not able:
                return
            self.draw.choice(able).kill_relay()
        else:
            able = [writer for writer in running if writer.running()]
            if not able:
                return
            victim = self.draw.choice(able)
            if kind == "writer and relay":
                victim.kill_relay()
            victim.kill()
        self.kills[kind] += 1

    def finish(self) -> dict:
        """Lets all come to an end; the runs as shown, by id."""
        for writer in self.writers:
            writer.process.wait()
        marker = f"TRAINCHECK_SPOOL_DIR={self.spool}"
        harness.wait_until(
            lambda: not processes(marker, "traincheck-rela"), "the end of the relays"
        )
        subprocess.run(
            [harness.DIST / "traincheckctl", "--server", self.daemon.address]
            + ["spool", "send", self.spool],
            capture_output=True,
            check=False,
        )

        deadline = time.monotonic() + harness.PATIENCE_S
        while time.monotonic() < deadline:
            rows = self.daemon.ctl("runs", "list", "--all")
            if all(row["status"] != "running" for row in rows):
                break
            time.sleep(0.5)
        shown = {row["id"]: self.daemon.ctl("runs", "show", row["id"]) for row in rows}
        self.daemon.stop()
        return shown

    def close(self) -> None:
        for writer in self.writers:
            if writer.running():
                writer.process.kill()
                writer.process.wait()
        for pid in processes(f"TRAINCHECK_SPOOL_DIR={self.spool}"):
            os.kill(pid, signal.SIGKILL)
        if self.daemon.alive():
            self.daemon.kill()


class Verdict:
    """What was found over all writers and trainings."""

    def __init__(self):
        self.problems = []
        self.records = 0
        self.doubled = 0
        self.lost_against_rule = 0
        self.lost_within_rule = 0
        self.unknown_shown = 0

    def judge(self, writer: Writer, stored: dict, shown: dict) -> None:
        committed, dropped, *_ = writer.counters()
        rings = {ring["ring"]: ring for ring in (stored or {}).get("rings", [])}
        main = rings.get(1, {"calls": 0, "missing_calls": 0, "repeated_calls": 0})
        self.records += sum(ring["records"] for ring in rings.values())
        doubled = main["repeated_calls"] + sum(r["overlaps"] for r in rings.values())
        self.doubled += doubled
        missing = max(0, committed - main["calls"])
        told = shown["processes"][0]["lost"] if shown and shown["processes"] else None
        if shown and shown["status"] == "running":
            reason = [(p["state"], p["reason"]) for p in shown["processes"]]
            self.problems.append(f"{writer.run} never ends: {reason}")
        name = f"{writer.run} ({committed} calls, {writer.counters()[2]} relays)"
        if doubled:
            self.problems.append(f"{name}: {doubled} records twice")
        if dropped == 0 and main["missing_calls"] and not writer.together:
            self.problems.append(f"{name}: {main['missing_calls']} missing inside")
        if dropped == 0 and missing and not writer.together:
            self.lost_against_rule += missing
            self.problems.append(f"{name}: {missing} calls are not stored")
        elif missing and dropped == 0:
            self.lost_within_rule += missing
            self.unknown_shown += told is None
            if told == 0:
                self.problems.append(f"{name}: {missing} missing, 0 shown as lost")
            if missing * CALL_BYTES > RING_BYTES:
                self.problems.append(f"{name}: more is missing than a ring holds")


def kill_writers(folder, draw: random.Random, count: int, verdict):
    field = Field(folder, draw)
    try:
        while field.kills.total() < count:
            field.kill_one()
        shown = field.finish()
        stored = {p["run_id"]: p for p in checks.audit(field.daemon.data_dir)}
        for writer in field.writers:
            verdict.judge(writer, stored.get(writer.run), shown.get(writer.run))
    finally:
        field.close()
    return field


class _Nothing(Fault):
    """Daemon and relay deaths alone cost nothing."""


def kill_in_training(folder: pathlib.Path, draw: random.Random, kills, verdict):
    """One real two-rank training whose daemon and relays die."""
    s = Setting(folder, 2, 1, None)
    s.check_set = None
    s.train_options += ["--steps=150"]
    fault = _Nothing(draw)
    relay_kills = collections.Counter()
    try:
        s.daemon.start()
        s.start_training()
        for number in range(KILLS_A_TRAINING):
            s.wait_step(8 + 16 * number + draw.randrange(8))
            rank = draw.randrange(2)
            relay = s.relays().get(s.rank_pid(rank))
            if relay and relay_kills[rank] < MAX_RESTARTS and draw.random() < 0.5:
                os.kill(relay, signal.SIGKILL)
                relay_kills[rank] += 1
                kills["relay of a rank"] += 1
            else:
                s.daemon.kill()
                s.daemon.start()
                kills["daemon under ranks"] += 1
        s.wait_training()
        shown = s.daemon.run_ended(s.run)
        found = checks.check_books(shown, fault)
        s.daemon.stop()
        stored = checks.audit(s.daemon.data_dir)
        found += checks.check_audit(stored, shown, fault)
        found += checks.check_steps(s, stored, fault)
        verdict.records += shown["records"]
        verdict.problems += [f"training: {problem}" for problem in found]
    finally:
        s.close()


def summary(options, kills, writers: int, verdict, seconds: float) -> str:
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items()))
    return (
        f"{kills.total()} kills in {seconds:.0f} s, seed {options.seed} ({parts}); "
        f"{writers} writers and {options.trainings} trainings, "
        f"{verdict.records} records stored: {verdict.doubled} doubled, "
        f"{verdict.lost_against_rule} lost against the rule; "
        f"{verdict.lost_within_rule} calls lost with writer and relay killed "
        f"together, in {verdict.unknown_shown} runs, shown as unknown; "
        f"{len(verdict.problems)} problems."
    )


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--kills", type=int, default=1000)
    cli.add_argument("--trainings", type=int, default=10, help="real ones")
    cli.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    cli.add_argument("--report", type=pathlib.Path, help="Markdown file to fill in")
    options = cli.parse_args()
    draw = random.Random(options.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kills-"))
    start = time.monotonic()
    verdict = Verdict()
    try:
        of_writers = options.kills - KILLS_A_TRAINING * options.trainings
        field = kill_writers(folder, draw, of_writers, verdict)
        for number in range(options.trainings):
            kill_in_training(folder / f"t-{number}", draw, field.kills, verdict)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - start
    text = summary(options, field.kills, len(field.writers), verdict, seconds)
    for problem in verdict.problems:
        print(problem)
    print(text)
    if options.report:
        command = f"tests/fault/kills.sh --kills {options.kills} --seed {options.seed}"
        command += f" --trainings {options.trainings}"
        report.fill_in(options.report, "kills", f"`{command}`\n\n{text}")
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
