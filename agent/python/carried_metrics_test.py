"""Tests of metrics that go on from one evaluation to the next (carried_metrics.py)."""

import unittest
from collections import deque

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from hooks_case import TARGETS, SignsCase, said

NAME = "opt.metric_carried_on"


class Accuracy:
    def __init__(self):
        self.reset()

    def reset(self):
        self.right = self.total = 0

    def update(self, scores, y):
        self.right += (scores.argmax(1) == y).sum().item()
        self.total += len(y)

    def compute(self):
        return self.right / max(1, self.total)


class OfTensors(Accuracy):
    """With other names of methods, and a result of two parts."""

    def reset(self):
        self.counts = torch.zeros(4, 4, dtype=torch.long)

    def add(self, scores, y):
        for one, other in zip(scores.argmax(1), y):
            self.counts[one, other] += 1

    update = add

    def result(self):
        right = self.counts.diag().sum()
        return {"accuracy": right / self.counts.sum(), "all": self.counts}

    compute = result


class OfLists(Accuracy):
    def reset(self):
        self.scores, self.sums = [], {"loss": 0.0, "count": 0}

    def update(self, scores, y):
        self.scores.append(scores)
        self.sums["loss"] += F.cross_entropy(scores, y).item() * len(y)
        self.sums["count"] += len(y)

    def compute(self):
        return numpy.float64(self.sums["loss"] / self.sums["count"])


class OfAModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("right", torch.tensor(0.0))
        self.register_buffer("average", torch.tensor(0.0))

    def reset(self):
        self.right.zero_()
        self.average.zero_()

    def update(self, scores, y):
        self.right += (scores.argmax(1) == y).sum()
        self.average += len(y)

    def compute(self):
        return self.right / self.average


class BeginsAnewItself(Accuracy):
    def compute(self):
        value = super().compute()
        self.right = self.total = 0
        return value


class LooksFromWhereItWas(Accuracy):
    """Adds up, and gives what came since it was asked last."""

    def reset(self):
        super().reset()
        self.asked = self.right_then = 0

    def compute(self):
        right, total = self.right - self.right_then, self.total - self.asked
        self.right_then, self.asked = self.right, self.total
        return right / total


class RunningAccuracy(Accuracy):
    pass


class OfTheLastOnes(Accuracy):
    def reset(self):
        self.values, self.total = deque(maxlen=64), 0

    def update(self, scores, y):
        self.values.append((scores.argmax(1) == y).float().mean().item())
        self.total += len(y)

    def compute(self):
        return sum(self.values) / len(self.values)


class Decaying(Accuracy):
    def __init__(self, decay=0.9):
        self.decay, self.mean, self.count = decay, 0.0, 0

    def update(self, scores, y):
        share = (scores.argmax(1) == y).float().mean().item()
        self.mean = self.decay * self.mean + (1 - self.decay) * share
        self.count += 1

    def compute(self):
        return self.mean / (1 - self.decay**self.count)


class Votes(Accuracy):
    """Predictions, averaged over the epochs on purpose."""

    def reset(self):
        self.sums, self.total, self.place = torch.zeros(24, 4), 0, 0

    def update(self, scores, y):
        begin = self.total % 24
        self.sums[begin : begin + len(y)] += scores.softmax(1)
        self.total += len(y)

    def compute(self):
        return self.sums / self.total


class LastBatch(Accuracy):
    def update(self, scores, y):
        self.right, self.total = (scores.argmax(1) == y).sum().item(), len(y)


class Best(Accuracy):
    """Is given the result of an evaluation, not its batches."""

    def reset(self):
        self.best, self.evaluations = 0.0, 0

    def update(self, scores, y):
        self.evaluations += 1
        self.best = max(self.best, (scores.argmax(1) == y).float().mean().item())

    def compute(self):
        return self.best


WRONG = (Accuracy, OfTensors, OfLists, OfAModule)


def data(count=24):
    return DataLoader(
        TensorDataset(torch.randn(count, 5), torch.arange(count) % 4), batch_size=8
    )


class CarriedMetrics(SignsCase):
    def setUp(self):
        super().setUp()
        self.step()  # from here on classes are observed
        self.loader = data()

    @torch.no_grad()
    def evaluate(self, metric, loader=None):
        for x, y in loader or self.loader:
            metric.update(self.net(x), y)
        return metric.compute()

    def train(self, metric, times=5, between=None, evaluate=None):
        """What is said once it was evaluated so often."""
        for _ in range(times):
            (evaluate or self.evaluate)(metric)
            self.step()
            if between is not None:
                between(metric)
        return set(said(NAME))

    def test_nobody_resets_it(self):
        for kind in WRONG:
            self.setUp()
            self.assertEqual(self.train(kind()), {1.0}, kind)

    def test_it_is_reset(self):
        for kind in WRONG:
            self.setUp()
            found = self.train(kind(), between=lambda metric: metric.reset())
            self.assertEqual(found, {0.0}, kind)

    def test_it_is_reset_in_another_way(self):
        def by_hand(metric):
            metric.right = metric.total = 0

        def made_anew(metric):
            metric.__init__()

        for between in (by_hand, made_anew):
            self.setUp()
            self.assertEqual(self.train(Accuracy(), between=between), {0.0})
        self.setUp()
        self.assertEqual(self.train(BeginsAnewItself()), {0.0})

    def test_another_one_each_time(self):
        found = self.train(None, evaluate=lambda _: self.evaluate(Accuracy()))
        self.assertEqual(found, set())

    def test_what_looks_back_on_purpose(self):
        for kind in (
            RunningAccuracy,
            LooksFromWhereItWas,
            OfTheLastOnes,
            Decaying,
            Votes,
            LastBatch,
        ):
            self.setUp()
            self.assertNotIn(1.0, self.train(kind()), kind)

    def test_results_of_evaluations(self):
        best = Best()

        @torch.no_grad()
        def evaluate(_):
            for x, y in self.loader:
                self.net(x)
            best.update(self.net(x), y)
            best.compute()

        self.assertEqual(self.train(None, evaluate=evaluate), set())

    def test_of_the_training(self):
        """Running accuracy, asked now and then."""
        metric = Accuracy()
        for _ in range(4):
            for place, (x, y) in enumerate(self.loader):
                scores = self.net(x)
                self.optimizer.zero_grad()
                F.cross_entropy(scores, y).backward()
                self.optimizer.step()
                with torch.no_grad():
                    metric.update(scores, y)
                    metric.update(scores, y)
                if place % 2 == 1:
                    metric.compute()
        self.assertEqual(said(NAME), [])

    def test_over_several_loaders(self):
        """One number for all of them; and of each new part of a stream before it is
        trained with."""
        others = [data(16) for _ in range(5)]

        def all_of_them(metric):
            metric.reset()
            for loader in others:
                self.evaluate(metric, loader)

        self.assertEqual(self.train(Accuracy(), evaluate=all_of_them), {0.0})
        self.setUp()

        def next_one(metric):
            self.evaluate(metric, others.pop())

        self.assertEqual(self.train(Accuracy(), evaluate=next_one), set())

    def test_twice_in_a_row(self):
        """Nothing is trained in between: noise is averaged out."""
        metric = Accuracy()
        for _ in range(5):
            metric.reset()
            for _ in range(3):
                self.evaluate(metric)
            self.step()
        self.assertEqual(set(said(NAME)), {0.0})

    def test_over_trainings(self):
        """Of several seeds, one after another."""
        metric = Accuracy()
        for _ in range(4):
            self.net = nn.Linear(5, 4)
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.step()
            self.evaluate(metric)
        self.step()
        self.assertEqual(said(NAME), [])

    def test_nobody_asks_it(self):
        metric = Accuracy()
        metric.compute = lambda: None
        self.assertEqual(self.train(metric), set())

    def test_what_is_read_without_a_loader(self):
        @torch.no_grad()
        def evaluate(metric):
            for _ in range(3):
                metric.update(self.net(torch.randn(8, 5)), TARGETS)
            metric.compute()

        self.assertEqual(self.train(Accuracy(), evaluate=evaluate), set())


if __name__ == "__main__":
    unittest.main()
