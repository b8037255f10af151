"""Checkpoints that hold the state of an optimizer which has never stepped."""

import io
import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

UNSTEPPED = "opt.saves_unstepped"
ADAM = torch.optim.Adam


def save(model, *optimizers):
    content = {"model": model.state_dict()}
    for number, one in enumerate(optimizers):
        content[f"optimizer {number}"] = one.state_dict()
    torch.save(content, io.BytesIO())


def fit(model, optimizer, steps=8, after=lambda: None):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 5)).square().mean().backward()
        optimizer.step()
        after()


class UnsteppedStatesTest(HooksCase):
    def setUp(self):
        super().setUp()
        self.model = nn.Linear(5, 3)

    def adam(self, lr=0.01, **options):
        return ADAM(self.model.parameters(), lr=lr, **options)

    def test_another_one_steps(self):
        """The classic: the training makes its own."""
        saved, stepping = self.adam(), self.adam()
        fit(self.model, stepping)
        save(self.model, saved)
        fit(self.model, stepping)
        self.assertEqual(said(UNSTEPPED), [1])

    def test_it_is_gone_when_the_next_one_steps(self):
        saved, again = self.adam(), nn.Linear(5, 3)
        fit(self.model, self.adam())
        save(self.model, saved)
        fit(again, ADAM(again.parameters()))
        self.assertEqual(said(UNSTEPPED), [1])

    def test_the_one_that_steps(self):
        optimizer = self.adam()
        fit(self.model, optimizer, after=lambda: save(self.model, optimizer))
        self.assertEqual(set(said(UNSTEPPED)) - {0}, set())
        self.assertIn(0, said(UNSTEPPED))

    def test_before_the_training(self):
        optimizer = self.adam()
        save(self.model, optimizer)
        fit(self.model, optimizer)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_after_a_trial_with_another_one(self):
        """As of learning rates; it is saved, and steps next."""
        saved = self.adam()
        fit(self.model, self.adam())
        save(self.model, saved)
        fit(self.model, saved)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_both_are_saved(self):
        saved, stepping = self.adam(), self.adam()
        fit(self.model, stepping, after=lambda: save(self.model, saved, stepping))
        self.assertNotIn(1, said(UNSTEPPED))

    def test_each_in_a_file_of_its_own(self):
        saved, stepping = self.adam(), self.adam()
        fit(self.model, stepping)
        save(self.model, saved)
        save(self.model, stepping)
        fit(self.model, stepping)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_another_phase(self):
        """With other options, of another class or for other parameters."""
        others = (
            self.adam(lr=0.1),
            torch.optim.AdamW(self.model.parameters(), lr=0.01),
            ADAM([self.model.weight], lr=0.01),
        )
        for stepping in others:
            saved = self.adam()
            fit(self.model, stepping)
            save(self.model, saved)
            fit(self.model, stepping)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_one_that_keeps_nothing(self):
        """Plain SGD has no state."""
        saved, stepping = (
            torch.optim.SGD(self.model.parameters(), lr=0.01) for _ in range(2)
        )
        fit(self.model, stepping)
        save(self.model, saved)
        fit(self.model, stepping)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_made_anew(self):
        """For each phase, whose beginning is saved."""
        for _ in range(4):
            optimizer = self.adam()
            save(self.model, optimizer)
            fit(self.model, optimizer)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_a_loaded_state(self):
        first = self.adam()
        fit(self.model, first)
        saved, stepping = self.adam(), self.adam()
        saved.load_state_dict(first.state_dict())
        fit(self.model, stepping)
        save(self.model, saved)
        fit(self.model, stepping)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_problems_of_their_own(self):
        x = torch.randn(4, 5)
        saved = torch.optim.LBFGS(self.model.parameters())
        for _ in range(5):
            optimizer = torch.optim.LBFGS(self.model.parameters())

            def closure():
                optimizer.zero_grad()
                loss = self.model(x).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)
            save(self.model, saved)
        self.assertNotIn(1, said(UNSTEPPED))

    def test_rates_as_tensors(self):
        saved, stepping = (
            ADAM(self.model.parameters(), lr=torch.tensor(0.01)) for _ in range(2)
        )
        fit(self.model, stepping)
        save(self.model, saved)
        fit(self.model, stepping)
        self.assertEqual(said(UNSTEPPED), [1])


if __name__ == "__main__":
    unittest.main()
