"""Runs faults and prints a table: see run.sh."""

import argparse
import concurrent.futures
import pathlib
import shutil
import sys
import tempfile
import time

import report
from faults import KINDS
from suite import Suite


def parse():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    cli.add_argument("--repeats", type=int, default=10)
    cli.add_argument("--only", default="", help="names, separated by commas")
    cli.add_argument("--slice", default="1/1", help="I/N: the Ith of N shares")
    cli.add_argument("--ranks", default="2,4", help="taken in turn by the repeats")
    cli.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    cli.add_argument("--report", type=pathlib.Path, help="Markdown file to fill in")
    cli.add_argument("--keep", type=pathlib.Path, help="folder for logs of failures")
    cli.add_argument("--list", action="store_true")
    options = cli.parse_args()
    names = options.only.split(",") if options.only else list(KINDS)
    if unknown := [name for name in names if name not in KINDS]:
        cli.error(f"no such fault: {', '.join(unknown)}; --list shows all")
    share, shares = map(int, options.slice.split("/"))
    return options, names[share - 1 :: shares]


def main() -> int:
    options, names = parse()
    if options.list:
        for kind in KINDS.values():
            print(f"{kind.name:26} {kind.what}")
        return 0
    ranks = [int(number) for number in options.ranks.split(",")]
    print(f"seed {options.seed}, {len(names)} faults x {options.repeats}", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fault-"))
    results = report.Results(names)
    try:
        suite = Suite(folder, options.seed, options.keep)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            futures = {}
            for repeat in range(options.repeats):
                for name in names:
                    world = ranks[repeat % len(ranks)]
                    future = pool.submit(suite.run, name, repeat, world)
                    futures[future] = (name, repeat, world)
            for future in concurrent.futures.as_completed(futures):
                results.add(*futures[future], *future.result())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(results.table())
    if options.report:
        report.fill_in(options.report, "faults", results.markdown(options))
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
