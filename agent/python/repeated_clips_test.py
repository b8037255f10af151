"""Gradients that are clipped after each micro-batch of a step."""

import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # the wrapped ones

CLIPS = "opt.clips_micro_batches"
STEPS = 6


def train(
    clip=clip_grad_norm_,
    bound=0.01,
    early=True,
    micro=4,
    after=lambda net: None,
    **made
):
    torch.manual_seed(0)
    net = made.get("net") or nn.Linear(5, 3)
    optimizer = made.get("optimizer") or torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(STEPS):
        for number in range(micro):
            (net(torch.randn(4, 5)).square().mean() / micro).backward()
            if early or number == micro - 1:
                clip(net.parameters(), bound)
            after(net)
        optimizer.step()
        optimizer.zero_grad()


class Clearing:
    """Adds up elsewhere what each sample gave, clipped."""

    def __init__(self, zeros):
        self.sums = {}
        self.zeros = zeros

    def __call__(self, net):
        for name, one in net.named_parameters():
            self.sums[name] = self.sums.get(name, 0) + one.grad
            if self.zeros:
                one.grad.zero_()
            else:
                one.grad = None


class RepeatedClipsTest(HooksCase):
    def test_each_micro_batch(self):
        train()
        self.assertEqual(said(CLIPS), [0, 1])

    def test_at_later_looks(self):
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(12):
            train(net=net, optimizer=optimizer)
        self.assertNotIn(0, said(CLIPS)[1:])
        self.assertEqual(said(CLIPS).count(1), 2)

    def test_once_a_step(self):
        train(early=False)
        self.assertEqual(set(said(CLIPS)), {0})

    def test_no_accumulation(self):
        train(micro=1)
        self.assertEqual(set(said(CLIPS)), {0})

    def test_a_measured_norm(self):
        train(bound=float("inf"))
        train(bound=1e6)
        self.assertEqual(set(said(CLIPS)), {0})

    def test_a_norm_that_is_above_the_bound_now_and_then(self):
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for number in range(12):
            for _ in range(2):
                size = 10.0 if number % 3 == 0 else 0.01
                (size * net(torch.ones(4, 5)).sum()).backward()
                clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(said(CLIPS), [0, 1])

    def test_a_bound_that_was_met_twice(self):
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for number in range(12):
            for _ in range(2):
                size = 10.0 if number < 2 else 0.01
                (size * net(torch.ones(4, 5)).sum()).backward()
                clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(said(CLIPS), [0])

    def test_values(self):
        """The norm is not known."""
        train(clip=clip_grad_value_)
        self.assertEqual(said(CLIPS), [])

    def test_cleared_between(self):
        for zeros in (False, True):
            train(after=Clearing(zeros))
        self.assertNotIn(1, said(CLIPS))

    def test_written_between(self):
        """Noise, as private training adds."""

        def add(net):
            net.weight.grad.add_(0.01 * torch.randn(3, 5))

        train(after=add)
        self.assertNotIn(1, said(CLIPS))

    def test_two_losses(self):
        """What one gives is bounded on its own, on purpose."""
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(STEPS):
            net(torch.randn(4, 5)).square().mean().backward()
            clip_grad_norm_(net.parameters(), 0.01)
            net(torch.randn(4, 5)).abs().mean().backward()
            clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(set(said(CLIPS)), {0})

    def test_parts_one_by_one(self):
        net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(STEPS):
            for _ in range(2):
                net(torch.randn(4, 5)).square().mean().backward()
            for part in net:
                clip_grad_norm_(part.parameters(), 0.01)
            for _ in range(2):
                clip_grad_norm_(net.parameters(), 0.005)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(set(said(CLIPS)), {0})

    def test_two_optimizers(self):
        nets = [nn.Linear(5, 5), nn.Linear(5, 5)]
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in nets]
        for _ in range(STEPS):
            for net, optimizer in zip(nets, optimizers):
                optimizer.zero_grad()
                nets[1](nets[0](torch.randn(4, 5))).square().mean().backward()
                clip_grad_norm_(net.parameters(), 0.01)
                optimizer.step()
        self.assertEqual(set(said(CLIPS)), {0})

    def test_steps_left_out(self):
        """As a scaler does, and who meets a loss that is not finite."""
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for number in range(4 * STEPS):
            optimizer.zero_grad(set_to_none=number % 3 == 0)
            net(torch.randn(4, 5)).square().mean().backward()
            clip_grad_norm_(net.parameters(), 0.01)
            if number % 4 == 0:
                optimizer.step()
        self.assertEqual(set(said(CLIPS)), {0})

    def test_a_window_left_open(self):
        """Once, as the data end."""
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(STEPS):
            for _ in range(2 if step == 3 else 1):
                net(torch.randn(4, 5)).square().mean().backward()
                clip_grad_norm_(net.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(set(said(CLIPS)), {0})

    def test_closures(self):
        net = nn.Linear(5, 3)
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
        x = torch.randn(4, 5)

        def closure():
            optimizer.zero_grad(set_to_none=False)
            loss = net(x).square().mean()
            loss.backward()
            clip_grad_norm_(net.parameters(), 0.01)
            return loss

        for _ in range(STEPS):
            optimizer.step(closure)
        self.assertNotIn(1, said(CLIPS))

    def test_gradients_that_seldom_exceed_the_bound(self):
        net = nn.Linear(5, 3)
        bounds = iter([0.001] + [1e3] * 11)
        train(clip=lambda some, _: clip_grad_norm_(some, next(bounds, 1e3)), net=net)
        self.assertEqual(set(said(CLIPS)), {0})


class OnADeviceTest(RepeatedClipsTest):
    """The norms come later."""

    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
