"""What the agent says of its own sight."""

import pathlib
import sys
import threading
import unittest

import torch
import torch._dynamo
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, WATCH, HooksCase

from _traincheck import plan as plans
from _traincheck.sight import LOOKS


def said():
    """In its order, without the first word's "sight:"."""
    names = [entry[2] for entry in CORE.log if entry[0] == "scalar"]
    said = [name[len("sight:") :] for name in names if name.startswith("sight:")]
    return [what for what in said if what != "limit graphs"]  # torch 2.4


class SightTest(HooksCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        self.addCleanup(WATCH.planner.apply, WATCH.planner.plan)
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, net=None):
        (net or self.net)(torch.ones(4, 3)).sum().backward()
        self.optimizer.step()

    def limits(self):
        self.step()
        return [what for what in said() if what.startswith("limit ")]

    def test_it_says_once_what_it_looks_at_and_what_is_planned(self):
        self.step()
        self.step()
        self.assertEqual(said().count("looks"), 1)
        values = [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == "sight:looks"]
        self.assertEqual(values, [LOOKS])
        self.assertIn("state parameter.grad pre_step", said())
        self.assertEqual(self.limits(), [])

    def test_it_says_what_a_selective_plan_asks_for_and_no_more(self):
        plan = plans.parse(
            {
                "format": 1,
                "calls": [{"function": "dropout", "arguments": ["p"]}],
                "state": {"parameter.grad": ["pre_step"]},
                "rows": {"parameter.data": ["post_step"]},
                "generators": True,
            }
        )
        CORE.clear()
        WATCH.planner.apply(plan)
        WATCH.sight.begins()
        self.assertEqual(
            [what for what in said() if what != "looks"],
            [
                "calls dropout",
                "state parameter.data post_step",
                "state parameter.grad pre_step",
                "rows parameter.data post_step",
                "generators",
            ],
        )

    def test_a_full_plan_does_not_say_that_calls_are_recorded_that_nobody_wrapped(self):
        WATCH.planner.apply(plans.FULL)
        WATCH.sight.begins()
        self.assertEqual([what for what in said() if what.startswith("calls")], [])

    def test_packed_tensors_are_a_limit(self):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            pass
        self.assertEqual(self.limits(), ["limit packed"])
        self.assertEqual(self.limits(), ["limit packed"])  # said once

    def test_a_second_thread_that_trains_is_a_limit(self):
        self.step()
        thread = threading.Thread(target=self.step)
        thread.start()
        thread.join()
        self.assertEqual(self.limits(), ["limit threads"])

    def test_parameters_of_another_class_are_a_limit(self):
        class Odd(nn.Parameter):
            pass

        self.net.weight = Odd(self.net.weight.detach())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.assertEqual(self.limits(), ["limit classes"])

    def test_parameters_on_a_device_are_a_limit_in_a_group_that_comes_later_too(self):
        self.step()
        self.assertEqual(self.limits(), [])
        elsewhere = nn.Parameter(torch.ones(2, device="meta"))
        self.optimizer.add_param_group({"params": [elsewhere]})
        self.assertEqual(self.limits(), ["limit devices"])

    def test_rates_on_a_device_are_a_limit(self):
        class Still(torch.optim.SGD):
            def step(self):
                pass

        self.optimizer = Still(self.net.parameters(), lr=torch.tensor(0.1))
        self.assertEqual(self.limits(), [])
        self.optimizer.param_groups[0]["lr"] = torch.tensor(0.1, device="meta")
        self.assertEqual(self.limits(), ["limit device rates"])

    def test_metrics_on_a_device_are_a_limit(self):
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer)
        scheduler.step(torch.tensor(0.1))
        self.assertEqual(self.limits(), [])
        CORE.device = True
        scheduler.step(torch.tensor(0.1))
        self.assertIn("limit device metrics", self.limits())

    def test_batches_on_a_device_are_a_limit(self):
        on_cpu = torch.utils.data.TensorDataset(torch.ones(4, 3))
        next(iter(torch.utils.data.DataLoader(on_cpu, batch_size=2)))
        self.assertEqual(self.limits(), [])
        elsewhere = torch.utils.data.TensorDataset(torch.ones(4, 3, device="meta"))
        next(iter(torch.utils.data.DataLoader(elsewhere, batch_size=2)))
        self.assertEqual(self.limits(), ["limit batches"])

    def test_compiled_frames_are_a_limit(self):
        @torch.compile(backend="eager")
        def doubled(x):
            return 2 * x

        self.assertEqual(self.limits(), [])
        doubled(torch.ones(2))
        self.assertEqual(self.limits(), ["limit compiled"])

    def test_scripted_modules_are_a_limit(self):
        scripted = nn.Sequential(torch.jit.trace(nn.Linear(3, 2), torch.ones(1, 3)))
        self.optimizer = torch.optim.SGD(scripted.parameters(), lr=0.1)
        self.step(scripted)
        self.assertIn("limit compiled", self.limits())


if __name__ == "__main__":
    unittest.main()
