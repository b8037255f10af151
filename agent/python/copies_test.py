"""Copies of models that are not trained themselves."""

import copy
import functools
import gc
import pathlib
import sys
import unittest
import weakref

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH, said, train_step


class Copies(HooksCase):
    def setUp(self):
        super().setUp()
        CORE.closing = {"clear"}
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def steps(self, count=2):
        for _ in range(count):
            train_step(self.model, self.optimizer)

    def shadows(self):
        return {name: of for name, of in CORE.shadows.items() if of is not None}

    def all_of(self, root):
        return {name.replace("Net.", root): name for name in PARAMS}

    def test_deep_copy_before_and_during_training(self):
        early = copy.deepcopy(self.model)
        self.steps(1)
        late = copy.deepcopy(self.model)
        self.steps()
        expected = {**self.all_of("Net#2."), **self.all_of("Net#3.")}
        self.assertEqual(self.shadows(), expected)
        names = CORE.states("STEP_END")[-1]
        self.assertLess(set(expected), set(names))
        self.assertIsNot(early, late)

    def test_at_most_two_and_none_that_is_gone(self):
        self.steps(1)
        kept = [copy.deepcopy(self.model) for _ in range(4)]
        self.steps(1)
        self.assertEqual(len(WATCH.models.all()), 3)
        gone = weakref.ref(kept[0])
        del kept
        gc.collect()
        self.assertIsNone(gone())
        self.steps(1)
        self.assertEqual(CORE.states("STEP_END")[-1][:1], PARAMS[:1])
        self.assertEqual(len(CORE.states("STEP_END")[-1]), 9)

    def test_averaged_model(self):
        averaged = torch.optim.swa_utils.AveragedModel(self.model)
        self.steps()
        averaged.update_parameters(self.model)
        expected = {f"AveragedModel.module.{name[4:]}": name for name in PARAMS}
        self.assertEqual(self.shadows(), expected)
        self.assertIn("AveragedModel.n_averaged", CORE.facts)

    def test_average_that_was_no_copy(self):
        average = Net()
        average.load_state_dict(self.model.state_dict())
        self.steps()
        with torch.no_grad():
            average(torch.ones(5, 3))
        self.steps()
        self.assertEqual(self.shadows(), self.all_of("Net#2."))

    def test_copy_that_is_trained_is_none(self):
        other = copy.deepcopy(self.model)
        self.steps()
        self.assertEqual(len(self.shadows()), 6)
        second = torch.optim.SGD(other.parameters(), lr=0.1)
        train_step(other, second)
        self.steps()
        self.assertEqual(self.shadows(), {})

    def test_layers_copied_within_a_model_are_none(self):
        class Stack(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(3, 3)
                self.second = copy.deepcopy(self.first)

            def forward(self, x):
                return self.second(self.first(x))

        self.model = Stack()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2)
        encoder(torch.ones(1, 3, 4))
        self.steps()
        self.assertEqual(self.shadows(), {})

    def test_copies_are_as_torch_makes_them(self):
        self.steps(1)
        other = copy.deepcopy(self.model)
        for mine, theirs in zip(self.model.parameters(), other.parameters()):
            self.assertTrue(torch.equal(mine, theirs))
            self.assertEqual(weakref.getweakrefs(theirs), [])


class RoundedAverages(HooksCase):
    NAME = "opt.average_rounded_away"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        CORE.closing = {"clear"}

    def said(self):
        return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == self.NAME]

    def train(self, share, dtype=torch.bfloat16, every=1, rate=1e-3):
        model = nn.Sequential(nn.Linear(64, 5), nn.Linear(5, 4))
        average = copy.deepcopy(model).to(dtype).requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for step in range(8):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(8, 64)), torch.arange(8) % 4).backward()
            optimizer.step()
            if step % every == 0:
                for slow, fast in zip(average.parameters(), model.parameters()):
                    slow.data.lerp_(fast.detach().to(dtype), share)

    def test_moves_that_are_lost(self):
        self.train(0.01)
        self.assertEqual(self.said()[-1], 1.0)

    def test_copies_now_and_then(self):
        self.train(1.0, every=3)
        self.assertEqual(self.said()[-1], 0.0)

    def test_long_moves(self):
        self.train(0.9, rate=0.05)
        self.assertEqual(self.said()[-1], 0.0)

    def test_a_copy_that_is_no_average(self):
        self.train(0.01, every=100)
        self.assertEqual(self.said(), [])

    def test_float32(self):
        self.train(0.01, dtype=torch.float32)
        self.assertEqual(self.said(), [])


class StaleStatistics(HooksCase):
    NAME = "opt.copy_keeps_statistics"

    def train(self, update, copied=copy.deepcopy, moves=True, training=False):
        """What was said of an average that is called in each step."""
        CORE.closing = {"clear"}
        model = Net()
        average = copied(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(8):
            model.norm.train(moves)
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().sum().backward()
            optimizer.step()
            average.train(training)
            with torch.no_grad():
                update(average, model)
                average(torch.randn(5, 3))
        return [value for value in said(self.NAME) if value == value]

    @staticmethod
    def lerp(average, model):
        for slow, fast in zip(average.parameters(), model.parameters()):
            slow.lerp_(fast, 0.2)

    def test_an_average_of_parameters(self):
        self.assertEqual(self.train(self.lerp), [1.0])

    def test_an_average_within_a_module_in_training_mode(self):
        class Average(nn.Module):
            def __init__(self, model):
                super().__init__()
                self.module = copy.deepcopy(model).eval()

            def forward(self, x):
                return self.module(x)

            def train(self, mode=True):
                self.training = True
                return self

        def update(average, model):
            self.lerp(average.module, model)

        self.assertEqual(self.train(update, Average), [1.0])

    def test_an_average_of_buffers_too(self):
        def update(average, model):
            self.lerp(average, model)
            for slow, fast in zip(average.buffers(), model.buffers()):
                slow.copy_(fast)

        self.assertEqual(self.train(update), [0.0])

    def test_averages_of_torch(self):
        average = torch.optim.swa_utils.AveragedModel
        for use_buffers in (False, True):  # it copies them, or averages them
            with self.subTest(use_buffers=use_buffers):
                self.setUp()
                found = self.train(
                    average.update_parameters,
                    functools.partial(average, use_buffers=use_buffers),
                )
                self.assertEqual(found, [0.0])

    def test_a_copy_that_stands(self):
        self.assertEqual(self.train(lambda average, model: None), [])

    def test_a_source_whose_statistics_stand(self):
        self.assertEqual(self.train(self.lerp, moves=False), [])

    def test_a_copy_in_training_mode(self):
        self.assertEqual(self.train(self.lerp, training=True), [])


if __name__ == "__main__":
    unittest.main()
