"""Averages that classes of the user's keep in lists and dictionaries."""

import copy
import functools
import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

ITSELF = "opt.average_is_model"
LEADS, FLEES, APART = "opt.follower_leads", "opt.follower_flees", "opt.follower_apart"


class EMA:
    """Entries are new tensors after each update."""

    def __init__(self, model, share):
        self.share = share
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            old = self.shadow[name]
            self.shadow[name] = (1 - self.share) * old + self.share * p


class AverageOfWeights:
    """Entries are written to."""

    def __init__(self, model, share):
        self.share = share
        self.kept = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def __call__(self, model):
        for mine, other in zip(self.kept, model.parameters()):
            mine.add_(other - mine, alpha=self.share)

    update = __call__


class RunningMean:
    """Speaks of its decay alone."""

    def __init__(self, model, share):
        self.means = [p.detach().clone() for p in model.parameters()]
        self.decay = 1 - share

    @torch.no_grad()
    def step(self, model):
        for mean, p in zip(self.means, model.parameters()):
            mean.sub_((1 - self.decay) * (mean - p))

    def update(self, model):
        self.step(model)


class RunningMeansOfGradients(RunningMean):
    def __init__(self, model, share):
        super().__init__(model, share)
        self.means = [torch.zeros_like(p) for p in model.parameters()]

    def update(self, model):
        for mean, p in zip(self.means, model.parameters()):
            mean.mul_(self.decay).add_(p.grad, alpha=1 - self.decay)


class EmaOfOthers(AverageOfWeights):
    def __init__(self, model, share):
        super().__init__(model, share)
        self.kept = [torch.randn_like(p) for p in model.parameters()]

    def update(self, model):
        self(model)


class AverageOfAModel:
    def __init__(self, model, share, copies=False):
        self.share = share
        self.model = model if not copies else copy.deepcopy(model)
        self.model.requires_grad_(not copies)

    @torch.no_grad()
    def update(self, model):
        for mine, p in zip(self.model.parameters(), model.parameters()):
            mine.copy_((1 - self.share) * mine + self.share * p)


class ShadowOfItsModel(EMA):
    """Has the source, too."""

    def __init__(self, model, share):
        super().__init__(model, share)
        self.model = model

    def update(self, model):
        super().update(self.model)


class StepwiseAverage(ShadowOfItsModel):
    """Goes on from the average, on purpose."""

    @torch.no_grad()
    def update(self, model):
        super().update(model)
        for name, p in self.model.named_parameters():
            p.copy_(self.shadow[name])


class AverageThatDecaysItsModel:
    """Has the average and the model, whose weights it also makes a little smaller."""

    def __init__(self, model, share):
        self.share = share
        self.model, self.average = model, copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for p, mine in zip(self.model.parameters(), self.average.parameters()):
            mine.lerp_(p, self.share)
            p.mul_(1 - 1e-6)


class TrainerWithAnEma:
    """Steps in a method of its own, and hardly moves at first."""

    def __init__(self, model, share):
        self.model, self.ema = model, None
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-9)

    def update(self, model):
        self.optimizer.zero_grad()
        model(torch.randn(8, 5)).square().mean().backward()
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update(model)


class ShadowOfGradients:
    """Of the shapes of the parameters, and no average of them."""

    def __init__(self, model, share):
        self.share = share
        self.shadow = [torch.zeros_like(p) for p in model.parameters()]

    def update(self, model):
        for mine, p in zip(self.shadow, model.parameters()):
            mine.lerp_(p.grad, self.share)


class BestWeights:
    """Kept by a class that averages other things."""

    def __init__(self, model, share):
        self.average_loss = 0.0
        self.best = {n: p.detach().clone() for n, p in model.named_parameters()}

    def update(self, model):
        self.average_loss *= 0.9
        self.best = {n: p.detach().clone() for n, p in model.named_parameters()}


class AveragingClasses(HooksCase):
    def train(self, kind, share=0.9, steps=20):
        self.setUp()
        net = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        keeper = kind(net, share)
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(8, 5)).square().mean().backward()
            optimizer.step()
            keeper.update(net)
        return {name: set(said(name)) for name in (LEADS, FLEES, APART, ITSELF)}

    def test_shares_that_are_exchanged(self):
        for kind in (EMA, AverageOfWeights, RunningMean):
            self.assertEqual(self.train(kind)[LEADS], {1.0}, kind)

    def test_the_wrong_sign(self):
        for kind in (EMA, AverageOfWeights):
            self.assertEqual(self.train(kind, -0.01)[FLEES], {1.0}, kind)

    def test_one_that_begins_apart(self):
        self.assertEqual(self.train(EmaOfOthers, 0.01)[APART], {1.0})

    def test_right_ones(self):
        for kind in (EMA, AverageOfWeights, RunningMean):
            right = self.train(kind, 0.01)
            for name in (LEADS, FLEES, APART):
                self.assertEqual(right[name], {0.0}, kind)

    def test_the_trained_model_itself(self):
        self.assertEqual(self.train(AverageOfAModel, 0.1)[ITSELF], {0.0, 1.0})

    def test_a_copy_of_it(self):
        copied = functools.partial(AverageOfAModel, copies=True)
        self.assertNotIn(1.0, self.train(copied, 0.1)[ITSELF])

    def test_a_trainer_that_steps(self):
        self.assertNotIn(1.0, self.train(TrainerWithAnEma)[ITSELF])

    def test_the_average_beside_its_model(self):
        self.assertEqual(self.train(AverageThatDecaysItsModel, 0.1)[ITSELF], {0.0})

    def test_what_has_its_source(self):
        for kind in (ShadowOfItsModel, StepwiseAverage):
            self.assertEqual(self.train(kind, 0.1)[ITSELF], {0.0}, kind)

    def test_other_things_of_the_same_shapes(self):
        for kind in (ShadowOfGradients, RunningMeansOfGradients, BestWeights):
            for found in self.train(kind).values():
                self.assertNotIn(1.0, found, kind)

    def test_what_is_kept_may_go(self):
        net = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            keeper = EMA(net, 0.9)
            net(torch.randn(8, 5)).square().mean().backward()
            optimizer.step()
            keeper.update(net)
            keeper.shadow.clear()
        self.assertNotIn(1.0, said(LEADS))


if __name__ == "__main__":
    unittest.main()
