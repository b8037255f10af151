"""The programs of tests/integration/rule_pairs.json on a device: those that break
built-in rules, and those that keep them."""

import collections
import concurrent.futures
import json
import pathlib
import sys

import harness

ON_DEVICE = pathlib.Path(__file__).resolve().parent / "on_device.py"
PAIRS = harness.SCRIPTS.parent / "rule_pairs.json"
# Scripts whose processes are none of a device's.
_OF_RANKS = ("ddp", "ranks", "exchange", "stalls", "by_hand")
AT_A_TIME = 14

Program = collections.namedtuple("Program", "script arguments")
# rules: {id: the check's row}, none if the program fails on a device.
Result = collections.namedtuple("Result", "done rules")


def programs(kind):
    """{Program: the rules that it breaks or keeps}; kind: "broken_by", "kept_by"."""
    found = {}
    for rule, pair in json.loads(PAIRS.read_text()).items():
        for program in pair.get(kind, ()):
            script, *arguments = program.split()
            if not any(word in script for word in _OF_RANKS):
                found.setdefault(Program(script, tuple(arguments)), set()).add(rule)
    return found


class Rules:
    """watched(run, command): runs it with built-in rules."""

    def __init__(self, watched, daemon, device):
        self._watched = watched
        self._daemon = daemon
        self._device = device

    def run(self, programs):
        """{Program: Result}."""
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as side_by_side:
            return dict(zip(programs, side_by_side.map(self._run, programs)))

    def _run(self, program):
        script, arguments = program
        run = "-".join((script, *(word.strip("-") for word in arguments)))[:100]
        command = [sys.executable, ON_DEVICE, self._device, harness.SCRIPTS / script]
        done = self._watched(run, [*command, *arguments])
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            errors = [line for line in done.stderr.splitlines() if "Error" in line]
            say(program, f"does not run: {(errors or [last])[-1]}")
            return Result(done, {})
        self._daemon.run_ended(run)
        check = self._daemon.ctl("check", "--run", run, "--set", "builtin")
        return Result(done, {row["invariant_id"]: row for row in check["verdicts"]})


def say(program, words):
    print(" ".join((program.script, *program.arguments)), words, file=sys.stderr)


def violated(result):
    return {i for i, row in result.rules.items() if row["verdict"] == "violated"}


def found_and_not(results, expected):
    """How many of the expected violations there are, and are not; says which."""
    found = missed = 0
    for program, result in results.items():
        for rule in sorted(expected[program]) if result.rules else ():
            if rule in violated(result):
                found += 1
                continue
            missed += 1
            row = result.rules.get(rule, {"verdict": "no rule", "reason": None})
            say(program, f"{rule}: {row['verdict']} {row['reason'] or ''}")
    return found, missed
