"""Ranks that wait for each other are named while they hang, who is late is named after
a minute, and a rank that works is waited for.
"""

import json
import pathlib
import unittest

import harness

SCRIPT = harness.SCRIPTS / "stalls.py"
PAIRS = json.loads(pathlib.Path("tests/integration/rule_pairs.json").read_text())
# First step of what is found, from 0.
ODD_STEP = 25


def rule_of(program: str) -> str:
    """The rule that rule_pairs.json says this program breaks."""
    [rule] = [rule for rule, pair in PAIRS.items() if program in pair["broken_by"]]
    return rule


DEADLOCK = rule_of("stalls.py order")
LATE = rule_of("stalls.py late")


class Stalls(harness.SharedDaemonCase):
    """Those that take a minute run beside all other cases."""

    SLOW = ("late", "busy")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        starter = cls()
        cls.addClassCleanup(starter.doCleanups)
        cls.slow = {case: starter.start(case, case) for case in cls.SLOW}

    def start(self, run: str, *arguments: str):
        return self.monitored_start(SCRIPT, *arguments, options=("--run", run))

    def violations(self, run: str) -> dict:
        """By rule; none of a run that has not begun."""
        rows = self.daemon.ctl("violations", "list")
        return {row["invariant_id"]: row for row in rows if row["run"] == run}

    def hangs(self, run: str, *arguments: str) -> dict:
        """The violation of a training that still hangs."""
        training = self.start(run, *arguments)

        def found():
            self.assertIsNone(training.poll(), "the training has ended")
            return self.violations(run).get(DEADLOCK)

        violation = harness.wait_until(found, "the ranks that wait")
        self.assertEqual(violation["status"], "open")
        self.assertEqual(violation["grade"], "alert")
        self.assertEqual(violation["first_step"], ODD_STEP)
        return violation

    def test_ranks_that_take_collectives_in_another_order(self):
        violation = self.hangs("order", "order")
        self.assertEqual(violation["ranks"], [0, 1])
        self.assertIn("rank 0 is in all_reduce at stalls.py:", violation["seen"])
        self.assertIn("rank 1 is in broadcast at stalls.py:", violation["seen"])
        # What explains it is told before anybody has waited.
        shown = self.daemon.ctl("violations", "show", violation["id"])
        lead = self.daemon.ctl("violations", "show", shown["incident"])
        self.assertEqual(lead["relation"], "CollectiveContract")

    def test_a_rank_of_four_that_leaves_one_out(self):
        violation = self.hangs("missing", "missing", "--ranks", "4")
        self.assertEqual(violation["ranks"], [0, 1, 2, 3])
        self.assertIn("rank 3 is in broadcast", violation["seen"])
        self.assertIn("ranks 0, 1, 2 are in all_reduce", violation["seen"])

    def test_another_shape_is_named_before_the_transport_fails(self):
        training = self.start("shape", "shape")
        training.wait(harness.PATIENCE_S)
        self.daemon.run_ended("shape")
        found = [
            row
            for row in self.violations("shape").values()
            if row["relation"] == "CollectiveContract"
        ]
        self.assertTrue(any("[3]" in row["seen"] for row in found), found)

    def test_who_is_late_is_named_and_who_works_is_waited_for(self):
        for training in self.slow.values():
            self.assertEqual(training.wait(300), 0)
        self.daemon.run_ended("late")
        late = self.violations("late")[LATE]
        self.assertEqual((late["grade"], late["status"]), ("advice", "ended"))
        self.assertEqual(late["ranks"], [0, 1])
        self.assertNotIn(DEADLOCK, self.violations("late"))
        self.daemon.run_ended("busy")
        self.assertEqual(self.violations("busy"), {})
        checked = self.daemon.ctl("check", "--run", "busy")
        verdicts = {row["invariant_id"]: row["verdict"] for row in checked["verdicts"]}
        self.assertEqual(verdicts[DEADLOCK], "pass")
        self.assertEqual(verdicts[LATE], "pass")
        for run in self.SLOW:
            stored = self.daemon.ctl("check", "--run", run)["violations"]
            self.assertEqual(
                {row["id"] for row in stored},
                {row["id"] for row in self.violations(run).values()},
            )


if __name__ == "__main__":
    unittest.main()
