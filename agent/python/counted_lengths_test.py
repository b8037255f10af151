"""Schedules whose length was counted in batches and that are stepped once a pass, and
right ones that come close to it."""

import math
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

EPOCHS = 4


def loader_of(rows=32, batch=4):
    rows = data.TensorDataset(torch.randn(rows, 5), torch.randn(rows, 1))
    return data.DataLoader(rows, batch, shuffle=True)


def cosine_of(optimizer, steps):
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)


class Trainer:
    def __init__(self, net, train_loader):
        self.loader = train_loader
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.schedule = lr_scheduler.LinearLR(
            self.optimizer, 1.0, 0.1, total_iters=len(self.loader) * EPOCHS
        )


class Lengths(HooksCase):
    def setUp(self):
        super().setUp()
        self.net = nn.Linear(5, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self, loader, schedule, each=None, optimizer=None, accumulate=1):
        """each: the scheduler is stepped after so many steps; None: after a pass."""
        optimizer, steps = optimizer or self.optimizer, 0
        for _ in range(EPOCHS):
            for number, (x, y) in enumerate(loader):
                F.mse_loss(self.net(x), y).backward()
                if (number + 1) % accumulate:
                    continue
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
                if each and steps % each == 0:
                    schedule.step()
            if not each:
                schedule.step()
        optimizer.step()
        return said("schedule.counts_batches")

    def assertMisread(self, found):
        self.assertEqual(set(found), {1.0})

    def test_a_cosine_of_all_batches(self):
        loader = loader_of()
        schedule = lr_scheduler.CosineAnnealingLR(
            self.optimizer, T_max=EPOCHS * len(loader)
        )
        self.assertMisread(self.train(loader, schedule))

    def test_a_length_through_variables_and_a_function(self):
        loader = loader_of()
        steps = len(loader)
        total = int(EPOCHS * steps)
        self.assertMisread(self.train(loader, cosine_of(self.optimizer, total)))

    def test_a_length_of_micro_batches(self):
        loader, accumulation = loader_of(), 2
        updates = math.ceil(len(loader) / accumulation)
        schedule = lr_scheduler.PolynomialLR(self.optimizer, updates * EPOCHS)
        self.assertMisread(self.train(loader, schedule, accumulate=2))

    def test_an_attribute_of_a_trainer(self):
        loader = loader_of()
        trainer = Trainer(self.net, loader)
        found = self.train(loader, trainer.schedule, optimizer=trainer.optimizer)
        self.assertMisread(found)

    def test_after_each_step(self):
        loader = loader_of()
        schedule = cosine_of(self.optimizer, EPOCHS * len(loader))
        self.assertEqual(set(self.train(loader, schedule, each=1)), {0.0})

    def test_after_some_steps(self):
        loader = loader_of()
        schedule = cosine_of(self.optimizer, EPOCHS * len(loader) // 4)
        self.assertEqual(set(self.train(loader, schedule, each=4)), {0.0})

    def test_a_length_of_epochs(self):
        loader = loader_of()
        schedule = cosine_of(self.optimizer, EPOCHS)
        self.assertEqual(self.train(loader, schedule), [])

    def test_steps_that_are_made_epochs_again(self):
        loader = loader_of()
        steps = len(loader)
        total = EPOCHS * steps
        schedule = lr_scheduler.CosineAnnealingLR(self.optimizer, total // steps)
        self.assertEqual(self.train(loader, schedule), [])

    def test_a_length_of_something_else(self):
        loader, classes = loader_of(), ["a", "b", "c"]
        schedule = lr_scheduler.StepLR(self.optimizer, step_size=len(classes))
        self.assertEqual(self.train(loader, schedule), [])

    def test_a_function_that_counts_epochs_in_batches(self):
        loader = loader_of()
        total = EPOCHS * len(loader)
        schedule = lr_scheduler.LambdaLR(
            self.optimizer, lambda epoch: 1 - epoch * len(loader) / total
        )
        self.assertEqual(self.train(loader, schedule), [])

    def test_one_that_joins_after_the_first_pass(self):
        loader = loader_of()
        schedule = cosine_of(self.optimizer, EPOCHS * len(loader))
        for _ in range(3):
            for x, y in loader:
                self.optimizer.zero_grad()
                F.mse_loss(self.net(x), y).backward()
                self.optimizer.step()
        self.assertEqual(set(self.train(loader, schedule, each=1)), {0.0})


if __name__ == "__main__":
    unittest.main()
