"""Results as the tables of docs/evaluation.md."""


def _step(detection: dict) -> str:
    if detection["found"]:
        return f"+{detection['delay']}"
    return "-" if detection["delay"] is None else f"late, +{detection['delay']}"


def _errors(results: dict) -> list:
    lines = [
        "| error | what is wrong | by others | by its own too | fixed variant |",
        "|---|---|---|---|---|",
    ]
    for name, row in sorted(results.items()):
        fixed = len(row["others"]["fixed"])
        lines.append(
            f"| {name} | {row['what']} | {_step(row['others'])} | "
            f"{_step(row['own'])} | {fixed or 'silent'} |"
        )
    return lines


def _share(results: dict, kind: str) -> str:
    found = sum(row[kind]["found"] for row in results.values())
    return f"{found} of {len(results)}"


def _healthy(results: dict) -> list:
    lines = ["| program | rules decided | alarms |", "|---|---|---|"]
    for name, row in sorted(results.items()):
        lines.append(f"| {name} | {row['decided']} | {len(row['alarms'])} |")
    return lines


def _inputs(results: dict) -> list:
    lines = [
        "| inputs | rules | violated / decided | violated / all |",
        "|---|---|---|---|",
    ]
    for count, row in sorted(results.items()):
        of_decided = 100 * row["violated"] / max(1, row["decided"])
        of_all = 100 * row["violated"] / max(1, row["judged"])
        lines.append(
            f"| {count} | {row['rules']} | {row['violated']} / {row['decided']} = "
            f"{of_decided:.1f}% | {of_all:.2f}% |"
        )
    return lines


def text(results: dict) -> str:
    loud = sum(bool(row["alarms"]) for row in results["healthy"].values())
    lines = [
        f"Errors found by rules of others: {_share(results['errors'], 'others')}; "
        f"with a healthy run of the same script: {_share(results['errors'], 'own')}.",
        f"Healthy programs with an alarm: {loud} of {len(results['healthy'])}.",
        "",
        *_errors(results["errors"]),
        "",
        *_healthy(results["healthy"]),
        "",
        *_inputs(results["inputs"]),
    ]
    for name, why in results["failed"].items():
        lines.append(f"\nnot recorded: {name}: {why}")
    return "\n".join(lines)
