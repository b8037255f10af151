"""Results as the tables of docs/evaluation.md: at first contact, and now.

At first contact: with the rules of the day on which a program came, before
anybody had looked at what they make of it. These numbers never change.
"""

import json
import pathlib
from collections.abc import Callable

from evaluation import measures
from evaluation.measures import KINDS

FIRST_CONTACT = pathlib.Path(__file__).with_name("first_contact.json")
BEGIN, END = "<!-- evaluation begin -->", "<!-- evaluation end -->"
SAMPLE = "<!-- sample begin -->", "<!-- sample end -->"


def first_contact() -> dict:
    if not FIRST_CONTACT.exists():
        return {"errors": {}, "healthy": {}, "inputs": {}}
    return json.loads(FIRST_CONTACT.read_text())


def keep_first_contact(results: dict) -> None:
    """Adds the programs that were not there before."""
    kept = first_contact()
    for kind in kept:
        kept[kind] = {**results[kind], **kept[kind]}
    FIRST_CONTACT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def write(file: pathlib.Path, begin: str, end: str, text: str) -> None:
    """Between these marks of the document."""
    before, rest = file.read_text().split(begin)
    after = rest.split(end)[1]
    file.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def _table(head: str, rows: list) -> list:
    columns = head.count("|") - 1
    return [head, "|" + "---|" * columns, *rows, ""]


def _delay(row: dict | None, kind: str) -> str:
    return "" if row is None or kind not in row else measures.delay(row[kind])


def _alarms_of_fixed(row: dict) -> int:
    return sum(len(row[kind]["fixed"]) for kind in ("builtin", "others") if kind in row)


def _fixed(row: dict | None) -> str:
    return "" if row is None else str(_alarms_of_fixed(row))


def _alarms_of_healthy(row: dict) -> int:
    return len(row["alarms"]) + len(row.get("builtin", {}).get("alarms", ()))


def _errors(now: dict, first: dict) -> list:
    rows = []
    for name in sorted(first | now):
        cells = [name, (now.get(name) or first[name])["what"]]
        for results, kinds in ((first, ("others", "own")), (now, KINDS)):
            row = results.get(name)
            cells += [_delay(row, kind) for kind in kinds] + [_fixed(row)]
        rows.append("| " + " | ".join(cells) + " |")
    return _table(
        "| error | what is wrong | others, at first | own, at first | fixed, at first "
        "| built-in | with advice | others | own | own, with advice | all "
        "| all, with advice | fixed |",
        rows,
    )


def _healthy(now: dict, first: dict) -> list:
    rows = []
    for name in sorted(first | now):
        cells = [name]
        for results in (first, now):
            row = results.get(name)
            cells += (
                [str(_alarms_of_healthy(row)), str(row["decided"])] if row else ["", ""]
            )
        rows.append("| " + " | ".join(cells) + " |")
    return _table(
        "| program | alarms, at first | rules decided | alarms | rules decided |", rows
    )


def _inputs(results: dict) -> list:
    rows = []
    for count, row in sorted(results.items(), key=lambda item: int(item[0])):
        of_decided = 100 * row["violated"] / max(1, row["decided"])
        of_all = 100 * row["violated"] / max(1, row["judged"])
        rows.append(
            f"| {count} | {row['rules']} | {row['violated']} / {row['decided']} = "
            f"{of_decided:.1f}% | {of_all:.2f}% |"
        )
    return _table("| inputs | rules | violated / decided | violated / all |", rows)


def _share(errors: dict, kind: str) -> str:
    """Of those that were checked by rules of this kind."""
    rows = [row[kind] for row in errors.values() if kind in row]
    if not rows:
        return ""
    return f"{sum(row['found'] for row in rows)} of {len(rows)}"


def _summary(columns: dict) -> list:
    """columns: results by heading."""

    def loud(results: dict) -> str:
        healthy = results["healthy"]
        alarms = [_alarms_of_healthy(row) for row in healthy.values()]
        return f"{sum(map(bool, alarms))} of {len(healthy)}"

    def noisy(results: dict) -> str:
        errors = results["errors"]
        alarms = [_alarms_of_fixed(row) for row in errors.values()]
        return f"{sum(map(bool, alarms))} of {len(errors)}"

    def advised(rows: list) -> str:
        counted = [row["advice"] for row in rows if "advice" in row]
        return f"{sum(map(bool, counted))} of {len(counted)}" if counted else ""

    def advised_by_builtin(results: dict) -> str:
        rows = results["healthy"].values()
        return advised([row["builtin"] for row in rows if "builtin" in row])

    def advised_by_others(results: dict) -> str:
        return advised(list(results["healthy"].values()))

    def found(kind: str) -> Callable[[dict], str]:
        return lambda results: _share(results["errors"], kind)

    rows = {
        "errors found by built-in rules": found("builtin"),
        "errors found by built-in rules, advice included": found("advised"),
        "errors found by rules of others": found("others"),
        "errors found with a healthy run of the same script, too": found("own"),
        "errors found with that run, advice included": found("own_advised"),
        "errors found by all alerts of these": found("all"),
        "errors found by all of these, advice included": found("all_advised"),
        "fixed variants with an alarm": noisy,
        "healthy programs with an alarm": loud,
        "healthy programs with advice by built-in rules": advised_by_builtin,
        "healthy programs with advice by rules of others": advised_by_others,
    }
    cells = [
        " | ".join([words, *(count(one) for one in columns.values())])
        for words, count in rows.items()
    ]
    head = " | ".join(["", *columns])
    return _table(f"|{head} |", [f"| {row} |" for row in cells])


def text(now: dict) -> str:
    first = first_contact()
    lines = [
        *_summary({"at first contact": first, "now": now}),
        *_errors(now["errors"], first["errors"]),
        *_healthy(now["healthy"], first["healthy"]),
        *_inputs(now["inputs"]),
    ]
    lines += [f"Not recorded: {name}" for name in sorted(now["failed"])]
    return "\n".join(lines).rstrip()


def sample_text(now: dict) -> str:
    """Of programs that were drawn: what is found, and what is not."""
    missed = {
        words: [n for n, row in now["errors"].items() if not row[kind]["found"]]
        for words, kind in (
            ("with a healthy run of the same script, advice included", "own_advised"),
            ("by anything", "all_advised"),
        )
    }
    lines = _summary({f"{len(now['errors'])} errors": now})
    for words, names in missed.items():
        listed = ", ".join(f"`{name}`" for name in sorted(names)) or "none"
        lines += [f"Not found {words}: {listed}.", ""]
    lines += [f"Not recorded: {name}" for name in sorted(now["failed"])]
    return "\n".join(lines).rstrip()
