"""Samples that lie sorted by class: is that how a training is given them?"""

import unittest

import torch
from hooks_case import CORE, HooksCase
from torch import nn
from torch.nn import functional as F
from torch.utils import data

WIDTH = 5


def scalars(name):
    return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]


class SortedSamples(HooksCase):
    def train(self, loader):
        net = nn.Linear(WIDTH, 3)
        for x, y in loader:
            F.cross_entropy(net(x), y).backward()

    def test_sorted_samples(self):
        name = "loss.sorted_batches"
        x, y = torch.randn(24, WIDTH), torch.arange(24) // 8
        for labels, options, wrong in (
            (y, {}, [1.0]),
            (y.flip(0), {}, [1.0]),
            (y, {"shuffle": True}, [0.0]),
            (y[torch.randperm(24)], {}, [0.0]),
            (torch.zeros_like(y), {}, [0.0]),
        ):
            HooksCase.setUp(self)
            samples = data.TensorDataset(x, labels)
            self.train(data.DataLoader(samples, batch_size=4, **options))
            self.assertEqual(scalars(name), wrong)

    def test_sorted_samples_whose_labels_no_loss_needs(self):
        x, y = torch.randn(24, WIDTH), torch.arange(24) // 8
        for loss, wrong in (
            (lambda out, x, y: F.mse_loss(out, x[:, :3]), []),
            (lambda out, x, y: F.mse_loss(out, F.one_hot(y, 3).float()), [1.0]),
            (lambda out, x, y: -out.log_softmax(1)[range(len(y)), y].mean(), [1.0]),
            (lambda out, x, y: (out * F.one_hot(y, 3)).square().sum(), [1.0]),
        ):
            HooksCase.setUp(self)
            net = nn.Linear(WIDTH, 3)
            for inputs, labels in data.DataLoader(data.TensorDataset(x, y), 4):
                loss(net(inputs), inputs, labels).backward()
            self.assertEqual(scalars("loss.sorted_batches"), wrong)

    def test_sorted_parts_and_lists(self):
        name = "loss.sorted_batches"

        class Own(data.Dataset):
            def __init__(self, labels):
                self.labels = labels

            def __len__(self):
                return len(self.labels)

            def __getitem__(self, index):
                return torch.ones(WIDTH), int(self.labels[index])

        y = [0] * 8 + [1] * 8 + [2] * 8
        for labels in (y, torch.tensor(y).numpy()):
            HooksCase.setUp(self)
            self.train(data.DataLoader(Own(labels), batch_size=4))
            self.assertEqual(scalars(name), [1.0])
        HooksCase.setUp(self)
        part = data.Subset(Own(y), range(0, 24, 2))
        self.train(data.DataLoader(part, batch_size=2))
        self.assertEqual(scalars(name), [1.0])

    def test_lists_that_are_no_labels(self):
        class Own(data.TensorDataset):  # a subclass: its attributes are looked at
            classes = None

        samples = Own(torch.randn(24, WIDTH), torch.arange(24) % 3)
        samples.classes = [0, 1]
        for part in (samples, data.Subset(samples, range(4, 24))):
            HooksCase.setUp(self)
            self.train(data.DataLoader(part, batch_size=1))
            self.assertEqual(scalars("loss.sorted_batches"), [0.0])

    def test_an_evaluation_may_be_sorted(self):
        samples = data.TensorDataset(torch.randn(24, WIDTH), torch.arange(24) // 8)
        with torch.no_grad():
            list(data.DataLoader(samples, batch_size=4))
        nn.Linear(WIDTH, 3)(torch.ones(1, WIDTH)).sum().backward()
        self.assertEqual(scalars("loss.sorted_batches"), [])


if __name__ == "__main__":
    unittest.main()
