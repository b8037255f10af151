"""Runs one unittest module and reports its cases to $XML_OUTPUT_FILE.

    xml_runner.py path/to/foo_test.py [Class.test_method ...]

Of a target with a shard_count it runs the cases of one shard.
"""

import importlib.util
import os
import pathlib
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree


class CaseResult(unittest.TextTestResult):
    """Keeps (case, seconds, kind, text) of every case."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rows = []
        self._started = 0.0

    def startTest(self, test):
        super().startTest(test)
        self._started = time.monotonic()

    def _keep(self, test, kind, text=""):
        seconds = time.monotonic() - self._started
        self.rows.append((test.id(), seconds, kind, text))

    def addSuccess(self, test):
        super().addSuccess(test)
        self._keep(test, None)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._keep(test, "failure", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        self._keep(test, "error", self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._keep(subtest, "failure", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._keep(test, "skipped", reason)


def cases_of(suite):
    """The single cases of a suite, in order."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases_of(test)
        else:
            yield test


def units_of(suite) -> list:
    """Lists of cases that belong together: a class that sets something up for all
    of its cases, or one case."""
    units = {}
    for case in cases_of(suite):
        kind = type(case)
        shared = kind.setUpClass.__func__ is not unittest.TestCase.setUpClass.__func__
        units.setdefault(kind if shared else case, []).append(case)
    return list(units.values())


def one_shard(suite):
    """What of the suite Bazel wants from this process."""
    total = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    index = int(os.environ.get("TEST_SHARD_INDEX", "0"))
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        pathlib.Path(os.environ["TEST_SHARD_STATUS_FILE"]).touch()
    units = units_of(suite)
    if len(units) < total:
        raise SystemExit(f"{len(units)} units for {total} shards: lower shard_count")
    return unittest.TestSuite(case for unit in units[index::total] for case in unit)


def write_report(path: str, name: str, rows: list) -> None:
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(rows)))
    for case, seconds, kind, text in rows:
        element = ElementTree.SubElement(
            suite, "testcase", name=case, classname=name, time=f"{seconds:.3f}"
        )
        if kind is not None:
            ElementTree.SubElement(element, kind).text = text
    ElementTree.ElementTree(suite).write(path)


def main() -> int:
    path = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(path.parent))  # for what stands beside the test
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    loader = unittest.defaultTestLoader
    suite = (
        loader.loadTestsFromNames(sys.argv[2:], module)
        if sys.argv[2:]
        else loader.loadTestsFromModule(module)
    )
    suite = one_shard(suite)
    result = unittest.TextTestRunner(resultclass=CaseResult, verbosity=2).run(suite)
    if "XML_OUTPUT_FILE" in os.environ:
        write_report(os.environ["XML_OUTPUT_FILE"], path.stem, result.rows)
    if not result.rows:
        print(f"{path} has no test", file=sys.stderr)
        return 1
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
