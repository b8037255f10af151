"""What is measured of a set of rules: errors found, alarms on healthy programs."""

import concurrent.futures
import dataclasses
import sys

from evaluation import incidents, programs
from evaluation.laboratory import Laboratory

# Healthy programs are checked by what the others teach, in so many parts.
PARTS = 5
# Whose alerts find an error. "advised": built-in rules, advice included;
# "own_advised" and "all_advised": the same of these.
KINDS = ("builtin", "advised", "others", "own", "own_advised", "all", "all_advised")
# TrainCheck's experiment: rules from one, four and six programs.
INPUTS = {
    1: ("gcn",),
    4: ("gcn", "mnist_cnn", "mlp_ddp", "amp_ranker"),
    6: ("gcn", "mnist_cnn", "mlp_ddp", "amp_ranker", "vae", "gat"),
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass
class Records:
    """Run ids by program."""

    healthy: dict
    faulty: dict
    fixed: dict
    failed: dict  # program -> why it could not be recorded


def record(lab: Laboratory, jobs: int, only: set | None) -> Records:
    """Records all programs, or those of these names, `jobs` at a time."""
    wanted = [("healthy", program) for program in programs.healthy()]
    for error in programs.errors():
        wanted += [("faulty", error.faulty), ("fixed", error.fixed)]
    wanted = [row for row in wanted if only is None or row[1].name in only]
    records = Records({}, {}, {}, {})
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        done = {pool.submit(lab.record, p): (kind, p) for kind, p in wanted}
        for number, future in enumerate(concurrent.futures.as_completed(done), 1):
            kind, program = done[future]
            try:
                getattr(records, kind)[program.name] = future.result()
            except RuntimeError as error:
                records.failed[f"{program.name} ({kind})"] = str(error)
            say(f"recorded {number} of {len(wanted)}: {program.name} ({kind})")
    return records


def violations(*checks: dict) -> list:
    """(first step, rule id, relation, text, last step) by step; unknown ones first."""
    rows = {
        (
            v["first_step"],
            v["invariant_id"],
            v["relation"],
            v["text"],
            v["last_step"],
        )
        for found in checks
        for v in found["violations"]
    }
    return sorted(rows, key=lambda row: (-1 if row[0] is None else row[0], row[1]))


def alerts(found: dict) -> dict:
    """The check without what is advice only."""
    rows = [v for v in found["violations"] if v["grade"] == "alert"]
    return {**found, "violations": rows}


def detection(error: programs.Error, faulty: list, fixed: list) -> dict:
    """Counts where the effect is: in the step of the trigger or later, by a rule
    that the fixed variant keeps; what is called between two steps (a load) is in the
    one before. What is broken before and still is then (a counter that will stop) is
    found in time. `faulty`: checks of one run by several sets.
    """
    broken = {row[1] for row in fixed}
    rows = [
        row
        for row in violations(*faulty)
        if row[1] not in broken and (row[4] is None or row[4] >= error.trigger_step - 1)
    ]
    steps = [row[0] for row in rows if row[0] is not None]
    delay = max(0, min(steps) - error.trigger_step) if steps else None
    return {
        "found": delay is not None and delay <= 1,
        "delay": delay,
        "violations": len(violations(*faulty)),
        "fixed": sorted({row[3] for row in fixed}),
        "by": [f"{row[2]}: {row[3]}" for row in rows[:3]],
        "decided": sum(check["coverage"]["decided"] for check in faulty),
    }


def delay(found: dict) -> str:
    """Of detection(): steps from the trigger to the first violation, in brackets if
    that is too late; "-": there is none.
    """
    if found["delay"] is None:
        return "-"
    return f"{found['delay']}" if found["found"] else f"({found['delay']})"


def _strangers(error: programs.Error, records: Records) -> list:
    """Healthy runs of programs with which the error shares no optimizer class."""
    own = error.faulty.optimizers()
    return [
        records.healthy[program.name]
        for program in programs.healthy()
        if program.name in records.healthy and not own & program.optimizers()
    ]


def errors(lab: Laboratory, records: Records) -> dict:
    """By error: how built-in rules find it, rules from others, these beside those
    from its fixed variant, and all together.
    """
    results, others = {}, {}
    for error in programs.errors():
        name = error.faulty.name
        if name not in records.faulty or name not in records.fixed:
            continue
        strangers = tuple(_strangers(error, records))
        if not strangers:
            continue
        if strangers not in others:
            others[strangers] = f"strangers-{len(others)}"
            lab.infer(list(strangers), others[strangers])
        results[name] = row = _of_error(lab, records, error, others[strangers])
        found = [kind for kind in KINDS if row[kind]["found"]]
        say(f"{name}: {', '.join(found) or '-'}")
    return results


def _of_error(
    lab: Laboratory, records: Records, error: programs.Error, others: str
) -> dict:
    """`others`: the set of what strangers teach."""
    faulty, fixed = (
        kind[error.faulty.name] for kind in (records.faulty, records.fixed)
    )
    own = f"own-{error.faulty.name}"
    lab.infer([fixed], own)
    advised = lab.check_builtin(faulty)
    learned = [lab.check(faulty, rules) for rules in (others, own)]
    builtin, by_others, by_own = map(alerts, (advised, *learned))
    right = [lab.check_builtin(fixed), lab.check(fixed, others)]
    broken_builtin, broken_others = (violations(alerts(check)) for check in right)
    advised_others = violations(right[1])
    together = lab.check(faulty, f"builtin,{others},{own}")
    return {
        "what": error.what,
        "incident": incidents.of_check(together, error.trigger_step),
        "trigger": error.trigger_step,
        "builtin": detection(error, [builtin], broken_builtin),
        "advised": detection(error, [advised], violations(right[0])),
        "others": detection(error, [by_others], broken_others),
        "own": detection(error, [by_others, by_own], broken_others),
        "own_advised": detection(error, learned, advised_others),
        "all": detection(
            error, [builtin, by_others, by_own], broken_builtin + broken_others
        ),
        "all_advised": detection(error, [advised, *learned], violations(*right)),
    }


def alarms(found: dict) -> dict:
    texts = {"alert": set(), "advice": set()}
    for violation in found["violations"]:
        texts[violation["grade"]].add(violation["text"])
    coverage = found["coverage"]
    return {
        "alarms": sorted(texts["alert"]),
        "advice": sorted(texts["advice"]),
        "decided": coverage["decided"],
        "total": coverage["total"],
    }


def healthy(lab: Laboratory, records: Records) -> dict:
    """By program: rules of the others, and built-in ones, that it is said to break."""
    names = sorted(records.healthy)
    results = {}
    for part in range(PARTS):
        held_out = names[part::PARTS]
        teachers = [records.healthy[n] for n in names if n not in held_out]
        if not teachers or not held_out:
            continue
        lab.infer(teachers, f"part-{part}")
        for name in held_out:
            run = records.healthy[name]
            results[name] = alarms(lab.check(run, f"part-{part}"))
            results[name]["builtin"] = builtin = alarms(lab.check_builtin(run))
            count = len(results[name]["alarms"] + builtin["alarms"])
            say(f"{name}: {count} alarms")
    return results


def by_inputs(lab: Laboratory, records: Records) -> dict:
    """TrainCheck's experiment: a few programs teach, all others are checked."""
    results = {}
    for count, teachers in INPUTS.items():
        if not records.healthy.keys() >= set(teachers):
            continue
        lab.infer([records.healthy[name] for name in teachers], f"inputs-{count}")
        rows = [
            alarms(lab.check(run, f"inputs-{count}"))
            for name, run in sorted(records.healthy.items())
            if name not in teachers
        ]
        violated = sum(len(row["alarms"]) for row in rows)
        results[str(count)] = {
            "rules": rows[0]["total"],
            "programs": len(rows),
            "violated": violated,
            "decided": sum(row["decided"] for row in rows),
            "judged": sum(row["total"] for row in rows),
        }
    return results
