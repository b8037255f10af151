"""The budget's policy, on made-up times."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import core_for_testing

core_for_testing.hooks_package()
from _traincheck import budget as budgets
from _traincheck.budget import Budget, LADDER, TURNS
from _traincheck.plan import Plan, PlanError


class Program:
    """Steps of `step` units, on which the agent spends `full` or `part`."""

    def __init__(self, budget, step=1000.0, full=0.0, part=0.0, rotating=0.9):
        self.budget, self.step, self.full, self.part = budget, step, full, part
        self.rotating = rotating  # share of `full` that is large tensors'
        self.plan = Plan(warm_up=32)
        self.number = 0
        self.changes = []

    def run(self, steps):
        """The agent's share over these steps."""
        own = wall = 0.0
        for _ in range(steps):
            full = self.plan.samples(self.number, self.budget.every)
            cost = self.cost(full)
            self.number += 1
            self.budget.add(cost, cost + self.step, full)
            own, wall = own + cost, wall + self.step
            if self.number >= self.plan.warm_up and self.budget.decide():
                self.changes.append((self.number, self.budget.every))
        return 100 * own / wall

    def cost(self, full):
        if not full:
            return self.part
        turns = self.budget.turns if self.number >= self.plan.warm_up else 1
        return self.full * (1 - self.rotating + self.rotating / turns)


class PolicyTest(unittest.TestCase):
    def test_within_the_budget_nothing_changes(self):
        program = Program(Budget(2), full=15, part=1)
        program.run(2000)
        self.assertEqual(program.changes, [])

    def test_warm_up_is_in_full(self):
        program = Program(Budget(2), full=100)
        self.assertAlmostEqual(program.run(32), 10)

    def test_a_dear_step_is_taken_rarely(self):
        program = Program(Budget(2), full=100, part=2)
        program.run(64)
        self.assertEqual(program.budget.every, 8)
        self.assertEqual(program.budget.turns, 1)
        self.assertLess(program.run(4096), 2)

    def test_several_times_the_step(self):
        for times in (2, 5, 20):
            program = Program(Budget(2), full=times * 1000, part=5)
            program.run(4096)
            share = program.run(4096 * 4)
            self.assertLess(share, 2.2, times)
            self.assertGreater(share, 0.3, times)
            self.assertGreater(program.budget.turns, 1, times)
            self.assertFalse(program.budget.exhausted)

    def test_turns_that_do_not_help_are_given_up(self):
        program = Program(Budget(2), full=3000, part=1, rotating=0.0)
        program.run(20000)
        self.assertEqual(program.budget.turns, 1)
        self.assertEqual(program.budget.every, 256)

    def test_where_the_skeleton_alone_is_too_dear(self):
        program = Program(Budget(2), full=300, part=40)
        program.run(5000)
        self.assertEqual(program.budget.every, LADDER[-1])
        self.assertTrue(program.budget.exhausted)

    def test_it_goes_back_when_there_is_room_and_does_not_swing(self):
        program = Program(Budget(2), full=300, part=1)
        program.run(1000)
        self.assertEqual(program.budget.every, 16)
        program.full = 100
        program.run(4000)
        self.assertEqual(program.budget.every, 8)
        # At the edge between two rungs, with noise: it stays.
        program.changes.clear()
        for percent in range(200):
            program.full = 80 * (1.1 if percent % 2 else 0.9)
            program.run(40)
        self.assertLessEqual(len(program.changes), 2)

    def test_a_pause_is_no_long_step(self):
        program = Program(Budget(2), full=100, part=1)
        program.run(40)
        for _ in range(50):
            program.step = 50_000  # an evaluation
            program.run(1)
            program.step = 1000
            program.run(30)
        self.assertEqual(program.budget.every, 8)

    def test_a_clock_that_went_back_says_nothing(self):
        budget = Budget(2)
        for _ in range(100):
            budget.add(10, 5, True)
            budget.add(-1, 5, True)
        self.assertFalse(budget.decide())

    def test_ranks_with_different_cycles_share_the_larger_ones_steps(self):
        plan = Plan(warm_up=0)
        for a, b in zip(LADDER, LADDER[1:]):
            self.assertTrue(plan.samples(b * 7, a) and plan.samples(b * 7, b))
            self.assertTrue(plan.samples(0, b))
            self.assertFalse(plan.samples(b * 7 + 1, b))

    def test_each_tensors_turn_comes_and_fewer_turns_are_among_more(self):
        # As agent/capture/capture_mode.h has it.
        def has_turn(name_hash, step, turns):
            return (name_hash + step) % turns == 0

        for every in LADDER:
            for less, more in zip(TURNS, TURNS[1:]):
                for name_hash in (0, 1, 12345, 2**32 - 1):
                    steps = [every * n for n in range(more)]
                    mine = [s for s in steps if has_turn(name_hash, s, more)]
                    self.assertEqual(len(mine), 1)
                    self.assertTrue(has_turn(name_hash, mine[0], less))


class VariableTest(unittest.TestCase):
    def test_values(self):
        self.assertEqual(budgets.percent_of("2.5"), 2.5)
        self.assertIsNone(budgets.percent_of("0"))
        self.assertIsNone(budgets.percent_of("off"))
        for text in ("two", "-1", "nan", "101"):
            with self.assertRaisesRegex(PlanError, "TRAINCHECK_BUDGET"):
                budgets.percent_of(text)

    def test_who_has_one(self):
        os.environ.pop("TRAINCHECK_BUDGET", None)
        self.assertEqual(
            budgets.from_settings(core_for_testing.RecordingCore(), False).percent, 2.0
        )
        self.assertIsNone(budgets.from_settings(core_for_testing.RecordingCore(), True))
        os.environ["TRAINCHECK_BUDGET"] = "5"
        self.addCleanup(os.environ.pop, "TRAINCHECK_BUDGET")
        self.assertEqual(
            budgets.from_settings(core_for_testing.RecordingCore(), True).percent, 5.0
        )


if __name__ == "__main__":
    unittest.main()
