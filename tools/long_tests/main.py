"""Runs parts of the long tier and keeps what they did: see ../long_tests.sh."""

import argparse
import datetime
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from parts import PARTS, Part
from results import (
    Checkout,
    Result,
    Results,
    fill_in,
    in_order,
    latest,
    next_part,
    passed,
    read_rows,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/reliability.md"
LIMIT_S = 30 * 60
# Between asking a part to end and ending it.
GRACE_S = 30
NOTHING_LEFT = 3


def kept_results() -> Results:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return Results(pathlib.Path(base, "traincheckd/long_tests"))


def known_results(checkout: Checkout, document: pathlib.Path = DOCUMENT) -> list:
    """Of this machine and of those whose rows the document has, oldest first."""
    written = read_rows(document.read_text())
    return in_order(written + kept_results().all(), checkout)


def find(name: str) -> Part:
    for part in PARTS:
        if part.name == name:
            return part
    raise SystemExit(f'long_tests: "{name}" is not a part; list shows all')


def end(process: subprocess.Popen) -> None:
    """Ends the command and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def execute(part: Part, seed: int | None, log: pathlib.Path, limit_s: float) -> tuple:
    """Runs the part's command; (outcome, seconds). Its output goes to the log."""
    environment = {**os.environ, "SEED": str(seed)} if part.draws else None
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", part.command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            outcome = "failed" if process.wait(limit_s) else "passed"
        except subprocess.TimeoutExpired:
            outcome = "out of time"
        finally:
            end(process)
    return outcome, time.monotonic() - start


def run(part: Part, given: int | None) -> int:
    results, checkout = kept_results(), Checkout(ROOT)
    seed = None
    if part.draws:
        seed = random.SystemRandom().randrange(10**6) if given is None else given
    log = results.folder / f"{part.name}-{checkout.commit[:9]}.log"
    told = f" seed {seed}" if part.draws else ""
    print(f"{part.name}:{told} log {log}", flush=True)
    changed = checkout.changed()
    outcome, seconds = execute(part, seed, log, LIMIT_S)
    if outcome != "passed":
        print("".join(log.read_text(errors="replace").splitlines(True)[-40:]))
        if part.draws:
            print(f"again: tools/long_tests.sh run {part.name} {seed}")
    print(f"{part.name}: {outcome} after {seconds / 60:.1f} minutes")
    if changed or checkout.changed():
        print("not kept: the checkout has changes that no commit has")
    else:
        date = datetime.date.today().isoformat()
        results.add(
            Result(part.name, checkout.commit, date, round(seconds), seed, outcome)
        )
    return 0 if outcome == "passed" else 1


def show() -> int:
    checkout = Checkout(ROOT)
    everything = known_results(checkout)
    last = latest(everything)
    for part in PARTS:
        if passed(part.name, everything, checkout):
            state = "passed"
        elif part.name in last:
            result = last[part.name]
            state = f"{result.outcome} at {result.commit[:9]}"
        else:
            state = "not run"
        print(f"{part.name:18} {state:24} {part.what}")
    return 0


def run_next() -> int:
    checkout = Checkout(ROOT)
    part = next_part(PARTS, known_results(checkout), checkout)
    if part is None:
        print("all parts have passed on this commit")
        return NOTHING_LEFT
    return run(part, None)


def write_table(path: pathlib.Path) -> int:
    last = latest(known_results(Checkout(ROOT), path))
    path.write_text(fill_in(path.read_text(), PARTS, last))
    return 0


def main() -> int:
    cli = argparse.ArgumentParser(prog="tools/long_tests.sh", description=__doc__)
    commands = cli.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    one = commands.add_parser("run")
    one.add_argument("part", type=find)
    one.add_argument("seed", type=int, nargs="?")
    commands.add_parser("run-next")
    table = commands.add_parser("table")
    table.add_argument("file", type=pathlib.Path, nargs="?", default=DOCUMENT)
    options = cli.parse_args()
    if options.command == "run":
        return run(options.part, options.seed)
    if options.command == "run-next":
        return run_next()
    return write_table(options.file) if options.command == "table" else show()


if __name__ == "__main__":
    sys.exit(main())
