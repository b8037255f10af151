"""What is found without rules of other programs: by built-in rules, by those of the
fixed variant, and by both, with advice and without. Takes minutes where learning from
all others takes half an hour.
"""

from evaluation import measures, programs
from evaluation.laboratory import Laboratory

_COLUMNS = {
    "builtin": "built-in rules",
    "own": "rules of a healthy run of the same script",
    "both": "both",
}


def measure(lab: Laboratory, records: measures.Records) -> dict:
    """{"errors": by name, "healthy": by name}."""
    return {
        "errors": {
            error.faulty.name: _of_error(lab, records, error)
            for error in programs.errors()
            if error.faulty.name in records.faulty
            and error.faulty.name in records.fixed
        },
        "healthy": {
            name: measures.alarms(lab.check_builtin(run))
            for name, run in sorted(records.healthy.items())
        },
    }


def _of_error(
    lab: Laboratory, records: measures.Records, error: programs.Error
) -> dict:
    name = error.faulty.name
    faulty, fixed = records.faulty[name], records.fixed[name]
    lab.infer([fixed], f"alone-{name}")
    builtin, own = lab.check_builtin(faulty), lab.check(faulty, f"alone-{name}")
    right = lab.check_builtin(fixed)
    row = {}
    for grade, keep in (("alerts", measures.alerts), ("advice", lambda found: found)):
        broken = measures.violations(keep(right))
        by_own, by_builtin = [keep(own)], [keep(builtin)]
        row[grade] = {
            "builtin": measures.detection(error, by_builtin, broken),
            "own": measures.detection(error, by_own, []),
            "both": measures.detection(error, by_builtin + by_own, broken),
        }
    found = [kind for kind in _COLUMNS if row["advice"][kind]["found"]]
    measures.say(f"{name}: {', '.join(found) or '-'}")
    return row


def text(results: dict) -> str:
    """As markdown."""
    errors, healthy = results["errors"], results["healthy"]
    lines = [
        "| errors found by | alerts | with advice |",
        "|---|---|---|",
    ]
    for kind, words in _COLUMNS.items():
        counts = [
            sum(row[grade][kind]["found"] for row in errors.values())
            for grade in ("alerts", "advice")
        ]
        cells = " | ".join(f"{count} of {len(errors)}" for count in counts)
        lines.append(f"| {words} | {cells} |")
    said = [
        sum(bool(row[key]) for row in healthy.values()) for key in ("alarms", "advice")
    ]
    lines.append("")
    lines.append(
        f"Of {len(healthy)} healthy programs {said[0]} get an alert of built-in rules, "
        f"{said[1]} advice."
    )
    by_advice = [
        name
        for name, row in errors.items()
        if row["advice"]["both"]["found"] and not row["alerts"]["both"]["found"]
    ]
    lines.append(
        "Found by advice alone: " + ", ".join(f"`{n}`" for n in by_advice) + "."
    )
    missed = [n for n, row in errors.items() if not row["advice"]["both"]["found"]]
    lines.append("Not found: " + ", ".join(f"`{name}`" for name in missed) + ".")
    return "\n".join(lines)
