"""TrainCheck and this system on the same training, same seeds, same machine.

    tests/bench/vs_traincheck.sh                     installs TrainCheck and runs this
    tests/bench/vs_traincheck.sh --json FILE --repeats 9

A small convolutional training (vs_traincheck_train.py) is run plainly, collected by
both systems, learned from, and checked: once healthy with another seed, once with a
fault. Both are checked in two ways: recorded in full and checked afterwards, and
*watched*: only what the invariants need is recorded, which traincheckd checks while
it trains and TrainCheck afterwards (by its defaults it records the first 10 steps
and then each tenth; traincheckd records all of them within its budget). An invariant
violated in the healthy run is a false alarm; the fault counts as detected if it
violates one that the healthy run of the same seed does not.

Trainings that are not faulty run --repeats times, the systems by turns, and medians
are shown; everything else runs once. A step that takes longer than --limit minutes
is reported as such, what needs it is not run, and the rest goes on.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

LEARNED = ["--seed", "1"]
HEALTHY = ["--seed", "2"]
FAULTY = ["--seed", "2", "--fault"]
MIB = 2**20
NOTES = """
ratio: of the first to the second. Whole run: the command from its start to its end,
start of Python and import of torch included. Memory: of all processes of the
command; traincheckd's has the daemon, too. TrainCheck never counts its relation
FunctionCover as decided unless it is violated."""
NOT_RUN = {"status": "not run"}


def medians(results: list) -> dict:
    """The figures of repeated trainings: medians, and the last one's counts."""
    for result in results:
        if result["status"] != "ok":
            return result
    middle = {
        key: statistics.median(result[key] for result in results)
        for key in ("seconds", "mib", "step_ms")
    }
    return {**results[-1], **middle}


def by_turns(repeats: int, trainings: dict) -> dict:
    """Calls trainings[name](number) by turns, in this order and back; one that fails
    once is left out."""
    results: dict = {name: [] for name in trainings}
    for number in range(repeats):
        order = list(trainings.items())
        for name, train in reversed(order) if number % 2 else order:
            if all(result["status"] == "ok" for result in results[name]):
                results[name].append(train(number))
                _say(f"{name} {number + 1}/{repeats}")
    return {name: medians(found) for name, found in results.items()}


def _say(text: str) -> None:
    print(f"vs_traincheck: {text}", file=sys.stderr, flush=True)


def _after(needed: dict, step) -> dict:
    """What step() returns, or that it is not run without what it needs."""
    return step() if needed["status"] == "ok" else dict(NOT_RUN)


def compare(plain, systems: list, repeats: int) -> dict:
    """Runs everything: {"plain": figures, name of a system: {step: figures}}."""
    plain.train("plain-warm-up", LEARNED)  # fills the file cache
    trainings = {"plain": lambda n: plain.train(f"plain-{n}", LEARNED)}
    for system in systems:
        trainings[f"{system.name}, collected"] = lambda n, system=system: system.train(
            f"learned-{n}", LEARNED
        )
    found = by_turns(repeats, trainings)
    results: dict = {"plain": found["plain"]}
    for system in systems:
        collected = found[f"{system.name}, collected"]
        learned = f"learned-{repeats - 1}"
        inferred = _after(collected, lambda: system.infer(learned))
        _say(f"{system.name}, inferred")
        results[system.name] = {"collect": collected, "infer": inferred}
    trainings = {
        system.name: lambda n, system=system: _after(
            results[system.name]["infer"], lambda: system.watch(f"watched-{n}", HEALTHY)
        )
        for system in systems
    }
    found = by_turns(repeats, trainings)
    for system in systems:
        steps = results[system.name]
        steps["watch"] = found[system.name]
        steps.update(_watched(system, steps["watch"], f"watched-{repeats - 1}"))
        for name, words in (("full", HEALTHY), ("full_fault", FAULTY)):
            steps[f"{name}_check"] = _recorded(system, steps["infer"], name, words)
        _say(f"{system.name}, checked")
    return results


def _watched(system, healthy: dict, label: str) -> dict:
    """Verdicts on a watched healthy run and on a faulty one."""
    faulty = _after(healthy, lambda: system.watch("watched-fault", FAULTY))
    steps = {}
    for name, trained, run in (
        ("watch_check", healthy, label),
        ("watch_fault_check", faulty, "watched-fault"),
    ):
        # Who checks while it trains has the verdict already.
        steps[name] = trained.get("verdict") or _after(
            trained, lambda: system.check(run)
        )
    return steps


def _recorded(system, inferred: dict, name: str, words: list) -> dict:
    """The verdict on a run that is recorded in full and checked afterwards."""
    trained = _after(inferred, lambda: system.train(name, words))
    return _after(trained, lambda: system.check(name))


class Table:
    """Measures of the two systems, as rows and as JSON."""

    def __init__(self, results: dict, names: list):
        self.results, self.names = results, names
        self.rows: list = []

    def row(self, measure: str, unit: str, value, ratio=False, digits=1) -> None:
        """value(steps of a system) is a number, a word or None; ratio is that of the
        first system to the second."""
        values = [value(self.results[name]) for name in self.names]
        numbers = [v for v in values if isinstance(v, (int, float))]
        quotient = None
        if ratio and len(numbers) == 2 and all(n > 0 for n in numbers):
            quotient = numbers[0] / numbers[1]
        row = {"measure": measure, "unit": unit, "digits": digits, "ratio": quotient}
        self.rows.append({**row, **dict(zip(self.names, values))})

    def text(self) -> str:
        """Aligned columns."""
        lines = [["", *self.names, "ratio"]]
        for row in self.rows:
            values = [_shown(row[name], row["digits"]) for name in self.names]
            unit = f", {row['unit']}" if row["unit"] else ""
            lines.append([row["measure"] + unit, *values, _quotient(row["ratio"])])
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join(
            "  ".join(
                [line[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
            ).rstrip()
            for line in lines
        )


def _quotient(ratio) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def _shown(value, digits: int) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def _of(step: str, key: str, scale: float = 1):
    """Reads a figure of a step, or why there is none."""

    def read(steps: dict):
        figures = steps[step]
        if figures["status"] != "ok":
            return figures["status"]
        value = figures[key]
        return value if isinstance(value, str) else value / scale

    return read


def _to_plain(step: str, key: str, plain: dict):
    def read(steps: dict):
        value = _of(step, key)(steps)
        if isinstance(value, str) or plain["status"] != "ok":
            return value
        return value / plain[key]

    return read


def _violated(step: str, without: str = ""):
    """How many invariants a run violates, those of the run without left out."""

    def read(steps: dict):
        for name in filter(None, (step, without)):
            if steps[name]["status"] != "ok":
                return steps[name]["status"]
        healthy = steps[without]["violated"] if without else {}
        return len(steps[step]["violated"].keys() - healthy.keys())

    return read


def _detected(step: str, healthy: str):
    def read(steps: dict):
        count = _violated(step, healthy)(steps)
        return count if isinstance(count, str) else "yes" if count else "no"

    return read


def _watched_and_checked(steps: dict):
    """Seconds until the verdict on a watched run is there."""
    trained, verdict = steps["watch"], steps["watch_check"]
    if verdict["status"] != "ok":
        return verdict["status"]
    online = isinstance(verdict["seconds"], str)
    return trained["seconds"] + (0 if online else verdict["seconds"])


def _bytes_a_record(steps: dict):
    figures = steps["collect"]
    if figures["status"] != "ok":
        return figures["status"]
    return figures["bytes"] / figures["records"]


def _training_rows(table: Table, step: str, name: str, plain: dict) -> None:
    table.row(f"{name}: whole run", "s", _of(step, "seconds"), True, 2)
    table.row("  to plain", "times", _to_plain(step, "seconds", plain), False, 2)
    table.row("  a step", "ms", _of(step, "step_ms"), True)
    table.row("  to plain", "times", _to_plain(step, "step_ms", plain), False, 2)
    table.row("  memory", "MiB", _of(step, "mib"), True, 0)
    table.row("  records", "", _of(step, "records"), True, 0)
    table.row("  trace", "MiB", _of(step, "bytes", MIB), True, 2)


def _verdict_rows(table: Table, healthy: str, faulty: str) -> None:
    table.row("  decided", "invariants", _of(healthy, "decided"), False, 0)
    table.row("  false alarms", "invariants", _violated(healthy), False, 0)
    table.row("  violated with the fault", "", _violated(faulty), False, 0)
    table.row("    by it alone", "", _violated(faulty, healthy), False, 0)
    table.row("    fault detected", "", _detected(faulty, healthy))


def tabulate(results: dict, names: list) -> Table:
    plain = results["plain"]
    table = Table(results, names)

    def alone(key: str):
        return lambda _: _of("plain", key)(results)

    table.row("plain training: whole run", "s", alone("seconds"), digits=2)
    table.row("  a step", "ms", alone("step_ms"))
    table.row("  memory", "MiB", alone("mib"), digits=0)
    _training_rows(table, "collect", "collected in full", plain)
    table.row("  with logs", "MiB", _of("collect", "all_bytes", MIB), True, 2)
    table.row("  trace a record", "B", _bytes_a_record, True)
    table.row("inference", "s", _of("infer", "seconds"), True, 2)
    table.row("  memory", "MiB", _of("infer", "mib"), True, 0)
    table.row("  invariants", "", _of("infer", "invariants"), False, 0)
    table.row("check of a full recording", "s", _of("full_check", "seconds"), True, 2)
    table.row("  memory", "MiB", _of("full_check", "mib"), True, 0)
    _verdict_rows(table, "full_check", "full_fault_check")
    _training_rows(table, "watch", "watched", plain)
    table.row("  check afterwards", "s", _of("watch_check", "seconds"), False, 2)
    table.row("  memory of it", "MiB", _of("watch_check", "mib"), False, 0)
    table.row("  run and verdict", "s", _watched_and_checked, True, 2)
    _verdict_rows(table, "watch_check", "watch_fault_check")
    return table


def violations(results: dict, names: list) -> dict:
    """What each run violates in the words of the system."""
    checks = ("full_check", "full_fault_check", "watch_check", "watch_fault_check")
    return {
        name: {
            step: sorted(results[name][step].get("violated", {}).values())
            for step in checks
        }
        for name in names
    }


def machine() -> dict:
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    return {
        "cpus": os.cpu_count(),
        "model": model,
        "load_average": round(os.getloadavg()[0], 2),
    }


def report(table: Table, about: dict) -> None:
    machine_text = ", ".join(f"{k} {v}" for k, v in about["machine"].items())
    print(f"machine: {machine_text}")
    print("versions: " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()))
    for name, commands in about["commands"].items():
        print(f"{name}:")
        for command in commands.values():
            print(f"    {command}")
    print()
    print(table.text())
    print(NOTES)


def _parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=15, help="minutes of a step")
    parser.add_argument("--json", type=pathlib.Path, help="the table, as JSON")
    parser.add_argument("--folder", type=pathlib.Path, help="new one, kept: traces")
    parser.add_argument(
        "--traincheck", type=pathlib.Path, help="environment that has it"
    )
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats: at least 1")
    if options.traincheck is None:
        parser.error("--traincheck: run vs_traincheck.sh, which installs it")
    return options


def _measure(options, folder: pathlib.Path) -> None:
    # Here, so that --help needs no build.
    import cost_processes
    import vs_traincheck_systems as of

    cost_processes.adopt_orphans()
    limit_s = 60 * options.limit
    about: dict = {"machine": machine()}
    ours = of.Traincheckd(folder / "traincheckd", limit_s)
    try:
        theirs = of.TrainCheck(folder / "traincheck", limit_s, options.traincheck)
        systems = [theirs, ours]
        about["versions"] = {
            "python": sys.version.split()[0],
            **theirs.versions(),
            **ours.versions(),
        }
        plain = of.Plain(folder / "plain", limit_s)
        results = compare(plain, systems, options.repeats)
    finally:
        ours.stop()
    about["commands"] = {system.name: system.commands for system in systems}
    table = tabulate(results, [system.name for system in systems])
    report(table, about)
    if options.json:
        rows = [{k: v for k, v in r.items() if k != "digits"} for r in table.rows]
        said = violations(results, table.names)
        text = json.dumps({**about, "measures": rows, "violated": said}, indent=2)
        options.json.write_text(text + "\n")


def main() -> None:
    options = _parse()
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="vs-traincheck-"))
    folder.mkdir(exist_ok=True)
    try:
        _measure(options, folder.resolve())
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
