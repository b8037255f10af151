"""State points, optimizer state and hyper-parameters."""

import math
import pathlib
import sys
import threading
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH, train_step

from _traincheck import plan as plans

BUFFERS = [
    "Net.norm.running_mean",
    "Net.norm.running_var",
    "Net.norm.num_batches_tracked",
]


def scalars(name=None):
    """Numbers of objects, without what the agent has seen in a call or a step."""
    seen = ("load.", "loader.", "loss.", "opt.", "recompute.", "schedule.", "sight:")
    numbers = [r[1:] for r in CORE.of("scalar") if not r[2].startswith(seen)]
    return [r for r in numbers if name in (None, r[1])]


class Planned(HooksCase):
    """What a plan leaves out of the state is not recorded, and nothing else."""

    def tearDown(self):
        WATCH.planner.apply(plans.BARE)
        super().tearDown()

    def steps(self, state):
        WATCH.planner.apply(plans.parse({"format": 1, "state": state}))
        self.train()

    def train(self):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            train_step(model, optimizer)

    def seen(self):
        """State records, those of generators left out."""
        records = CORE.of("state")
        return [r for r in records if not r[3][0].startswith("generator.")]

    def test_nothing_where_nothing_is_wanted(self):
        self.steps({})
        self.assertEqual(self.seen(), [])
        # Hyper-parameters are not state of this kind.
        self.assertTrue(scalars("lr"))

    def test_only_the_points_that_are_named(self):
        self.steps({"parameter.data": ["pre_step", "post_step"]})
        points = {record[1] for record in self.seen()}
        self.assertEqual(points, {"PRE_STEP", "POST_STEP"})
        self.assertEqual({name for r in self.seen() for name in r[3]}, set(PARAMS))

    def test_gradients_without_data(self):
        self.steps({"parameter.grad": ["pre_step", "backward_end", "grad_clear"]})
        what = {(record[1], record[2]) for record in self.seen()}
        grad = CORE.STATE_GRAD
        self.assertEqual(
            what,
            {("PRE_STEP", grad), ("BACKWARD_END", grad), ("GRAD_CLEAR", grad)},
        )

    def test_buffers_alone(self):
        self.steps({"buffer.data": ["forward_begin"]})
        self.assertEqual(
            [(record[1], record[3]) for record in self.seen()],
            [("FORWARD_BEGIN", BUFFERS)] * 3,
        )

    def test_statistics_and_rows_of_what_they_name_alone(self):
        plan = {
            "format": 1,
            "state": {"parameter.data": ["pre_step"], "parameter.grad": ["pre_step"]},
            "statistics": {
                "parameter.grad": ["pre_step"],
                "optimizer_state.data": ["post_step"],
            },
            "rows": {"parameter.data": ["pre_step"], "buffer.data": ["forward_begin"]},
        }
        WATCH.planner.apply(plans.parse(plan))
        self.train()
        data, grad = CORE.STATE_DATA, CORE.STATE_GRAD
        data_rows = data | CORE.STATE_DATA_ROWS
        self.assertEqual(
            {(record[1], record[2]) for record in self.seen()},
            {
                ("PRE_STEP", data_rows | grad | CORE.STATE_GRAD_STATISTICS),
                ("POST_STEP", data | CORE.STATE_DATA_STATISTICS),
                ("FORWARD_BEGIN", data_rows),
            },
        )

    def test_generators_around_every_outermost_forward(self):
        plan = {"format": 1, "state": {}, "generators": True}
        WATCH.planner.apply(plans.parse(plan))
        net, dropout = Net(), nn.Dropout()
        model = nn.Sequential(net, dropout)
        with torch.no_grad():  # of an evaluation too
            model(torch.ones(5, 3))
        found = [r[1] for r in CORE.of("state") if r[3] == ["generator.torch.cpu"]]
        self.assertEqual(found, ["FORWARD_BEGIN", "FORWARD_END"])
        bytes_of = {(r[1], r[2]) for r in CORE.of("bytes")}
        self.assertIn(("FORWARD_END", "generator.python"), bytes_of)

    def test_generators_belong_to_the_step_that_the_forward_begins(self):
        WATCH.planner.apply(plans.parse({"format": 1, "generators": True}))
        Net()(torch.ones(5, 3))
        told = [
            r for r in CORE.log if r[0] == "clock" or "generator.torch.cpu" in r[-1]
        ]
        self.assertEqual(told[0][:2], ("clock", "forward"))
        self.assertEqual([r[1] for r in told[1:]], ["FORWARD_BEGIN", "FORWARD_END"])

    def test_state_of_optimizers(self):
        self.steps({"optimizer_state.data": ["post_step"]})
        names = {name for r in self.seen() for name in r[3]}
        self.assertIn("Net.head.bias/exp_avg", names)
        self.assertEqual({r[1] for r in self.seen()}, {"POST_STEP"})


class Points(HooksCase):
    def test_construction_once_when_the_model_becomes_known(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            train_step(model, optimizer)
        (names,) = CORE.states("CONSTRUCTION")
        self.assertEqual(sorted(names), sorted(PARAMS + BUFFERS))
        kinds = [record[1] for record in CORE.of("state")]
        self.assertLess(kinds.index("CONSTRUCTION"), kinds.index("FORWARD_BEGIN"))

    def test_construction_of_what_is_replaced_or_added(self):
        model = Net()
        model(torch.ones(5, 3))
        CORE.log.clear()
        model.head = nn.Linear(4, 2)
        model(torch.ones(5, 3))
        self.assertEqual(CORE.states("CONSTRUCTION"), [PARAMS[4:]])

    def test_construction_of_parameters_in_no_model(self):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.sum().backward()
        for _ in range(2):
            optimizer.step()
        name = "SGD.param_groups[0].params[0]"
        self.assertEqual(CORE.states("CONSTRUCTION"), [[name]])

    def test_step_end_has_all_that_was_trained(self):
        trained, evaluated = Net(), nn.Linear(3, 2)
        with torch.no_grad():
            evaluated(torch.ones(5, 3))
        loose = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([*trained.head.parameters(), loose], lr=0.1)
        train_step(trained, optimizer)
        CORE.closing = {"clear"}
        CORE.log.clear()
        train_step(trained, optimizer)
        (names,) = CORE.states("STEP_END")
        self.assertEqual(
            sorted(names),
            sorted(PARAMS + BUFFERS + ["SGD.param_groups[0].params[2]"]),
        )
        kinds = [r[1] for r in CORE.of("clock", "state")]
        self.assertEqual(kinds[:3], ["clear", "STEP_END", "GRAD_CLEAR"])

    def test_every_event_that_closes_a_step_ends_it(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        CORE.log.clear()
        CORE.closing = {"fetch", "clear", "forward", "step", "end"}
        data = torch.utils.data.DataLoader(range(1))
        for _ in data:
            train_step(model, optimizer)
        # fetch, clear, forward, step, end of the iterator
        self.assertEqual(len(CORE.states("STEP_END")), 5)

    def test_step_end_leaves_the_models_of_other_threads(self):
        mine, theirs = Net(), Net()
        other = torch.optim.SGD(theirs.parameters(), lr=0.1)
        thread = threading.Thread(target=train_step, args=(theirs, other))
        thread.start()
        thread.join()
        optimizer = torch.optim.SGD(mine.parameters(), lr=0.1)
        train_step(mine, optimizer)
        CORE.closing = {"clear"}
        train_step(mine, optimizer)
        (names,) = CORE.states("STEP_END")
        self.assertFalse([name for name in names if name.startswith("Net.")])


class OptimizerState(HooksCase):
    def state_names(self):
        return [
            name for names in CORE.states("POST_STEP") for name in names if "/" in name
        ]

    def test_adam(self):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        train_step(model, optimizer)
        names = ["step", "exp_avg", "exp_avg_sq"]
        everything = [f"{parameter}/{name}" for parameter in PARAMS for name in names]
        self.assertEqual(self.state_names(), everything)
        kind, owner, _, _ = CORE.facts["Net.head.bias/exp_avg"]
        self.assertEqual(
            (kind, owner), (CORE.VARIABLE_OPTIMIZER_STATE, "torch.optim.adam.Adam")
        )
        # One call for the parameters and their state: one launch on a device.
        (names,) = CORE.states("POST_STEP")
        self.assertEqual(names, PARAMS + everything)
        train_step(model, optimizer)
        self.assertEqual(self.state_names(), everything * 2)
        named = [n for n in CORE.facts if not n.startswith("generator.")]
        self.assertEqual(len(named), 6 + 3 + 18)

    def test_momentum_comes_with_the_first_step_and_for_what_got_a_gradient(self):
        model = Net()
        model.body.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train_step(model, optimizer)
        self.assertEqual(
            self.state_names(), [f"{name}/momentum_buffer" for name in PARAMS[2:]]
        )

    def test_a_state_that_changes(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        whole = [f"{name}/momentum_buffer" for name in PARAMS]
        for _ in range(3):
            train_step(model, optimizer)
        self.assertEqual(self.state_names(), whole * 3)
        entry = optimizer.state[model.body.weight]
        entry["momentum_buffer"] = entry["momentum_buffer"].clone()
        entry["extra"], entry["steps"] = torch.zeros(2), 7
        for _ in range(2):
            train_step(model, optimizer)
        more = [whole[0], "Net.body.weight/extra", *whole[1:]]
        self.assertEqual(self.state_names(), whole * 3 + more * 2)
        self.assertEqual(scalars("state.steps"), [("POST_STEP", "state.steps", 7.0)])
        del optimizer.state[model.norm.bias], entry["extra"], entry["steps"]
        model.norm.bias.requires_grad_(False)
        for _ in range(2):
            train_step(model, optimizer)
        left = [name for name in whole if "norm.bias" not in name]
        self.assertEqual(self.state_names(), whole * 3 + more * 2 + left * 2)

    def test_without_state(self):
        model = Net()
        train_step(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual(CORE.states("POST_STEP"), [PARAMS])

    def test_counters_that_are_numbers(self):
        class Counts(torch.optim.SGD):
            def step(self, closure=None):
                for group in self.param_groups:
                    for index, parameter in enumerate(group["params"]):
                        entry = self.state[parameter]
                        entry["step"] = entry.get("step", 0) + 1
                        entry["index"] = index
                self.state["whole"] = 3

        model = Net()
        optimizer = Counts(model.parameters(), lr=0.1)
        for _ in range(2):
            train_step(model, optimizer)
        self.assertEqual(
            scalars("state.step"),
            [("POST_STEP", "state.step", 1.0), ("POST_STEP", "state.step", 2.0)],
        )
        # Not the same of all parameters: not known, and told once.
        ((_, _, value),) = scalars("state.index")
        self.assertTrue(math.isnan(value))

    def test_two_roots_and_a_tied_weight(self):
        first, second = Net(), Net()
        second.head.weight = first.head.weight
        parameters = dict.fromkeys([*first.parameters(), *second.parameters()])
        optimizer = torch.optim.Adam(list(parameters))
        x = torch.ones(5, 3)
        (first(x) + second(x)).sum().backward()
        optimizer.step()
        names = self.state_names()
        self.assertEqual(len(names), 3 * len(parameters))
        self.assertEqual(len(set(names)), len(names))
        self.assertIn("Net.head.weight/exp_avg", names)
        self.assertNotIn("Net#2.head.weight/exp_avg", names)
        self.assertIn("Net#2.head.bias/exp_avg", names)

    def test_replaced_parameter_takes_the_name_of_its_place(self):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        train_step(model, optimizer)
        old = model.head.weight
        model.head.weight = new = nn.Parameter(torch.zeros(2, 4))
        optimizer.param_groups[0]["params"][4] = new
        optimizer.state[new] = optimizer.state.pop(old)
        CORE.log.clear()
        train_step(model, optimizer)
        self.assertEqual(
            self.state_names()[-3:],
            [f"Net.head.weight/{n}" for n in ("step", "exp_avg", "exp_avg_sq")],
        )

    def test_parameters_of_no_model(self):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([weight])
        weight.sum().backward()
        optimizer.step()
        self.assertEqual(
            self.state_names()[1], "Adam.param_groups[0].params[0]/exp_avg"
        )


class HyperParameters(HooksCase):
    def test_all_at_first_then_what_changes(self):
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.5, betas=(0.8, 0.9))
        train_step(model, optimizer)
        found = {name: value for _, name, value in scalars()}
        self.assertEqual(
            {k: found[k] for k in ("lr", "betas[0]", "betas[1]", "eps", "amsgrad")},
            {"lr": 0.5, "betas[0]": 0.8, "betas[1]": 0.9, "eps": 1e-8, "amsgrad": 0.0},
        )
        self.assertEqual({point for point, _, _ in scalars()}, {"PRE_STEP"})
        CORE.log.clear()
        train_step(model, optimizer)
        # The counter of steps is there from the second one on.
        self.assertEqual(scalars(), [("PRE_STEP", "counter_bits", 24.0)])
        CORE.log.clear()
        optimizer.param_groups[0]["betas"] = (0.8, 0.95)
        train_step(model, optimizer)
        self.assertEqual(scalars(), [("PRE_STEP", "betas[1]", 0.95)])

    def test_all_again_after_16_steps(self):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(17):
            optimizer.step()
        self.assertEqual(scalars("lr"), [("PRE_STEP", "lr", 0.1)] * 2)

    def test_what_is_no_number_any_more_is_not_known(self):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.5))
        optimizer.step()
        self.assertEqual(scalars("lr"), [("PRE_STEP", "lr", 0.5)])
        CORE.log.clear()
        optimizer.param_groups[0]["lr"] = torch.tensor(0.5, device="meta")
        with self.assertRaises(Exception):
            weight.grad = torch.ones(3)
            optimizer.step()
        with self.assertRaises(Exception):
            optimizer.step()
        ((_, _, value),) = scalars("lr")
        self.assertTrue(math.isnan(value))

    def test_groups_of_their_own(self):
        a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([{"params": [a], "lr": 1.0}, {"params": [b]}], lr=2)
        optimizer.step()
        self.assertEqual([value for _, _, value in scalars("lr")], [1.0, 2.0])


if __name__ == "__main__":
    unittest.main()
