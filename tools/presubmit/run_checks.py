"""Runs the checks of this folder, all at a time; see tools/presubmit.sh."""

import argparse
import concurrent.futures
import pathlib
import sys
import time

import build_loads
import formatting
import layering
import links
import module_names
import namespaces
import proto_comments
import sizes
import strict_types
import todos
import words
from source_tree import SourceTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKS = {
    "build_loads": build_loads.check,
    "formatting": formatting.check,
    "layering": layering.check,
    "links": links.check,
    "module_names": module_names.check,
    "namespaces": namespaces.check,
    "proto_comments": proto_comments.check,
    "sizes": sizes.check,
    "strict_types": strict_types.check,
    "todos": todos.check,
    "words": words.check,
}
# A check that takes longer is named, so that the whole stays quick.
SLOW_S = 10


def run_check(name: str) -> tuple:
    """Returns (problems, seconds) of one check over this checkout."""
    start = time.monotonic()
    problems = sorted(set(CHECKS[name](SourceTree(ROOT))))
    return problems, time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    names = parser.parse_args().checks or list(CHECKS)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        parser.error(f"no check {unknown[0]}; there are {', '.join(CHECKS)}")

    count = 0
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for name, (problems, seconds) in zip(names, pool.map(run_check, names)):
            count += len(problems)
            for problem in problems:
                print(problem)
            if seconds > SLOW_S:
                print(f"presubmit: {name} took {seconds:.0f} s", file=sys.stderr)
    print(
        f"presubmit: {len(names)} checks, {count} problems",
        file=sys.stderr if count else sys.stdout,
    )
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
