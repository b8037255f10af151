"""What is recorded from which step on: modes, sampling, changes of plan."""

import json
import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH

from _traincheck import plan as plans
from _traincheck.budget import Budget
from _traincheck.control import Control
from _traincheck.plan import Plan

DROPOUT = "torch.nn.functional.dropout"
ALL, SKELETON, OFF = CORE.CAPTURE_ALL, CORE.CAPTURE_SKELETON, CORE.CAPTURE_OFF


def plan_of(mode="selective", rules=(), **keys):
    text = {"format": 1, "mode": mode, "calls": list(rules), **keys}
    return json.dumps(text).encode()


class ControlCase(HooksCase):
    def setUp(self):
        super().setUp()
        CORE.closing = {"clear"}
        CORE.steps = 0
        WATCH.recorded.states, WATCH.recorded.off = True, False
        CORE.capture = (ALL, 1, 0)
        self.budget = None
        self.plan(plans.BARE)

    def tearDown(self):
        WATCH.planner.apply(plans.BARE)
        WATCH.recorded.states, WATCH.recorded.off = True, False
        super().tearDown()

    def plan(self, plan):
        WATCH.planner.apply(plan)
        WATCH.control = Control(CORE, WATCH.planner, WATCH.recorded, self.budget)

    def sends(self, version, first_step, plan):
        CORE.plans.append((version, first_step, plan))

    def applied(self):
        marks = [r for r in CORE.of("mark") if r[1] == "PLAN_APPLIED"]
        return [value for _, _, _, value in marks]

    def train(self, steps, model=None):
        """Each begins with the gradient clear that closes the one before."""
        model = model or Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(5, 3)).sum().backward()
            optimizer.step()

    def by_step(self):
        """The records of each step, from its first event on."""
        found = [[]]
        for record in CORE.log:
            if record == ("clock", "clear"):
                found.append([])
            found[-1].append(record)
        return found[1:]


class Sampling(ControlCase):
    def test_whole_steps_after_the_warm_up(self):
        self.plan(Plan(every=4, warm_up=3))
        self.train(10)
        # The zero_grad before the first step closes one in this stand-in: the
        # steps are numbered from 1 on.
        full = []
        for number, records in enumerate(self.by_step(), 1):
            points = {r[1] for r in records if r[0] == "state"}
            points.discard("STEP_END")  # of the step before it
            full.append(bool(points - {"CONSTRUCTION"}))
        self.assertEqual(
            full, [n < 3 or n % 4 == 0 for n in range(1, 11)], CORE.of("capture")
        )
        modes = [mode for _, mode in CORE.of("capture")]
        self.assertEqual(modes, [SKELETON, ALL, SKELETON, ALL, SKELETON])

    def test_the_skeleton_stays(self):
        self.plan(Plan(every=1024, warm_up=2))
        self.train(6)
        last = self.by_step()[4]
        begins = [r[1].rpartition(".")[2] for r in last if r[0] == "begin"]
        for name in ("forward", "backward", "step"):
            self.assertIn(name, begins)
        clocks = [r[1] for r in last if r[0] == "clock"]
        self.assertEqual(clocks, ["clear", "forward", "backward", "step"])
        self.assertEqual([r for r in last if r[0] == "state"], [])

    def test_numbers_of_optimizers_are_told_in_every_step(self):
        self.plan(Plan(every=1024, warm_up=0))
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.param_groups[0]["lr"] = 0.5**step
            optimizer.zero_grad()
            model(torch.ones(5, 3)).sum().backward()
            optimizer.step()
        rates = [r[3] for r in CORE.of("scalar") if r[2] == "lr"]
        self.assertEqual(rates, [1.0, 0.5, 0.25, 0.125])

    def test_what_is_saved_and_new_is_recorded_in_every_step(self):
        self.plan(Plan(every=1024, warm_up=0))
        model = Net()
        self.train(2, model)
        CORE.log.clear()
        torch.save(model.state_dict(), "/dev/null")
        other = Net()
        self.train(1, other)
        points = {r[1] for r in CORE.of("state", "checkpoint")}
        self.assertEqual(points, {"SAVE", "CONSTRUCTION"})

    def test_gradients_cleared_by_hand_are_looked_for_again_when_sampled(self):
        self.plan(Plan(every=2, warm_up=0))
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        CORE.closing = {"forward"}
        for _ in range(4):
            for parameter in model.parameters():
                parameter.grad = None
            model(torch.ones(5, 3)).sum().backward()
            optimizer.step()
        # In steps 2 and 4.
        self.assertEqual(CORE.states("GRAD_CLEAR"), [PARAMS, PARAMS])


class Zoom(ControlCase):
    ZOOM = {
        "steps": 2,
        "calls": [{"function": DROPOUT, "arguments": "*"}],
        "variables": ["Net.fc.weight"],
        "state": {"parameter.grad": ["pre_step"]},
    }

    def zoom(self, **keys):
        CORE.zoomed = []
        self.sends(4, 0, plan_of(state={}, zoom=self.ZOOM, **keys))

    def zoomed(self):
        """The numbers of the steps of which the zoom recorded gradients."""
        return [
            number
            for number, records in enumerate(self.by_step(), 1)
            if "PRE_STEP" in {r[1] for r in records if r[0] == "state"}
        ]

    def test_ends_by_itself_after_its_steps(self):
        self.zoom()
        self.train(6)
        self.assertEqual(self.applied(), [4, 4])
        self.assertEqual(self.zoomed(), [1, 2])
        self.assertEqual(CORE.zoomed, [])
        self.assertFalse(WATCH.planner.plan.steps)

    def test_counts_the_steps_that_are_recorded_in_full(self):
        self.zoom(sample={"every": 2, "warm_up": 0})
        self.train(8)
        self.assertEqual(self.zoomed(), [2, 4])
        self.assertEqual(self.applied(), [4, 4])

    def test_names_its_variables_to_the_core(self):
        self.zoom()
        self.train(2)
        self.assertEqual(CORE.zoomed, ["Net.fc.weight"])

    def test_a_newer_plan_ends_it(self):
        self.zoom()
        self.train(2)
        self.sends(5, 0, plan_of(state={}))
        self.train(4)
        self.assertEqual(self.applied(), [4, 5])


class Selective(ControlCase):
    def setUp(self):
        super().setUp()

        def fn(input, p=0.5):
            return input

        self.fn = fn
        self.wrapper = CORE.wrap(fn, DROPOUT, "operation", ("dropout",), detail=True)

    def on(self):
        return CORE.switched[self.fn]

    def test_what_no_rule_names_is_switched_off(self):
        WATCH.planner.add(self.wrapper, [DROPOUT, "dropout"], detail=True)
        self.assertFalse(self.on())
        for function in (DROPOUT, "dropout", "torch.nn.functional.*"):
            WATCH.planner.apply(Plan(rules=[plans.Rule(function)]))
            self.assertTrue(self.on(), function)
        WATCH.planner.apply(Plan(rules=[plans.Rule("torch.relu")]))
        self.assertFalse(self.on())
        WATCH.planner.apply(plans.FULL)
        self.assertTrue(self.on())

    def test_what_a_plan_names_at_the_start_is_wrapped(self):
        planner = WATCH.planner
        self.assertFalse(planner.wraps([DROPOUT]))
        self.assertFalse(planner.reaches_beyond())
        WATCH.planner.apply(plans.FULL)  # as told by a run that collects
        self.assertFalse(planner.wraps([DROPOUT]))
        self.assertFalse(planner.reaches_beyond())
        WATCH.planner.apply(Plan(rules=[plans.Rule(DROPOUT)]))
        self.assertTrue(planner.wraps([DROPOUT, "dropout"]))
        self.assertFalse(planner.wraps(["torch.relu"]))
        self.assertTrue(planner.reaches_beyond())

    def test_a_function_that_only_is_switched_tells_nothing(self):
        WATCH.planner.apply(plans.FULL)
        CORE.contents.pop(self.fn, None)
        WATCH.planner.add(self.wrapper, [DROPOUT], detail=True, tells=False)
        self.assertTrue(self.on())
        self.assertNotIn(self.fn, CORE.contents)

    def switches(self):
        return [(r[1], r[2]) for r in CORE.of("switch")]

    def test_who_trains_tells_of_which_functions_calls_are_recorded(self):
        WATCH.planner.add(self.wrapper, [DROPOUT], detail=True)
        for _ in range(2):
            WATCH.reset()  # as in a forked child
            CORE.log.clear()
            self.assertEqual(self.switches(), [])
            self.train(1)
            told = self.switches()
            self.assertGreater(len(told), 10)
            self.assertEqual(len(told), len(set(told)))
            self.assertTrue(all(on for _, on in told))
            self.assertNotIn((self.fn, True), told)

    def test_a_change_tells_what_it_switches_behind_its_mark(self):
        WATCH.reset()
        WATCH.planner.add(self.wrapper, [DROPOUT], detail=True)
        self.train(1)
        for version, rules, on in ((1, [{"function": DROPOUT}], True), (2, [], False)):
            CORE.log.clear()
            self.sends(version, 0, plan_of(rules=rules))
            self.train(2)
            self.assertEqual(self.switches(), [(self.fn, on)])
            marks = [r for r in CORE.log if r[0] == "switch" or "PLAN_APPLIED" in r]
            self.assertEqual([r[0] for r in marks], ["mark", "switch"])


class Changes(ControlCase):
    def test_at_the_step_that_it_names(self):
        self.sends(7, 4, plan_of(rules=[{"function": "torch.save"}]))
        self.train(6)
        steps = self.by_step()
        holds = [any("PLAN_APPLIED" in r for r in step) for step in steps]
        self.assertEqual(holds, [False] * 3 + [True] + [False] * 2)
        self.assertEqual(WATCH.planner.plan.version, 7)
        self.assertEqual(self.applied(), [7])
        # What ends the step before comes first, then the mark, then the rest.
        kinds = [r[1] for r in steps[3] if r[0] in ("state", "mark")]
        self.assertEqual(kinds[:3], ["STEP_END", "PLAN_APPLIED", "GRAD_CLEAR"])

    def test_at_once_where_that_step_has_passed(self):
        self.train(3)
        self.sends(2, 1, plan_of())
        self.train(1)
        self.assertEqual(self.applied(), [2])

    def test_a_newer_one_replaces_one_that_waits(self):
        self.sends(1, 3, plan_of(rules=[{"function": "a"}]))
        self.sends(2, 4, plan_of(rules=[{"function": "b"}]))
        self.train(5)
        self.assertEqual(self.applied(), [2])
        self.assertEqual(WATCH.planner.plan.rules[0].function, "b")

    def test_a_bad_one_is_refused_and_the_old_one_stays(self):
        before = WATCH.planner.plan
        for text in (b"{", b"\xff", b"[" * 100_000, plan_of(mode="some"), b"[]"):
            CORE.raised.clear()
            self.sends(9, 0, text)
            self.train(1)
            (line,) = CORE.raised
            self.assertIn("is refused: plan 9", str(line))
        CORE.raised.clear()
        self.assertIs(WATCH.planner.plan, before)
        self.assertEqual(self.applied(), [])

    def test_off_and_on_again(self):
        self.sends(1, 2, plan_of("off"))
        self.train(4)
        self.assertEqual(CORE.of("capture"), [("capture", OFF)])
        self.assertEqual(self.applied(), [1])
        off = self.by_step()[2]
        self.assertEqual([r for r in off if r[0] == "state"], [])
        CORE.log.clear()
        self.sends(2, 0, plan_of())
        self.train(3)
        # The mark is written when something is recorded again.
        control = [r for r in CORE.log if r[0] == "capture" or "PLAN_APPLIED" in r]
        self.assertEqual([r[0] for r in control], ["capture", "mark"])
        self.assertIn("POST_STEP", {r[1] for r in CORE.of("state")})

    def test_a_clean_exit_is_told_while_it_is_off(self):
        WATCH.reset()
        self.sends(1, 0, plan_of("off"))
        self.train(3)
        CORE.log.clear()
        WATCH.process.ends(WATCH.clock)
        kinds = [r[:2] for r in CORE.of("capture", "mark")]
        self.assertEqual(kinds, [("capture", ALL), ("mark", "CLEAN_EXIT")])

    def test_the_plan_of_the_start_is_told_when_the_process_trains(self):
        self.plan(Plan(version=3))
        WATCH.reset()
        self.assertEqual(self.applied(), [])
        self.train(3)
        self.assertEqual(self.applied(), [3])


class UnderBudget(ControlCase):
    def test_steps_and_turns(self):
        self.budget = Budget(2)
        self.plan(Plan(warm_up=24))
        clock = [0, 0]

        def times():
            # Five times the step where it is recorded.
            own = 5000 if WATCH.recorded.states else 1
            clock[0], clock[1] = clock[0] + own, clock[1] + own + 1000
            return tuple(clock)

        CORE.times = times
        self.addCleanup(CORE.__dict__.pop, "times")
        model = nn.Linear(3, 1)
        self.train(23, model)
        self.assertEqual(CORE.of("capture"), [])
        self.train(20, model)
        self.assertEqual(CORE.capture[0], SKELETON)
        self.assertGreater(CORE.capture[1], 1)
        self.assertEqual(CORE.capture[2], CORE.steps)
        self.assertEqual(self.budget.turns, 9)
        self.assertGreaterEqual(self.budget.every, 32)

    def test_a_budget_that_cannot_be_kept_is_one_line(self):
        self.budget = Budget(2)
        self.plan(Plan(warm_up=1))
        clock = [0, 0]

        def times():
            clock[0], clock[1] = clock[0] + 500, clock[1] + 1500
            return tuple(clock)

        CORE.times = times
        self.addCleanup(CORE.__dict__.pop, "times")
        self.train(40, nn.Linear(3, 1))
        self.assertIn("more than the 2% of TRAINCHECK_BUDGET", str(CORE.raised[0]))
        CORE.raised.clear()


class OfDevices(ControlCase):
    """Steps of 33 ms; 0.3 ms where one is recorded, and 0.78 ms of a device's time that
    is known some steps later."""

    STEP, FULL, PART, DEVICE = 33_000, 300, 50, 780

    def run_late(self, late, steps, device=DEVICE):
        """Cycles of the steps."""
        self.budget = Budget(2)
        self.plan(Plan(warm_up=24))
        CORE.periods, CORE.clocks = 0, (0, 0)
        begun = {}  # period -> when its time is known, and the time
        cycles = []

        def device_time(period):
            known, time = begun.get(period, (0, 0))
            return time if known <= CORE.periods else None

        CORE.device_time = device_time
        self.addCleanup(CORE.__dict__.pop, "device_time", None)
        for _ in range(steps):
            full = WATCH.recorded.states
            own = self.FULL if full else self.PART
            begun[CORE.periods + 1] = CORE.periods + 1 + late, device if full else 0
            # The program waits for the device when that falls behind.
            waits = begun.get(CORE.periods + 1 - late, (0, 0))[1]
            wall = own + self.STEP + waits
            CORE.clocks = CORE.clocks[0] + own, CORE.clocks[1] + wall
            CORE.steps += 1
            WATCH.control.step_closed()
            cycles.append(self.budget.every)
        return cycles

    def test_a_late_result_is_of_the_step_that_began_it(self):
        for late in 0, 1, 2, 5:
            with self.subTest(late):
                cycles = self.run_late(late, 600)
                # (780 + 300 - 50) / 2 + 50 of 33,000 is below 2%; all of it is not.
                self.assertEqual(set(cycles[100:]), {2})
                self.assertFalse(self.budget.exhausted)

    def test_more_than_a_step_is_still_measured(self):
        cycles = self.run_late(1, 2000, device=2 * self.STEP)
        # 66,250 / 128 + 50 is below 2% of a step. A longer cycle stays where a shorter one
        # would leave no room.
        self.assertIn(cycles[-1], (128, 256))

    def test_a_result_that_never_comes_is_not_waited_for(self):
        CORE.device_times = {}
        self.run_late(10**6, 2000)
        self.assertEqual(self.budget.every, 1)
        self.assertLessEqual(len(WATCH.control._measured), 257)


class ClosesAtOnce(ControlCase):
    """Steps that one replay of a graph makes."""

    def replay(self, steps):
        modes = []
        WATCH.control.closes_at_once(steps)
        for _ in range(steps):
            CORE.steps += 1
            modes.append(WATCH.recorded.states)
            WATCH.control.step_closed()
        WATCH.control.closes_at_once(1)
        return modes

    def test_one_is_recorded_in_full(self):
        for _ in range(3):
            self.assertEqual(self.replay(4), [True, False, False, False])

    def test_a_rare_one_is_found_among_them(self):
        self.plan(Plan(every=4, warm_up=1))
        CORE.steps = 1
        self.replay(3)
        full = [sum(self.replay(3)) for _ in range(8)]
        self.assertEqual(sum(full), 6)
        self.assertEqual(max(full), 1)

    def test_their_time_is_shared(self):
        self.budget = Budget(2)
        self.plan(Plan(warm_up=1))
        for _ in range(40):
            own, wall = CORE.clocks
            CORE.clocks = own + 200, wall + 40_200
            self.replay(4)
        # 200 of a step of 10,000: half of it is 1%.
        self.assertEqual(self.budget._steps[-1], 10_000)
        self.assertEqual(self.budget._full[-1], 200)


if __name__ == "__main__":
    unittest.main()
