"""Averages of weights that are updated for each micro-batch of a step."""

import copy
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

AVERAGES = "opt.averages_micro_batches"
STEPS = 16


class Ema:
    """Of a copy of the model."""

    def __init__(self, model, decay=0.9):
        self.copy = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    def share(self):
        return 1 - self.decay

    @torch.no_grad()
    def update(self, model):
        share = self.share()
        for mine, other in zip(self.copy.parameters(), model.parameters()):
            mine.lerp_(other, share)


class EmaThatWarmsUp(Ema):
    calls = 0

    def share(self):
        self.calls += 1
        return 1 - min(self.decay, (1 + self.calls) / (10 + self.calls))


class MeanAverage(Ema):
    """Of all weights so far, each of which counts equally often."""

    calls = 0

    @torch.no_grad()
    def update(self, model):
        self.calls += 1
        for mine, other in zip(self.copy.parameters(), model.parameters()):
            mine.lerp_(other, 1 / self.calls)


class ShadowWeights:
    def __init__(self, model):
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name] = 0.95 * self.shadow[name] + 0.05 * p.detach()


class EmaOfTens(Ema):
    """Each tenth call does something."""

    calls = 0

    @torch.no_grad()
    def update(self, model):
        self.calls += 1
        if self.calls % 10 == 0:
            for mine, other in zip(self.copy.parameters(), model.parameters()):
                mine.lerp_(other, 0.1)


class AverageMeter:
    """Of losses: it has nothing to do with weights."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += float(value)
        self.count += 1


class Torchs:
    """torch's own class."""

    def __init__(self, model, **options):
        self.model = AveragedModel(model, **options)

    def update(self, model):
        self.model.update_parameters(model)


def train(make=Ema, micro=4, each=True, skips=lambda step: False, updates=1, rate=0.1):
    """skips: whether a step is left out, as a scaler does."""
    torch.manual_seed(0)
    net = nn.Linear(5, 3)
    made = make(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for step in range(STEPS):
        for number in range(micro):
            loss = (net(torch.randn(4, 5)) - 1).square().mean() / micro
            loss.backward()
            last = number == micro - 1
            if last:
                if not skips(step):
                    optimizer.step()
                optimizer.zero_grad()
            for _ in range(updates if each or last else 0):
                made.update(loss if isinstance(made, AverageMeter) else net)
    return made


class RepeatedAveragesTest(HooksCase):
    def test_each_micro_batch(self):
        for make in (Ema, ShadowWeights, EmaThatWarmsUp):
            with self.subTest(make.__name__):
                self.setUp()
                train(make)
                self.assertEqual(said(AVERAGES)[-1], 1)

    def test_one_of_torchs(self):
        def make(net):
            return Torchs(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))

        train(make)
        self.assertEqual(said(AVERAGES)[-1], 1)

    def test_once_a_step(self):
        for make in (Ema, ShadowWeights, EmaThatWarmsUp, MeanAverage):
            with self.subTest(make.__name__):
                self.setUp()
                train(make, each=False)
                self.assertEqual(set(said(AVERAGES)), {0})

    def test_no_accumulation(self):
        train(micro=1)
        self.assertEqual(set(said(AVERAGES)), {0})

    def test_means_of_all_weights(self):
        """Each counts equally often: the mean is the same."""
        train(MeanAverage)
        self.assertNotIn(1, said(AVERAGES))
        train(Torchs)
        self.assertNotIn(1, said(AVERAGES))

    def test_several_updates_after_a_step(self):
        train(each=False, updates=3)
        self.assertNotIn(1, said(AVERAGES))

    def test_two_averages(self):
        class Both:
            def __init__(self, net):
                self.averages = Ema(net, 0.9), Ema(net, 0.99)

            def update(self, net):
                for one in self.averages:
                    one.update(net)

        train(Both, each=False)
        self.assertNotIn(1, said(AVERAGES))

    def test_steps_that_are_left_out(self):
        """Several at the beginning, and some later."""
        train(each=False, skips=lambda step: step < 5 or step % 4 == 0)
        self.assertNotIn(1, said(AVERAGES))

    def test_one_that_waits(self):
        train(EmaOfTens, micro=4)
        self.assertNotIn(1, said(AVERAGES))

    def test_a_mean_of_losses(self):
        train(lambda net: AverageMeter())
        self.assertEqual(said(AVERAGES), [])

    def test_another_optimizer_in_between(self):
        """Two networks in turn, and the average of one of them after each."""
        nets = [nn.Linear(5, 5), nn.Linear(5, 5)]
        average = Ema(nets[1])
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        for step in range(STEPS):
            for optimizer in optimizers[: 1 + step % 2]:
                optimizer.zero_grad()
                nets[1](nets[0](torch.randn(4, 5))).square().mean().backward()
                optimizer.step()
                average.update(nets[1])
        self.assertNotIn(1, said(AVERAGES))

    def test_weights_that_are_written_by_hand(self):
        """Without an optimizer's step."""
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        average = Ema(net)
        for step in range(4 * STEPS):
            net(torch.randn(4, 5)).square().mean().backward()
            if step % 4:
                with torch.no_grad():
                    for one in net.parameters():
                        one -= 0.1 * one.grad
            else:
                optimizer.step()
            optimizer.zero_grad()
            average.update(net)
        self.assertNotIn(1, said(AVERAGES))

    def test_backwards_beside_the_training(self):
        """As of saliency maps, after the average was updated."""
        net = nn.Linear(5, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        average = Ema(net)
        for _ in range(STEPS):
            x = torch.randn(4, 5, requires_grad=True)
            net(x).square().mean().backward()
            optimizer.step()
            average.update(net)
            optimizer.zero_grad()
            net(x).sum().backward()
        self.assertNotIn(1, said(AVERAGES))


class OnADeviceTest(RepeatedAveragesTest):
    """Values come later."""

    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
