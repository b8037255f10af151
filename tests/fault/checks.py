"""What must be true after a fault. Each check returns problems in words."""

import dataclasses
import json
import re
import subprocess
import time

import harness
from faults.base import Fault
from setting import ERROR_STEP, GRACE_S, SET, TOOLS, Setting

_OF_EARLIER = re.compile(r"attempt \d+ ended: ")
_ROW = ("id", "invariant_id", "first_step", "last_step", "count", "ranks")


@dataclasses.dataclass
class Calm:
    """The undisturbed training: its losses and the violations it has."""

    losses: dict  # rank -> lines
    violations: list


def losses_of(s: Setting, rank: int) -> list:
    """Lines of each attempt of the rank, in order."""
    files = sorted(s.out.glob(f"loss.{rank}.*"))
    return [file.read_text().splitlines() for file in files]


def check_losses(s: Setting, fault: Fault, calm: Calm) -> list:
    problems = []
    for rank in range(s.ranks):
        expected = calm.losses[rank]
        attempts = losses_of(s, rank)
        if not attempts and not fault.cost.dies:
            problems.append(f"rank {rank} wrote no losses")
        for lines in attempts:
            whole = lines == expected
            if not whole and not (fault.cost.dies and lines == expected[: len(lines)]):
                problems.append(f"rank {rank}: losses differ")
        if s.torchrun and attempts and attempts[-1] != expected:
            problems.append(f"rank {rank}: the last attempt is not whole")
    return problems


def check_exit(s: Setting, fault: Fault, code: int) -> list:
    problems = []
    free = fault.cost.dies and not s.torchrun
    if code != fault.exit_code and not (free and code != 0):
        problems.append(
            f"exit code {code} instead of {fault.exit_code}: {s.log()[-300:]}"
        )
    try:
        ctl = s.training.wait(harness.PATIENCE_S)
    except subprocess.TimeoutExpired:
        return [*problems, "traincheckctl run does not end"]
    if s.run_under == "ctl" and ctl not in (code, -9):
        problems.append(f"traincheckctl gave {ctl} for {code}")
    return problems


def settle(s: Setting, fault: Fault) -> tuple:
    """(the run as shown once it has ended, problems)"""
    shown = None
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if s.run in [row["id"] for row in s.daemon.ctl("runs", "list", "--all")]:
            shown = s.daemon.ctl("runs", "show", s.run)
            if shown["status"] != "running" and shown["check"]["finished"]:
                return shown, []
        elif not fault.cost.stored and not s.leftovers():
            return None, []
        time.sleep(0.4)
    what = "is not there" if shown is None else f"stays {shown['status']}"
    why = [
        f"{p['rank']}: {p['state']} {p['reason']}"
        for p in (shown or {}).get("processes", [])
    ]
    return shown, [f"the run {what} {why}"]


def check_books(shown: dict, fault: Fault) -> list:
    problems = []
    known = fault.cost.records
    for process in shown["processes"]:
        name = f"process {process['identity']['pid'] if 'identity' in process else process['pid']}"
        rings = process["rings"]
        for ring in rings:
            if ring["offered"] != ring["committed"] + ring["dropped"]:
                problems.append(f"{name} ring {ring['ring']}: offered is not the sum")
        committed = sum(ring["committed"] for ring in rings)
        stored = sum(ring["stored"] for ring in rings)
        lost = process["lost"]
        if stored != process["records"]:
            problems.append(f"{name}: rings have {stored}, it {process['records']}")
        if lost is None:
            if known != "unknown":
                problems.append(f"{name}: lost is unknown ({process['reason']})")
        elif committed != stored + lost:
            problems.append(f"{name}: {committed} committed, {stored} + {lost}")
        if known == "none" and (process["dropped"] or lost):
            problems.append(f"{name}: dropped {process['dropped']}, lost {lost}")
    if sum(p["records"] for p in shown["processes"]) != shown["records"]:
        problems.append("the run's records are not the sum of its processes'")
    return problems


def audit(data_dir) -> list:
    done = subprocess.run(
        [TOOLS / "audit", data_dir], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"audit of {data_dir}: {done.stderr}")
    return json.loads(done.stdout)


def _ring_problems(name: str, ring: dict, strict: bool) -> list:
    problems = []
    for key in ("overlaps", "repeated_calls", "repeated_steps"):
        if ring[key]:
            problems.append(f"{name} ring {ring['ring']}: {ring[key]} {key}")
    if strict:
        for key in ("gaps", "missing_calls", "missing_steps"):
            if ring[key]:
                problems.append(f"{name} ring {ring['ring']}: {key} {ring[key]}")
    return problems


def check_audit(found: list, shown: dict, fault: Fault) -> list:
    """The stored records themselves, against the books and the numbering."""
    problems = []
    strict = fault.cost.records == "none"
    books = {p["pid"]: p for p in shown["processes"]}
    for process in found:
        name = f"stored process {process['pid']}"
        problems += [f"{name}: {error}" for error in process["errors"]]
        records = sum(ring["records"] for ring in process["rings"])
        book = books.get(process["pid"])
        if book is None or book["records"] != records:
            told = book and book["records"]
            problems.append(f"{name}: {records} records, the books say {told}")
        if process["undefined"] and fault.cost.records != "unknown":
            problems.append(f"{name}: {process['undefined']} uses of unknown ids")
        for ring in process["rings"]:
            problems += _ring_problems(name, ring, strict)
    return problems


def check_steps(s: Setting, found: list, fault: Fault) -> list:
    """Each rank's steps are all stored, unless something may be missing."""
    if fault.cost.records != "none":
        return []
    problems = []
    for rank in range(s.ranks):
        pid = s.rank_pid(rank)
        steps = [
            ring["steps"]
            for process in found
            if process["pid"] == pid
            for ring in process["rings"]
        ]
        done = len((losses_of(s, rank) or [[]])[-1])
        if done and max(steps, default=0) < done - fault.cost.dies:
            problems.append(
                f"rank {rank}: {max(steps, default=0)} of {done} steps stored"
            )
    return problems


def check_both_stores(s: Setting, found: list) -> list:
    """Between the store before and the new one nothing may be missing."""
    if not (s.folder / "data.old").exists():
        return []
    problems = []
    old = {p["pid"]: p for p in audit(s.folder / "data.old") if p["run_id"] == s.run}
    for process in found:
        before = {
            r["ring"]: r["to"] for r in old.get(process["pid"], {"rings": []})["rings"]
        }
        for ring in process["rings"]:
            if ring["ring"] and ring["from"] > before.get(ring["ring"], 0):
                problems.append(f"process {process['pid']}: a hole between the stores")
    return problems


def verdict_rows(s: Setting) -> list:
    rows = s.daemon.ctl("violations", "list", "--run", s.run)
    return [{key: row[key] for key in _ROW} for row in rows]


def _unsaid(s: Setting, missing: set) -> list:
    """Of the rules whose violations are missing, those that no reason excuses: one
    that is about this rule, in the newest attempt."""
    result = s.daemon.ctl("check", "--run", s.run, "--set", SET)
    verdicts = {row["invariant_id"]: row for row in result["verdicts"]}
    problems = []
    for rule in sorted(missing):
        row = verdicts.get(rule)
        reason = row and row["reason"]
        if row is None or row["verdict"] == "violated":
            problems.append(f"{rule} is violated in the stored check alone: {row}")
        elif not reason or _OF_EARLIER.match(reason):
            problems.append(f"{rule} is missing and not unknown: {row}")
    return problems


def _check_restart(s: Setting, rows: list, calm: Calm) -> list:
    """The violations of the second start are those of an undisturbed training, but
    for the attempt in their ids, and the first has none."""
    found = s.daemon.ctl("violations", "list", "--run", s.run)
    ranks = {s.rank_pid(rank) for rank in range(s.ranks)}
    shown = s.daemon.ctl("runs", "show", s.run)["processes"]
    again = {p["attempt"] for p in shown if p["pid"] in ranks}
    problems = []
    if len(again) != 1 or again & {
        p["attempt"] for p in shown if p["rank"] is not None and p["pid"] not in ranks
    }:
        places = [(p["pid"], p["rank"], p["attempt"]) for p in shown]
        problems.append(f"the second start is {ranks} in one attempt: {places}")
    if {row["attempt"] for row in found} - again:
        problems.append(f"the first start has violations: {found}")

    def known(row):
        return sorted((key, str(row[key])) for key in _ROW if key != "id")

    if sorted(map(known, rows)) != sorted(map(known, calm.violations)):
        problems.append(f"violations differ: {rows} for {calm.violations}")
    return problems


def check_verdicts(s: Setting, shown: dict, fault: Fault, calm: Calm) -> list:
    rows = verdict_rows(s)

    def order(row):
        return row["id"]

    if fault.cost.restarts:
        return _check_restart(s, rows, calm)
    if fault.cost.verdicts == "equal":
        if sorted(rows, key=order) != sorted(calm.violations, key=order):
            return [f"violations differ: {rows} for {calm.violations}"]
        return []
    problems = []
    expected = {row["invariant_id"] for row in calm.violations}
    for row in rows:
        early = row["first_step"] is not None and row["first_step"] < ERROR_STEP
        if row["invariant_id"] not in expected or early:
            problems.append(f"a violation that the calm run has not: {row}")
    missing = expected - {row["invariant_id"] for row in rows}
    reached = min(len((losses_of(s, rank) or [[]])[-1]) for rank in range(s.ranks))
    if not missing or reached <= ERROR_STEP + 1:
        return problems
    complete = all(p["state"] == "ended" and p["lost"] == 0 for p in shown["processes"])
    if complete and shown["dropped"] == 0:
        problems.append(f"nothing is unknown, but violations are missing: {missing}")
    # A run is shown as not checked if a new store lacked its set when it came.
    elif not shown["check"]["error"]:
        problems += _unsaid(s, missing)
    return problems


def check_left_behind(s: Setting, fault: Fault) -> list:
    deadline = time.monotonic() + GRACE_S + 15
    while (left := s.leftovers()) and time.monotonic() < deadline:
        time.sleep(0.3)
    problems = [f"left behind: {left}"] if left else []
    files = (
        [p.name for p in s.spool.rglob("*.*") if p.is_file()]
        if s.spool.is_dir()
        else []
    )
    if files and not fault.cost.spool:
        problems.append(f"left in the spool: {files}")
    return problems


def check_all(s: Setting, fault: Fault, calm: Calm, code: int) -> list:
    problems = check_losses(s, fault, calm) + check_exit(s, fault, code)
    if not s.daemon.alive():
        return [*problems, f"the daemon is dead: {s.daemon.tail()}"]
    shown, unsettled = settle(s, fault)
    problems += unsettled
    if shown:
        problems += check_books(shown, fault)
        problems += check_verdicts(s, shown, fault, calm)
    problems += check_left_behind(s, fault)
    s.daemon.ctl("status")
    if shown:
        shown = s.daemon.ctl("runs", "show", s.run)
    if (stopped := s.daemon.stop()) != 0:
        problems.append(f"the daemon ended with {stopped}: {s.daemon.tail()}")
    found = [p for p in audit(s.daemon.data_dir) if p["run_id"] == s.run]
    if shown:
        problems += check_audit(found, shown, fault)
        problems += check_steps(s, found, fault)
        problems += check_both_stores(s, found)
    elif found:
        problems.append("records are stored for a run that is not there")
    return problems
