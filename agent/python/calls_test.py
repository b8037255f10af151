"""Optimizers, backwards, contexts, clipping and checkpoints."""

import copy
import inspect
import pathlib
import pickle
import sys
import tempfile
import unittest
import warnings

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH, train_step


class Optimizers(HooksCase):
    def test_wrapping_keeps_torch_and_schedulers_working(self):
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                train_step(model, optimizer)
                scheduler.step()
        self.assertEqual(
            [r for r in CORE.of("scalar") if r[2] == "lr"],
            [("scalar", "PRE_STEP", "lr", 0.5), ("scalar", "PRE_STEP", "lr", 0.25)],
        )
        self.assertEqual(len(CORE.states("PRE_STEP")), 2)
        steps = [r for r in CORE.of("begin") if r[1].endswith(".step")]
        self.assertEqual(steps, [("begin", "torch.optim.adam.Adam.step")] * 2)

    def test_user_optimizer_that_calls_its_base(self):
        class Shy(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        model = Net()
        optimizer = Shy(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        steps = [r[1] for r in CORE.of("begin") if r[1].endswith(".step")]
        self.assertEqual(len(steps), 2)
        self.assertTrue(steps[0].endswith("Shy.step"))
        self.assertEqual(len(CORE.states("PRE_STEP")), 1)
        self.assertEqual(CORE.of("clock").count(("clock", "step")), 1)

    def test_closure_is_inside_the_step(self):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(5, 3)).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        clock = [event for _, event in CORE.of("clock") if event != "backward"]
        self.assertEqual(clock, ["step"])

    def test_group_added_later_is_held_before_its_gradient(self):
        model = Net()
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
        train_step(model, optimizer)
        optimizer.add_param_group({"params": model.body.parameters()})
        CORE.log.clear()
        train_step(model, optimizer)
        kinds = [r[:2] for r in CORE.of("hold", "state")]
        self.assertLess(
            kinds.index(("hold", 1)), kinds.index(("state", "BACKWARD_END"))
        )

    def test_step_that_raises(self):
        class Broken(torch.optim.SGD):
            def step(self, closure=None):
                raise ZeroDivisionError

        model = Net()
        optimizer = Broken(model.parameters(), lr=0.1)
        for _ in range(2):
            with self.assertRaises(ZeroDivisionError):
                train_step(model, optimizer)
        self.assertEqual(CORE.states("POST_STEP"), [])
        self.assertEqual(CORE.of("clock").count(("clock", "clear")), 2)

    def test_copies(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train_step(model, optimizer)
        pickle.loads(pickle.dumps(optimizer)).step()
        copied = copy.deepcopy(model)
        copied(torch.ones(5, 3))
        self.assertIn("Net#2.head.bias", CORE.facts)


class Calls(HooksCase):
    def test_forward_inside_backward_is_no_training_forward(self):
        from torch.utils.checkpoint import checkpoint

        model = Net()
        for reentrant in (False, True):
            CORE.log.clear()
            x = torch.ones(5, 3, requires_grad=True)
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
            self.assertLessEqual(CORE.of("clock").count(("clock", "forward")), 1)
            self.assertEqual(CORE.of("clock").count(("clock", "backward")), 1)
            self.assertEqual(len(CORE.states("BACKWARD_END")), 1)

    def test_backward_of_a_tensor_and_of_the_function(self):
        model = Net()
        torch.autograd.backward([model(torch.ones(5, 3)).sum()])
        self.assertEqual(len(CORE.states("BACKWARD_END")), 1)
        CORE.log.clear()
        model(torch.ones(5, 3)).sum().backward()
        self.assertEqual(len(CORE.states("BACKWARD_END")), 1)
        names = [n for _, n in CORE.of("begin") if "backward" in n]
        self.assertEqual(names, ["torch.Tensor.backward", "torch.autograd.backward"])

    def test_backward_that_raises(self):
        with self.assertRaises(RuntimeError):
            torch.ones(3).sum().backward()
        self.assertFalse(WATCH.clock.inside_backward())

    def test_clip_does_not_consume_a_generator(self):
        model = Net()
        model(torch.ones(5, 3)).sum().backward()
        for function in (
            nn.utils.clip_grad_norm_,
            nn.utils.clip_grad.clip_grad_norm_,
            nn.utils.clip_grad_value_,
        ):
            CORE.log.clear()
            function(model.parameters(), 1e-6)
            self.assertEqual(CORE.states("PRE_CLIP"), [PARAMS])
            self.assertEqual(CORE.states("POST_CLIP"), [PARAMS])
        self.assertLessEqual(model.head.weight.grad.abs().max().item(), 1e-6)

    def test_contexts(self):
        with torch.no_grad():
            pass
        with torch.inference_mode():
            pass
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            pass
        with torch.random.fork_rng(devices=[]):
            pass
        grad, autocast = "torch.autograd.grad_mode.", "torch.amp.autocast_mode.autocast"
        told = {"device_type": "cpu", "dtype": torch.bfloat16, "enabled": False}
        told["cache_enabled"] = True
        self.assertEqual(
            CORE.of("context"),
            [
                ("context", True, grad + "no_grad", {}),
                ("context", False, grad + "no_grad"),
                ("context", True, grad + "inference_mode", {"mode": True}),
                ("context", False, grad + "inference_mode"),
                ("context", True, autocast, told),
                ("context", False, autocast),
                ("context", True, "torch.random.fork_rng"),
                ("context", False, "torch.random.fork_rng"),
            ],
        )

    def test_a_manager_stays_what_it_was(self):
        fork_rng = torch.random.fork_rng
        self.assertIn("devices", inspect.signature(fork_rng).parameters)
        with self.assertRaisesRegex(ValueError, "mine"):
            with fork_rng(devices=[]):
                torch.manual_seed(7)
                raise ValueError("mine")

        @fork_rng(devices=[])
        def draw():
            return torch.rand(1).item()

        self.assertEqual(draw(), draw())  # the generator is put back
        entries = [record[1] for record in CORE.of("context")]
        self.assertEqual(entries, [True, False] * 3)

    def test_zero_grad_of_a_module(self):
        model = Net()
        model(torch.ones(5, 3)).sum().backward()
        model.zero_grad()
        self.assertEqual(CORE.states("GRAD_CLEAR"), [PARAMS])

    def test_signatures_are_kept(self):
        self.assertIn("mode", inspect.signature(nn.Module.train).parameters)
        self.assertIn(
            "max_norm", inspect.signature(nn.utils.clip_grad_norm_).parameters
        )

    def test_same_function_in_all_namespaces(self):
        distributed = torch.distributed
        self.assertTrue(CORE.is_wrapper(distributed.all_reduce))
        self.assertIs(distributed.all_reduce, distributed.distributed_c10d.all_reduce)
        self.assertIs(torch.save, torch.serialization.save)
        self.assertTrue(CORE.is_wrapper(torch.load))

    def test_checkpoints(self):
        model = Net()
        model(torch.ones(5, 3))
        with tempfile.TemporaryFile() as file:
            torch.save([1, 2], file)
            self.assertEqual(CORE.states("SAVE"), [])
            torch.save({"model": model.state_dict()}, file)
        (names,) = CORE.states("SAVE")
        self.assertIn("Net.norm.running_var", names)
        model.load_state_dict(model.state_dict())
        self.assertEqual(CORE.states("LOAD"), [names])


if __name__ == "__main__":
    unittest.main()
