"""The counts of the test command, from the events of a Bazel run."""

import collections
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import count_tests


class CountTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.events = [json.dumps({"id": {"started": {}}, "started": {}})]

    def add(self, label, cases="", status="PASSED", shard=1, seconds=1.0, **more):
        outputs = []
        if cases is not None:
            path = self.folder / f"{len(self.events)} test.xml"
            path.write_text(f"<testsuite>{cases}</testsuite>")
            outputs.append({"name": "test.xml", "uri": path.as_uri()})
        where = {"label": label, "run": 1, "shard": shard, "attempt": 1}
        found = {"testActionOutput": outputs, "status": status, **more}
        found["testAttemptDurationMillis"] = str(int(seconds * 1000))
        self.events.append(
            json.dumps({"id": {"testResult": where}, "testResult": found})
        )

    def counts(self) -> tuple:
        """(passed, failed, reasons of those that were skipped)"""
        reasons = collections.Counter()
        results = count_tests.results_of(self.events)
        rows = [count_tests.count(result, reasons) for result in results]
        return sum(r[0] for r in rows), sum(r[1] for r in rows), dict(reasons)

    def test_cases_of_targets_and_shards(self):
        self.add("//a", "<testcase/><testcase><failure/></testcase>", "FAILED")
        self.add("//b", "<testcase/>", shard=1)
        self.add("//b", "<testcase/><testcase><error/></testcase>", "FAILED", shard=2)
        self.assertEqual(self.counts(), (3, 2, {}))

    def test_skipped_cases_have_reasons(self):
        skips = '<testcase><skipped message="file:7&#10;no torch"/></testcase>'
        skips += "<testcase><skipped>no torch</skipped></testcase>"
        skips += '<testcase status="notrun"/>'
        self.add("//a", skips)
        expected = {"no torch": 2, "without a reason": 1}
        self.assertEqual(self.counts(), (0, 0, expected))

    def test_a_target_that_ended_without_a_report_has_failed(self):
        self.add("//a", None, "TIMEOUT")
        self.add("//b", "<testcase/>", "FAILED")
        self.assertEqual(self.counts(), (1, 2, {}))

    def test_the_last_attempt_counts(self):
        self.add("//a", "<testcase><failure/></testcase>", "FAILED")
        self.add("//a", "<testcase/>")
        self.assertEqual(self.counts(), (1, 0, {}))

    def test_slowest_targets(self):
        self.add("//quick", seconds=1)
        self.add("//slow", seconds=40, shard=1)
        self.add("//slow", seconds=30.5, shard=2)
        self.add("//kept", seconds=50, cachedLocally=True)
        lines = count_tests.slowest(count_tests.results_of(self.events), 2)
        self.assertEqual(
            lines,
            [
                "slowest of 3 targets, which take 122 s together:",
                "   70.5 s  //slow, 2 shards",
                "   50.0 s  //kept, not run again",
            ],
        )


if __name__ == "__main__":
    unittest.main()
