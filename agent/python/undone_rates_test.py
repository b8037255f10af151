"""Schedulers of one optimizer that undo, now and then, what another one did."""

import pathlib
import sys
import unittest

import torch
from torch.optim import lr_scheduler as schedules

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, Net, said, train_step

NAME = "schedule.undone"


def rises(step):
    return min(1.0, (step + 1) / 3)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class UndoneRates(HooksCase):
    def rates(self, make, steps):
        """Steps with schedulers that are stepped side by side."""
        optimizer = sgd(net := Net())
        schedulers = make(optimizer)
        for _ in range(steps):
            train_step(net, optimizer)
            for scheduler in schedulers:
                scheduler.step()
        return said(NAME)

    def test_milestones_beside_it(self):
        restarts = schedules.CosineAnnealingWarmRestarts
        for order in (1, -1):
            for milestones, expected in (([2, 5], 1.0), ([2], 0.0)):
                self.setUp()
                made = lambda o: [
                    restarts(o, T_0=4),
                    schedules.MultiStepLR(o, milestones),
                ][::order]
                self.assertEqual(self.rates(made, steps=9)[-1], expected)

    def test_milestones_of_epochs(self):
        optimizer = sgd(net := Net())
        computed = schedules.LambdaLR(optimizer, rises)
        decay = schedules.StepLR(optimizer, step_size=2)
        for _ in range(10):
            for _ in range(3):
                train_step(net, optimizer)
                computed.step()
            decay.step()
        self.assertEqual(said(NAME)[-1], 1.0)

    def test_phases_that_take_turns(self):
        optimizer = sgd(net := Net())
        both = [
            schedules.LambdaLR(optimizer, rises),
            schedules.ExponentialLR(optimizer, 0.5),
        ]
        for phase in range(5):
            for _ in range(3):
                train_step(net, optimizer)
                both[phase % 2].step()
        self.assertNotIn(1.0, said(NAME))


if __name__ == "__main__":
    unittest.main()
