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


def _judged(name: str, row: dict, judged: dict) -> str:
    return judged.get(name, {}).get(row["rule"], "not judged")


def text(rows: dict) -> str:
    """The tables. rows: by error, what of_check says of it."""
    judged = json.loads(JUDGED.read_text())
    found = {name: row for name, row in rows.items() if row is not None}
    marks = [_judged(name, row, judged) for name, row in found.items()]
    one = sum(row["incidents"] == 1 for row in found.values())
    lines = [
        "| of the errors of which anything is found | |",
        "|---|---|",
        f"| errors | {len(found)} |",
        f"| the lead names the cause exactly | {marks.count('exact')} |",
        f"| the lead is close to it | {marks.count('close')} |",
        f"| the lead misses it | {marks.count('missed')} |",
        f"| not judged | {marks.count('not judged')} |",
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
            f"| {name} | {row['headline']} | {_judged(name, row, judged)} | "
            f"{row['incidents']} | {row['violations']} | {delay} |"
        )
    return "\n".join(lines)
