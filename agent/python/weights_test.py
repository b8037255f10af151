"""How weights begin, and the type in which they are kept."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, WATCH

TARGETS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])


def said(name):
    return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]


class UnitsAlike(HooksCase):
    def train(self, prepare):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4))
        with torch.no_grad():
            prepare(net)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(8, 5)), TARGETS).backward()
            optimizer.step()
        return said("opt.units_alike")

    def test_a_hidden_layer_of_one_number(self):
        def prepare(net):
            for parameter in net.parameters():
                parameter.fill_(0.1)

        self.assertEqual(self.train(prepare), [0.0, 1.0])

    def test_a_last_layer_of_zeros_comes_apart(self):
        def prepare(net):
            net[2].weight.zero_()

        self.assertEqual(self.train(prepare), [0.0])

    def test_what_stands_still_is_no_matter_of_this(self):
        def prepare(net):
            for parameter in net.parameters():
                parameter.zero_()  # no gradient but that of the last bias

        self.assertEqual(self.train(prepare), [0.0])


class ZeroGradients(HooksCase):
    def train(self, forward, steps=8, rates=None):
        torch.manual_seed(0)
        self.net = nn.ModuleList([nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(5, 4)])
        optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        for step in range(steps):
            if rates is not None:
                optimizer.param_groups[0]["lr"] = rates[step]
            optimizer.zero_grad()
            F.cross_entropy(forward(torch.randn(8, 5)), TARGETS).backward()
            optimizer.step()
        found = said("opt.layer_gets_zeros")
        return [value for value in found if value == value]  # until it is not asked

    def test_a_part_that_is_multiplied_by_zero(self):
        def forward(x):
            first, second, past = self.net
            return past(x) + 0.0 * second(first(x).relu())

        self.assertEqual(self.train(forward), [1.0])

    def test_units_that_are_dead(self):
        def forward(x):
            first, second, past = self.net
            return past(x) + second((first(x) - 100).relu())

        self.assertEqual(self.train(forward), [1.0])

    def test_a_gate_that_begins_closed(self):
        def forward(x):
            first, second, past = self.net
            if not hasattr(self, "closed"):
                self.closed = True
                nn.init.zeros_(second.weight)
            return past(x) + second(first(x).relu())

        self.assertEqual(self.train(forward), [0.0])
        del self.closed
        # In the first steps of this warm-up nothing moves.
        self.setUp()
        rates = [0.0] * 3 + [0.01] * 5
        self.assertEqual(self.train(forward, rates=rates), [0.0])

    def test_a_part_that_joins_now_and_then(self):
        def forward(x):
            first, second, past = self.net
            self.calls = getattr(self, "calls", 0) + 1
            return past(x) + (self.calls % 4 == 0) * second(first(x).relu())

        self.assertEqual(self.train(forward), [0.0])

    def test_all_are_zero(self):
        forward = lambda x: 0.0 * self.net[2](x)
        self.assertEqual(self.train(forward), [])


class Followers(HooksCase):
    def train(self, prepare=lambda net, target: None, share=0.05, how=None):
        torch.manual_seed(0)
        net, target = nn.Linear(5, 4), nn.Linear(5, 4)
        pair = nn.ModuleDict({"net": net, "target": target.requires_grad_(False)})
        prepare(net, target)
        WATCH.models.ensure(pair)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            x = torch.randn(8, 5)
            optimizer.zero_grad()
            F.mse_loss(net(x), target(x) + torch.randn(8, 4)).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, other in zip(target.parameters(), net.parameters()):
                    mine.lerp_(other, share) if how is None else how(mine, other)
        return said("opt.follower_apart")

    def test_one_that_begins_from_other_numbers(self):
        self.assertEqual(self.train(), [1.0])

    def test_one_that_begins_as_a_copy(self):
        def prepare(net, target):
            with torch.no_grad():
                for mine, other in zip(target.parameters(), net.parameters()):
                    mine.copy_(other)

        self.assertEqual(self.train(prepare), [0.0])

    def test_where_a_state_was_loaded(self):
        def prepare(net, target):
            net.load_state_dict(net.state_dict())

        self.assertEqual(self.train(prepare), [])

    def test_copies_in_one_go_and_frozen_teachers(self):
        self.assertEqual(self.train(share=1.0), [])
        self.assertEqual(self.train(share=0.0), [])

    def test_what_moves_by_itself(self):
        def noise(mine, other):
            mine.add_(torch.randn_like(mine), alpha=0.1)

        self.assertEqual(self.train(how=noise), [])


class EpsilonVanishes(HooksCase):
    def steps_with(self, optimizer, dtype):
        net = nn.Linear(5, 4, dtype=dtype)
        optimizer = optimizer(net.parameters())
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        return said("opt.epsilon_vanishes")

    def test_in_float16(self):
        adam = torch.optim.Adam
        self.assertEqual(self.steps_with(adam, torch.float16), [1.0])

    def test_where_it_does_not(self):
        for make, dtype in (
            (torch.optim.Adam, torch.float32),
            (torch.optim.Adam, torch.bfloat16),
            (lambda p: torch.optim.Adam(p, eps=1e-4), torch.float16),
        ):
            self.assertEqual(self.steps_with(make, dtype), [0.0])
            CORE.log.clear()
        self.assertEqual(self.steps_with(torch.optim.SGD, torch.float16), [])


if __name__ == "__main__":
    unittest.main()
