"""Capture plans: what is read from files, and what functions are told to tell."""

import json
import pathlib
import sys
import tempfile
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, WATCH

from _traincheck import plan as plans
from _traincheck import signatures

TEXT, DIGEST, AUTOGRAD = plans.TEXT, plans.DIGEST, plans.AUTOGRAD


def plan_of(*rules, mode="selective"):
    return plans.parse({"format": 1, "mode": mode, "calls": list(rules)})


class Files(unittest.TestCase):
    def refused(self, text, reason):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
            file.flush()
            with self.assertRaises(plans.PlanError) as caught:
                plans.read(file.name)
        self.assertIn(reason, str(caught.exception))
        self.assertIn(file.name, str(caught.exception))

    def test_what_is_wrong_is_named(self):
        self.refused("{", "is not a capture plan: line 1, column 2: Expecting")
        self.refused("\nimport torch", "line 2, column 1: Expecting value")
        self.refused("[" * 100000, "it is nested too deeply")
        self.refused([], "a plan is an object")
        self.refused({"format": 2}, "format is not 1")
        self.refused({"format": 1, "call": []}, "no key 'call'")
        self.refused({"format": 1, "mode": "some"}, "mode 'some' is none of")
        self.refused({"format": 1, "version": -1}, "version")
        self.refused({"format": 1, "calls": {}}, "calls is not a list")
        self.refused({"format": 1, "calls": [{}]}, "calls[0] names no function")
        self.refused({"format": 1, "sample": {"every": 3}}, "power of two")
        self.refused({"format": 1, "sample": {"every": True}}, "power of two")
        self.refused({"format": 1, "sample": {"warm_up": -1}}, "sample.warm_up")
        self.refused({"format": 1, "sample": {"each": 2}}, "sample has no key 'each'")
        self.refused({"format": 1, "mode": "sampled"}, "needs sample")
        row = {"function": "f", "arguments": "x"}
        self.refused({"format": 1, "calls": [row]}, "calls[0].arguments")
        row = {"function": "f", "returns": 1}
        self.refused({"format": 1, "calls": [row]}, "calls[0].returns")
        row = {"function": "f", "digest": []}
        self.refused({"format": 1, "calls": [row]}, "calls[0] has no key 'digest'")

    def test_state_that_no_version_knows_is_named(self):
        self.refused({"format": 1, "state": []}, "state is not an object")
        self.refused({"format": 1, "state": {"moon": []}}, "state has no key 'moon'")
        row = {"parameter.data": "pre_step"}
        self.refused({"format": 1, "state": row}, "state.parameter.data is not a list")

    def test_what_tells_more_is_recorded_too(self):
        more = {"buffer.data": ["step_end"]}
        for key in ("statistics", "rows"):
            plan = plans.parse({"format": 1, "state": {}, key: more})
            self.assertTrue(plan.wants("buffer.data", "step_end"))
            self.assertFalse(plan.wants("parameter.data", "step_end"))
            self.assertTrue(plans.parse({"format": 1, key: more}).state is None)
            self.refused({"format": 1, key: {"moon": []}}, f"{key} has no key 'moon'")

    def test_generators_on_demand_and_in_full(self):
        for more, wanted in (({}, False), ({"mode": "full"}, True)):
            self.assertIs(plans.parse({"format": 1, **more}).generators, wanted)
        self.assertTrue(plans.parse({"format": 1, "generators": True}).generators)
        self.refused({"format": 1, "generators": 1}, "generators is not a truth value")

    def test_a_zoom_adds_to_the_plan_for_some_steps(self):
        zoom = {
            "steps": 3,
            "calls": [{"function": "torch.relu", "arguments": "*"}],
            "variables": ["Net.fc.weight"],
            "state": {"parameter.grad": ["pre_step"]},
            "generators": True,
        }
        state = {"parameter.data": ["post_step"]}
        text = {"format": 1, "version": 7, "state": state, "zoom": zoom}
        plan = plans.parse(text)
        self.assertEqual((plan.steps, plan.version), (3, 7))
        self.assertEqual(plan.zoomed, {"Net.fc.weight"})
        self.assertTrue(plan.wants("parameter.grad", "pre_step"))
        self.assertTrue(plan.wants("parameter.data", "post_step"))
        self.assertEqual(plan.rule_for(["torch.relu"]).arguments, "*")
        self.assertTrue(plan.generators)
        then = plan.then
        self.assertEqual((then.steps, then.version, then.zoomed), (0, 7, frozenset()))
        self.assertFalse(then.wants("parameter.grad", "pre_step"))
        self.assertIsNone(then.rule_for(["torch.relu"]))
        self.assertFalse(then.generators)

    def test_what_is_wrong_with_a_zoom_is_named(self):
        def refused(zoom, reason):
            self.refused({"format": 1, "zoom": zoom}, reason)

        refused([], "zoom is not an object")
        refused({}, "zoom.steps is not a number of 1 to 1024")
        refused({"steps": True}, "zoom.steps")
        refused({"steps": 1, "calls": [{}]}, "zoom.calls[0] names no function")
        refused({"steps": 1, "variables": "x"}, "zoom.variables is not a list")
        refused({"steps": 1, "state": {"moon": []}}, "zoom.state has no key 'moon'")
        refused({"steps": 1, "rows": {}}, "zoom has no key 'rows'")
        refused({"steps": 1, "generators": 2}, "zoom.generators")

    def test_without_a_word_on_state_all_is_wanted(self):
        self.assertTrue(plan_of().wants("buffer.data", "step_end"))
        plan = plans.parse({"format": 1, "state": {"buffer.data": ["step_end"]}})
        self.assertTrue(plan.wants("buffer.data", "step_end"))
        self.assertFalse(plan.wants("buffer.data", "save"))
        self.assertFalse(plan.wants("parameter.grad", "step_end"))

    def test_a_missing_file(self):
        with self.assertRaisesRegex(plans.PlanError, "/nowhere/plan.json: No such"):
            plans.read("/nowhere/plan.json")

    def test_full_has_a_rule_for_everything_and_others_win_over_it(self):
        plan = plan_of({"function": "torch.save", "arguments": []}, mode="full")
        self.assertEqual(plan.rule_for(["torch.relu"]).arguments, "*")
        self.assertEqual(plan.rule_for(["torch.save"]).arguments, frozenset())

    def test_off_has_no_rules(self):
        plan = plan_of({"function": "*", "arguments": "*"}, mode="off")
        self.assertIsNone(plan.rule_for(["torch.save"]))

    def test_steps_that_are_sampled(self):
        plan = plans.parse({"format": 1, "mode": "sampled", "sample": {"every": 8}})
        self.assertEqual((plan.every, plan.warm_up), (8, 256))
        self.assertTrue(plan.samples(255) and plan.samples(264))
        self.assertFalse(plan.samples(257) or plan.samples(260))
        # Whoever asks for less decides.
        self.assertTrue(plan.samples(256, every=4))
        self.assertFalse(plan.samples(264, every=16))


def dropout(input, p=0.5, training=True, *, api_token="x", mode="a"):
    return input


class Contents(unittest.TestCase):
    def content(self, rule, fn=dropout, names=("m.dropout",), is_method=False):
        return plans.content(plan_of(rule), fn, list(names), is_method)

    def test_arguments_by_name(self):
        rule = {"function": "m.dropout", "arguments": ["p", "input"], "returns": True}
        self.assertEqual(
            self.content(rule),
            ([("input", 0, 0), ("p", 1, 0, 0.5)], None, 0),
        )

    def test_details(self):
        rule = {
            "function": "m.*",
            "arguments": "*",
            "digests": ["input", "return"],
            "texts": ["mode", "api_token"],
            "returns": True,
            "autograd": True,
        }
        self.assertEqual(
            self.content(rule),
            (
                [
                    ("input", 0, DIGEST | AUTOGRAD),
                    ("p", 1, AUTOGRAD, 0.5),
                    ("training", 2, AUTOGRAD, True),
                    ("api_token", -1, AUTOGRAD | TEXT, "x"),  # the core refuses
                    ("mode", -1, AUTOGRAD | TEXT, "a"),
                ],
                None,
                DIGEST | AUTOGRAD,
            ),
        )

    def test_no_rule_no_content(self):
        self.assertIsNone(self.content({"function": "m.other"}))
        self.assertIsNotNone(
            self.content({"function": "base.step"}, names=("m.step", "base.step"))
        )

    def test_self_is_no_argument(self):
        def step(self, closure=None, *rest, **more):
            pass

        rule = {"function": "m.step", "arguments": "*"}
        content = self.content(rule, step, ["m.step"], is_method=True)
        self.assertEqual(content, ([("closure", 1, 0, None)], (2, 0), None))

    def test_functions_of_c_tell_their_parameters_through_torch(self):
        for fn in (torch.relu, torch.matmul, torch.nn.functional.dropout):
            self.assertEqual(signatures.of(fn).parameters[0].name, "input", fn)

    def test_without_a_signature_arguments_have_positions(self):
        rule = {"function": "m.f", "arguments": "*"}
        content = self.content(rule, max, ["m.f"])
        self.assertEqual(content, ([], (0, 0), None))


class Applied(HooksCase):
    def tearDown(self):
        WATCH.planner.apply(plans.BARE)
        super().tearDown()

    def told(self, fn):
        return CORE.contents.get(fn.__wrapped__)

    def test_to_what_is_wrapped_already_by_name_or_role(self):
        self.assertIsNone(self.told(torch.save))
        WATCH.planner.apply(
            plan_of(
                {"function": "torch.serialization.save", "arguments": ["f"]},
                {"function": "torch.optim.optimizer.Optimizer.zero_grad"},
            )
        )
        self.assertEqual(self.told(torch.save)[0], [("f", 1, 0)])
        WATCH.planner.apply(plans.BARE)
        self.assertIsNone(self.told(torch.save))

    def test_to_classes_that_come_later(self):
        step = {"function": "torch.optim.optimizer.Optimizer.step", "arguments": "*"}
        WATCH.planner.apply(plan_of(step))

        class Late(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        Late([nn.Parameter(torch.ones(1))], lr=0.1)
        told = [
            content
            for fn, content in CORE.contents.items()
            if getattr(fn, "__qualname__", "").endswith("Late.step")
        ]
        self.assertEqual(told, [([("closure", 1, 0, None)], None, None)])

    def test_forwards_by_class(self):
        class Net(nn.Module):
            def forward(self, x, scale=2.0):
                return x * scale

        self.assertIsNone(CORE.forward_plan(Net))
        role = "torch.nn.modules.module.Module.forward"
        WATCH.planner.apply(plan_of({"function": role, "arguments": "*"}))
        self.assertEqual(
            CORE.forward_plan(Net), ([("x", 1, 0), ("scale", 2, 0, 2.0)], None, None)
        )

    def test_forwards_that_only_instances_have(self):
        class OfInstances:
            def __get__(self, instance, cls):
                raise AttributeError("of the class there is none")

        class Scripted(nn.Module):
            forward = OfInstances()

        role = "torch.nn.modules.module.Module.forward"
        WATCH.planner.apply(plan_of({"function": role, "arguments": "*"}))
        self.assertEqual(CORE.forward_plan(Scripted), ([], (1, 0), None))


if __name__ == "__main__":
    unittest.main()
