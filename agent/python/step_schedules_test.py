"""Steps of StepLR that were given in epochs and count batches, and right ones."""

import pathlib
import sys
import unittest

import torch
from torch.optim import lr_scheduler
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, SignsCase, said


class StepsOfBatches(SignsCase):
    NAME = "schedule.milestones_in_first_pass"

    def values(self):
        return {value for value in said(self.NAME) if value == value}

    def of(self, size, gamma=0.1, batches=20, passes=3, every="batch", anew=False):
        """every: what it is stepped with. anew: the rate begins again in each pass."""
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = lr_scheduler.StepLR(optimizer, size, gamma)
        rows = data.DataLoader(torch.randn(4 * batches, 5), batch_size=4)
        for _ in range(passes):
            for number, _ in enumerate(rows):
                self.step(optimizer=optimizer)
                if every == "batch":
                    scheduler.step()
                if every == "part" and number == 3:
                    break
            if every != "batch":
                scheduler.step()
            if anew:
                optimizer.param_groups[0]["lr"] = 0.1
        return self.values()

    def test_epochs_in_each_step(self):
        self.assertEqual(self.of(5), {0.0, 1.0})
        self.assertEqual(self.of(2, gamma=0.5, passes=4), {0.0})  # a twelve-thousandth
        self.assertEqual(self.of(2, gamma=0.5, batches=32), {0.0, 1.0})
        self.assertEqual(self.of(1, batches=40, passes=1), {0.0, 1.0})

    def test_a_rate_that_is_gone_after_some_passes(self):
        self.assertEqual(self.of(4, batches=8, passes=4), {0.0, 1.0})
        self.assertEqual(self.of(8, batches=8, passes=7), {0.0})  # a fall in each pass
        self.assertEqual(self.of(1, gamma=0.6, batches=8, passes=5), {0.0})

    def of_no_loader(self, every):
        """Evaluated after so many steps."""
        HooksCase.setUp(self)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        scheduler = lr_scheduler.StepLR(optimizer, 4)
        for step in range(1, 31):
            self.step(optimizer=optimizer)
            scheduler.step()
            if step % every == 0:
                with torch.no_grad():
                    self.net(torch.randn(4, 5))
        return self.values()

    def test_batches_of_no_loader(self):
        self.assertEqual(self.of_no_loader(every=6), {0.0, 1.0})
        for every in (1, 4, 40):  # after each fall, or where all is over
            self.assertEqual(self.of_no_loader(every), {0.0})

    def test_one_pass(self):
        self.assertEqual(self.of(5, batches=60, passes=1), {0.0})

    def test_epochs(self):
        self.assertEqual(self.of(1, passes=10, batches=6, every="epoch"), {0.0})
        self.assertEqual(self.of(1, passes=10, batches=60, every="part"), {0.0})
        self.assertEqual(self.of(1, passes=10, batches=1), {0.0})

    def test_steps(self):
        self.assertEqual(self.of(20, passes=8), {0.0})
        self.assertEqual(self.of(40, batches=60), {0.0})
        self.assertEqual(self.of(1, gamma=0.95, passes=8), set())

    def test_a_rate_that_begins_again(self):
        self.assertEqual(self.of(4, anew=True), {0.0})
        self.assertEqual(self.of(2, anew=True), {0.0})

    def test_one_for_each_pass(self):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        rows = data.DataLoader(torch.randn(80, 5), batch_size=4)
        for _ in range(3):
            optimizer.param_groups[0]["initial_lr"] = 0.1
            optimizer.param_groups[0]["lr"] = 0.1
            scheduler = lr_scheduler.StepLR(optimizer, 3)
            for _ in rows:
                self.step(optimizer=optimizer)
                scheduler.step()
        self.assertEqual(self.values(), {0.0})

    def test_two_rates(self):
        """One of which somebody sets."""
        parameters = list(self.net.parameters())
        groups = [{"params": [one]} for one in parameters]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        scheduler = lr_scheduler.StepLR(optimizer, 5)
        rows = data.DataLoader(torch.randn(80, 5), batch_size=4)
        for _ in range(3):
            for _ in rows:
                self.step(optimizer=optimizer)
                scheduler.step()
                optimizer.param_groups[1]["lr"] = 0.01
        self.assertEqual(self.values(), {0.0})


if __name__ == "__main__":
    unittest.main()
