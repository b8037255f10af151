"""What the built-in rules find alone, as a user runs them: what they need is recorded,
and no more. One row an error: when they find it and what is said of it first.
"""

from evaluation import incidents, measures, programs
from evaluation.laboratory import Laboratory

BEGIN, END = "<!-- built-in begin -->", "<!-- built-in end -->"


def measure(lab: Laboratory, records: measures.Records) -> dict:
    """{"errors": by name, "healthy": by name}."""
    errors = {}
    for error in programs.errors():
        name = error.faulty.name
        if name in records.faulty and name in records.fixed:
            errors[name] = _of_error(
                error,
                lab.check_builtin(records.faulty[name]),
                lab.check_builtin(records.fixed[name]),
            )
    healthy = {
        name: measures.alarms(lab.check_builtin(run))
        for name, run in sorted(records.healthy.items())
    }
    return {"errors": errors, "healthy": healthy}


def _of_error(error: programs.Error, faulty: dict, fixed: dict) -> dict:
    row = {"what": error.what, "fixed": measures.alarms(fixed)}
    for grade, keep in (("alert", measures.alerts), ("advice", lambda found: found)):
        broken = measures.violations(keep(fixed))
        row[grade] = measures.detection(error, [keep(faulty)], broken)
    row["incident"] = incidents.of_check(faulty, error.trigger_step)
    return row


def _errors(errors: dict) -> list:
    lines = [
        "| error | what is wrong | alert | with advice | what is said first | cause |",
        "|---|---|---|---|---|---|",
    ]
    marks = _marks(errors)
    for name, row in sorted(errors.items()):
        said = row["incident"]["headline"] if row["incident"] else ""
        delays = [measures.delay(row[grade]) for grade in ("alert", "advice")]
        cells = [name, row["what"], *delays, said, marks.get(name, "")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _marks(errors: dict) -> dict:
    return incidents.judged({name: row["incident"] for name, row in errors.items()})


def _said(rows: dict) -> list:
    """What programs without an error are told."""
    lines = []
    for grade, key in (("alert", "alarms"), ("advice", "advice")):
        for name, row in sorted(rows.items()):
            lines += [f"- {grade} on `{name}`: {text}" for text in row[key]]
    return lines


def text(results: dict, failed: dict) -> str:
    """As markdown."""
    errors, healthy = results["errors"], results["healthy"]
    fixed = {f"{name} --fixed": row["fixed"] for name, row in errors.items()}

    def share(kind: str, key: str) -> str:
        count = sum(row[kind][key] for row in errors.values())
        return f"{count} of {len(errors)}"

    def told(rows: dict, key: str) -> str:
        return f"{sum(bool(row[key]) for row in rows.values())} of {len(rows)}"

    late = sum(
        row["alert"]["delay"] is not None and not row["alert"]["found"]
        for row in errors.values()
    )
    lines = [
        "| | |",
        "|---|---|",
        f"| errors found by an alert within a step | {share('alert', 'found')} |",
        f"| by an alert later | {late} |",
        f"| within a step, advice included | {share('advice', 'found')} |",
        f"| errors of which something is said | {len(_marks(errors))} |",
        *incidents.counts(_marks(errors)),
        f"| fixed variants with an alert | {told(fixed, 'alarms')} |",
        f"| fixed variants with advice | {told(fixed, 'advice')} |",
        f"| healthy programs with an alert | {told(healthy, 'alarms')} |",
        f"| healthy programs with advice | {told(healthy, 'advice')} |",
        "",
        "What is said of fixed variants and of healthy programs:",
        "",
        *_said(fixed | healthy),
        "",
        *_errors(errors),
    ]
    lines += [f"\nNot recorded: {name}" for name in sorted(failed)]
    return "\n".join(lines)
