"""Counts the test cases that a Bazel run reported and closes with one line.

    tools/build.sh test --build_event_json_file=FILE //...
    python3 tools/count_tests.py --slowest 10 FILE

Reads the events of that run and the test.xml files that they name. A target whose
report has no cases (a shell test, a crash before the first case) counts as one
case. Exits with 1 if anything failed.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Result:
    """One test target, or one shard of it."""

    label: str
    passed: bool
    seconds: float
    cached: bool
    report: pathlib.Path | None


def results_of(events) -> list[Result]:
    """Those of the lines of an event file; of repeated attempts the last."""
    results = {}
    for line in events:
        event = json.loads(line)
        if "testResult" not in event or "testResult" not in event["id"]:
            continue
        where, found = event["id"]["testResult"], event["testResult"]
        outputs = {o["name"]: o["uri"] for o in found.get("testActionOutput", [])}
        report = None
        if "test.xml" in outputs:
            path = urllib.parse.urlparse(outputs["test.xml"]).path
            report = pathlib.Path(urllib.parse.unquote(path))
        key = (where["label"], where.get("run", 1), where.get("shard", 1))
        results[key] = Result(
            where["label"],
            found.get("status") == "PASSED",
            int(found.get("testAttemptDurationMillis", 0)) / 1000,
            bool(found.get("cachedLocally"))
            or bool(found.get("executionInfo", {}).get("cachedRemotely")),
            report,
        )
    return list(results.values())


def reason_of(skipped) -> str:
    text = skipped.get("message") or skipped.text or ""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "without a reason"


def count_report(path: pathlib.Path, reasons: collections.Counter) -> tuple:
    """Returns (passed, failed) of one test.xml; counts those skipped by reason."""
    passed = failed = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            reasons[reason_of(case.find("skipped"))] += 1
        elif case.get("result") == "skipped" or case.get("status") == "notrun":
            reasons["without a reason"] += 1
        else:
            passed += 1
    return passed, failed


def count(result: Result, reasons: collections.Counter) -> tuple:
    """(passed, failed) of one target or shard."""
    passed = failed = 0
    if result.report and result.report.exists():
        passed, failed = count_report(result.report, reasons)
    if not result.passed and failed == 0:
        failed = 1
    return passed, failed


def slowest(results: list[Result], count: int) -> list[str]:
    """Lines about the targets that keep the machine longest, shards together."""
    targets = collections.defaultdict(list)
    for result in results:
        targets[result.label].append(result)
    rows = sorted(targets.items(), key=lambda row: -sum(r.seconds for r in row[1]))
    total = sum(result.seconds for result in results)
    lines = [f"slowest of {len(targets)} targets, which take {total:.0f} s together:"]
    for label, parts in rows[:count]:
        seconds = sum(part.seconds for part in parts)
        shards = f", {len(parts)} shards" if len(parts) > 1 else ""
        cached = ", not run again" if all(part.cached for part in parts) else ""
        lines.append(f"{seconds:7.1f} s  {label}{shards}{cached}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presubmit", type=int, help="its exit code")
    parser.add_argument("--bazel", type=int, default=0, help="its exit code")
    parser.add_argument("--slowest", type=int, default=0, help="targets to print")
    parser.add_argument("events", type=pathlib.Path)
    options = parser.parse_args()

    with open(options.events) as lines:
        results = results_of(lines)
    reasons = collections.Counter()
    counts = [count(result, reasons) for result in results]
    passed, failed = (sum(column) for column in zip(*counts, (0, 0)))
    if options.presubmit is not None:
        passed += options.presubmit == 0
        failed += options.presubmit != 0
    if options.bazel != 0 and not any(row[1] for row in counts):
        print("a target did not build or a test did not report", file=sys.stderr)
        failed += 1
    if options.slowest:
        print("\n".join(slowest(results, options.slowest)))
    for reason, number in sorted(reasons.items()):
        print(f"skipped {number}: {reason}")
    line = f"{passed} passed, {failed} failed"
    print(line + (f", {reasons.total()} skipped" if reasons else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
