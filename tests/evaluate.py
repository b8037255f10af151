"""What rules find, and what they say of healthy programs.

    tests/evaluate.sh --json evaluation.json --write docs/evaluation.md

Records each program of tests/pipelines and tests/errors once, and checks it
against sets of rules from the store. Stopped and started again it goes on; a
program that changed, and all of them where the agent did, are recorded again.

    errors    each by rules of programs that share no optimizer class with it
              ("others"), and by these beside those of its fixed variant ("own").
              Found: within one step of the trigger, by a rule that the fixed
              variant keeps
    healthy   each program by what four fifths of the others teach
    inputs    rules from 1, 4 and 6 programs, on all others

With --sample 100, of so many errors and healthy programs that are drawn.
With --built-in, by the built-in rules alone, for which less is recorded: under an hour.
With --alone, errors by built-in rules and by those of the fixed variant only, and
healthy programs by built-in rules: a few minutes once everything is recorded.
"""

import argparse
import json
import os
import pathlib

from evaluation import alone, built_in, incidents, measures, programs, report
from evaluation.laboratory import Laboratory


def _folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base, "traincheckd/evaluation")


def _names(options: argparse.Namespace) -> set | None:
    """Of the programs that are asked for; None: all."""
    if options.sample:
        return programs.drawn(options.sample, options.seed)
    return set(options.only.split(",")) if options.only else None


def _keep(results: dict, file: pathlib.Path | None) -> None:
    if file is not None:
        file.write_text(json.dumps(results, indent=1) + "\n")


def _report(options: argparse.Namespace, results: dict) -> None:
    if options.sample:
        text = report.sample_text(results)
        if options.write:
            report.write(options.write, *report.SAMPLE, text)
        print(text)
        return
    if options.keep_first_contact:
        report.keep_first_contact(results)
    text = report.text(results)
    if options.write:
        report.write(options.write, report.BEGIN, report.END, text)
        rows = {name: row["incident"] for name, row in results["errors"].items()}
        leads = incidents.text(rows)
        report.write(options.write, incidents.BEGIN, incidents.END, leads)
    print(text)


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--folder", type=pathlib.Path, default=_folder())
    cli.add_argument("--jobs", type=int, default=os.cpu_count())
    some = cli.add_mutually_exclusive_group()
    some.add_argument("--only", help="names of programs, with commas between")
    some.add_argument("--sample", type=int, help="so many errors and healthy programs")
    cli.add_argument("--seed", type=int, default=1, help="of the draw of --sample")
    cli.add_argument("--json", type=pathlib.Path, help="write all results there")
    cli.add_argument("--write", type=pathlib.Path, help="the tables, into a document")
    cli.add_argument(
        "--keep-first-contact",
        action="store_true",
        help="programs that are new: these are their numbers at first contact",
    )
    cli.add_argument(
        "--alone", action="store_true", help="nothing that others teach; only printed"
    )
    cli.add_argument(
        "--built-in", action="store_true", help="by the built-in rules alone"
    )
    options = cli.parse_args()
    if options.sample and options.built_in and options.write:
        cli.error("--write with --built-in has all programs, not a sample")
    lab = Laboratory(options.folder, full=not options.built_in)
    try:
        records = measures.record(lab, options.jobs, _names(options))
        if options.built_in:
            results = built_in.measure(lab, records)
            _keep(results, options.json)
            table = built_in.text(results, records.failed)
            if options.write:
                report.write(options.write, built_in.BEGIN, built_in.END, table)
            print(table)
            return
        if options.alone:
            print(alone.text(alone.measure(lab, records)))
            return
        results = {
            "failed": records.failed,
            "errors": measures.errors(lab, records),
            "healthy": measures.healthy(lab, records),
            "inputs": measures.by_inputs(lab, records),
        }
    finally:
        lab.close()
    _keep(results, options.json)
    _report(options, results)


if __name__ == "__main__":
    main()
