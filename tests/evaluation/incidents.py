"""What a person is shown of an error first: the incident and the violation that
leads it, by all rules together, and whether that names the cause.

Somebody has to read the lead beside the cause that the catalogue names; what they
judged is kept in judged_leads.json, by error and rule. A lead that nobody has read
counts as not judged.
"""

import json
import pathlib

JUDGED = pathlib.Path(__file__).with_name("judged_leads.json")
BEGIN, END = "<!-- incidents begin -->", "<!-- incidents end -->"


def of_check(found: dict, trigger: int) -> dict | None:
    """The first incident of a check, alerts before advice; None: there is none."""
    leads = [v for v in found["violations"] if v["incident"] == v["id"]]
    if not leads:
        return None

    def key(lead: dict) -> tuple:
        step = -1 if lead["first_step"] is None else lead["first_step"]
        return (lead["incident_grade"] != "alert", step, lead["id"])

    first = min(leads, key=key)
    begun = [
        v["first_step"]
        for v in found["violations"]
        if v["incident"] == first["id"] and v["first_step"] is not None
    ]
    return {
        "rule": first["invariant_id"],
        "headline": first["headline"],
        "incidents": len(leads),
        "violations": len(found["violations"]),
        "delay": max(0, min(begun) - trigger) if begun else None,
    }


def judged(rows: dict) -> dict:
    """By error that leads to an incident: does that name the cause? rows: by error, what
    of_check says of it."""
    known = json.loads(JUDGED.read_text())
    return {
        name: known.get(name, {}).get(row["rule"], "not judged")
        for name, row in rows.items()
        if row is not None
    }


def counts(marks: dict) -> list:
    """Rows of a table. marks: judged()."""
    said = list(marks.values())
    lines = [
        f"| the lead names the cause exactly | {said.count('exact')} |",
        f"| the lead is close to it | {said.count('close')} |",
        f"| the lead misses it | {said.count('missed')} |",
    ]
    left = said.count("not judged")
    return lines + ([f"| not judged | {left} |"] if left else [])


def text(rows: dict) -> str:
    """The tables. rows: by error, what of_check says of it."""
    marks = judged(rows)
    found = {name: row for name, row in rows.items() if row is not None}
    one = sum(row["incidents"] == 1 for row in found.values())
    lines = [
        "| of the errors of which anything is found | |",
        "|---|---|",
        f"| errors | {len(found)} |",
        *counts(marks),
        f"| one incident | {one} |",
        f"| incidents, all together | {sum(r['incidents'] for r in found.values())} |",
        f"| violations, all together | {sum(r['violations'] for r in found.values())} |",
        "",
        "| error | the lead | cause | incidents | violations | steps |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in sorted(found.items()):
        delay = "?" if row["delay"] is None else row["delay"]
        lines.append(
            f"| {name} | {row['headline']} | {marks[name]} | "
            f"{row['incidents']} | {row['violations']} | {delay} |"
        )
    return "\n".join(lines)
