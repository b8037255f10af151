"""Counts the test cases that the test command ran and closes with one line.

Reads the test.xml files below the folder given. A target whose report has no
cases (a shell test, a crash before the first case) counts as one case. Exits
with 1 if anything failed.
"""

import argparse
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_report(path: pathlib.Path) -> tuple[int, int, int]:
    """Returns (passed, failed, skipped) of one test.xml."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    failed = sum(
        1
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    )
    skipped = sum(
        1
        for case in cases
        if case.find("skipped") is not None
        or case.get("result") == "skipped"
        or case.get("status") == "notrun"
    )
    return len(cases) - failed - skipped, failed, skipped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presubmit", type=int, required=True)
    parser.add_argument("--bazel", type=int, required=True)
    parser.add_argument("logs", type=pathlib.Path)
    options = parser.parse_args()

    passed, failed, skipped = 0, 0, 0
    for path in sorted(options.logs.resolve().rglob("test.xml")):
        counts = count_report(path)
        passed += counts[0]
        failed += counts[1]
        skipped += counts[2]
    passed += options.presubmit == 0
    failed += options.presubmit != 0
    if options.bazel != 0 and failed == 0:
        print("a target did not build or a test did not report", file=sys.stderr)
        failed += 1
    line = f"{passed} passed, {failed} failed"
    print(line + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
