"""The mistakes of tests/integration/rule_pairs.json on a device: each by itself, and
done right."""

import concurrent.futures
import json
import pathlib
import sys

import harness

ON_DEVICE = pathlib.Path(__file__).resolve().parent / "on_device.py"
PAIRS = harness.SCRIPTS.parent / "rule_pairs.json"
# Scripts whose processes are none of a device's.
_OF_RANKS = ("ddp", "ranks", "exchange", "stalls", "by_hand")
AT_A_TIME = 8


def mistakes():
    """{(script, case): the rules that it breaks}."""
    found = {}
    for rule, pair in json.loads(PAIRS.read_text()).items():
        for program in pair.get("broken_by", ()):
            script, *case = program.split()
            if len(case) == 1 and not any(word in script for word in _OF_RANKS):
                found.setdefault((script, case[0]), set()).add(rule)
    return found


class Case:
    """One run of one case."""

    def __init__(self, watched, daemon, device, script, case, right):
        self.run = f"{script}-{case}" + ("-right" if right else "")
        program = [harness.SCRIPTS / script, *(["--right"] if right else []), case]
        self.done = watched(self.run, [sys.executable, ON_DEVICE, device, *program])
        self.rules = {}
        if self.done.returncode == 0:
            daemon.run_ended(self.run)
            check = daemon.ctl("check", "--run", self.run, "--set", "builtin")
            self.rules = {row["invariant_id"]: row for row in check["verdicts"]}

    def violated(self):
        return {i for i, row in self.rules.items() if row["verdict"] == "violated"}


def run_all(watched, daemon, device, chosen):
    """[(case, rules that it is to break, what was found, of the right one)]."""

    def one(item):
        (script, case), rules = item
        about = watched, daemon, device, script, case
        both = [Case(*about, right) for right in (False, True)]
        return (f"{script} {case}", rules, *both)

    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as side_by_side:
        return list(side_by_side.map(one, chosen.items()))


def summary(results):
    """(found, missed, do not run on a device, alarms of right ones), with words."""
    found, missed, idle, alarms = [], [], [], []
    for name, rules, wrong, right in results:
        if wrong.done.returncode != 0 or right.done.returncode != 0:
            lines = (wrong.done.stderr + right.done.stderr).strip().splitlines()
            idle.append(
                f"{name}: {[l for l in lines if 'Error' in l][-1:] or lines[-1:]}"
            )
            continue
        for rule in sorted(rules):
            row = wrong.rules.get(rule, {"verdict": "absent", "reason": None})
            words = f"{name} {rule}: {row['verdict']} {row['reason'] or ''}"
            (found if row["verdict"] == "violated" else missed).append(words)
        alarms += [f"{name}: {rule}" for rule in sorted(right.violated())]
    return found, missed, idle, alarms
