"""Runs one unittest module and reports its cases to $XML_OUTPUT_FILE.

    xml_runner.py path/to/foo_test.py [Class.test_method ...]
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
    result = unittest.TextTestRunner(resultclass=CaseResult, verbosity=2).run(suite)
    if "XML_OUTPUT_FILE" in os.environ:
        write_report(os.environ["XML_OUTPUT_FILE"], path.stem, result.rows)
    if not result.rows:
        print(f"{path} has no test", file=sys.stderr)
        return 1
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
