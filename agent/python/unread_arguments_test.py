"""Masks, lengths and ends of episodes that a function is given: does it read them?"""

import pathlib
import sys
import unittest
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import SignsCase, TARGETS, last

UNREAD = "opt.argument_unread"
BATCH = [torch.ones(8, 5)] * 4 + [torch.zeros(8)]


class Deaf(nn.Module):
    """Takes a mask and goes without it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, x, pad_mask):
        x = self.layer(x)
        return x - x.mean()


class Masked(nn.Module):
    def __init__(self, uses_it=True):
        super().__init__()
        self.layer = nn.Linear(5, 4)
        self.uses_it = uses_it

    def forward(self, inputs, row_mask):
        if self.uses_it:
            inputs = inputs * row_mask
        return self.layer(inputs)


class May(nn.Module):
    """Takes one that may be left out."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, x, some_mask=None):
        x = self.layer(x)
        return x - x.mean()


class Mean(nn.Module):
    """Can be put in the place of the next one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def encoded(self, x, lengths):
        x = self.layer(x)
        return x.abs()

    def forward(self, x):
        return self.encoded(x, [5] * len(x))


class Packed(Mean):
    def encoded(self, x, lengths):
        return self.layer(x) / sum(lengths)


class Agent:
    def __init__(self, step, net):
        self.step, self.net = step, net

    def learns(self, batch):
        states, actions, rewards, after, done = batch
        target = rewards[:, :4] + 0.9 * self.net(after)
        self.step(self.net)
        return target * (1 - done[0])


class Endless:
    def __init__(self, step, net):
        self.step, self.net = step, net

    def learns_on(self, batch):
        states, actions, rewards, after, done = batch
        target = rewards[:, :4] + 0.9 * self.net(after)
        self.step(self.net)
        return target


class Player:
    """Its episodes have no end."""

    def __init__(self, step, net):
        self.step, self.net = step, net

    def plays(self, environment):
        observation, reward, done = environment.step(1)
        self.step(self.net)
        return observation


class Targets:
    """Computes them in a method of its own."""

    def __init__(self, step, net):
        self.step, self.net = step, net

    def targets(self, rewards, after, dones):
        values = self.net(after)
        return rewards[:, :4] + 0.9 * values

    def learns(self, batch):
        self.targets(batch[2], batch[3], batch[4])
        self.step(self.net)


class Apart:
    """One function makes the targets, and another one has them."""

    def __init__(self, step, net):
        self.step, self.net = step, net

    def fits(self, batch, target):
        states, actions, rewards, after, done = batch
        self.step(self.net)
        return target

    def aims(self, batch):
        states, actions, rewards, after, done = batch
        return rewards[:, :4] + 0.9 * self.net(after) * done[0]

    def learns_apart(self, batch):
        self.fits(batch, self.aims(batch))


class Tasks(nn.Module):
    """Only one of its tasks has a mask, and that one hides by itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 4)
        self.task = "forecast"

    def impute(self, x, mask):
        x = self.layer(x)
        return x - x.mean()

    def forward(self, x, mask=None):
        if self.task == "imputation":
            return self.impute(x, mask)
        return self.layer(x).abs()


class Environment:
    def step(self, action):
        return 0, 0.0, False


class UnreadArguments(SignsCase):
    READS_SOURCE = True

    def trained(self, net, *more):
        self.setUp()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        F.cross_entropy(net(torch.randn(8, 5), *more), TARGETS % 4).backward()
        optimizer.step()
        return last(UNREAD)

    def test_a_mask(self):
        mask = torch.ones(8, 1)
        self.assertEqual(self.trained(Deaf(), mask), 1.0)
        self.assertIsNotNone(last(f"{UNREAD}.site"))
        self.assertEqual(self.trained(Masked(), mask), 0.0)
        self.assertIsNone(last(f"{UNREAD}.site"))
        self.assertEqual(self.trained(Masked(uses_it=False), mask), 1.0)

    def test_the_source_of_another_project(self):
        with mock.patch("_traincheck.running_sources.is_of_another_project"):
            self.assertIsNone(self.trained(Deaf(), torch.ones(8, 1)))

    def test_more_source_than_is_read(self):
        mask = torch.ones(8, 1)
        with mock.patch("_traincheck.source_files.are_cut"):
            self.assertEqual(self.trained(Deaf(), mask), 1.0)
            self.assertIsNone(self.trained(Masked(), mask))

    def test_masks_of_a_split(self):
        def fit(net, train_mask, test_mask):
            self.step(net)

        self.setUp()
        fit(self.net, None, None)
        self.assertIsNone(last(UNREAD))

    def test_a_function_that_pads(self):
        def pads_rows(net, rows, mask):
            self.step(net)
            return F.pad(rows, (0, 1))

        self.setUp()
        pads_rows(self.net, BATCH[0], None)
        self.assertIsNone(last(UNREAD))

    def test_what_may_be_left_out(self):
        self.assertIsNone(self.trained(May()))
        self.assertIsNone(self.trained(Tasks()))

    def test_what_another_class_reads(self):
        for net in (Mean(), Packed()):
            self.assertNotEqual(self.trained(net), 1.0)

    def test_ends_of_episodes(self):
        for kind, learns, expected in (
            (Agent, lambda agent: agent.learns(BATCH), 0.0),
            (Endless, lambda agent: agent.learns_on(BATCH), 1.0),
            (Targets, lambda agent: agent.learns(BATCH), 1.0),
            (Player, lambda agent: agent.plays(Environment()), None),
            (Apart, lambda agent: agent.learns_apart(BATCH), 0.0),
        ):
            self.setUp()
            learns(kind(self.step, self.net))
            self.assertEqual(last(UNREAD), expected, kind)


if __name__ == "__main__":
    unittest.main()
