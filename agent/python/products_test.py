"""What graphs of losses say of products: numbers of samples that meet those of others,
masks of log-probabilities, and gradients that the user gives."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase, HooksCase, last

WORDS, WIDTH, STEPS, SAMPLES = 20, 8, 7, 4


class CrossedProducts(GraphCase):
    NAME = "loss.multiplies_crosswise"

    def setUp(self):
        super().setUp()
        self.row, self.column = torch.rand(8), torch.rand(8, 1)

    @property
    def scores(self):
        return nn.Linear(5, 8)(torch.randn(8, 5))

    @property
    def losses(self):
        return self.scores.square().mean(1)

    def clipped(self):
        ratio = self.losses.exp()
        return torch.min(ratio * self.column, ratio.clamp(0.8, 1.2) * self.column)

    def test_a_column_times_a_row(self):
        for loss in (
            (self.column * self.losses).mean(),
            (self.losses * self.column).sum() / 8,
            (self.losses / self.column).mean(),
            -(self.losses * self.column).mean(),
            -self.clipped().mean(),
            (nn.Linear(5, 1)(torch.randn(8, 5)) * self.losses).mean(),
        ):
            self.assertEqual(self.of(loss), [1.0])

    def test_a_row_and_a_column_that_are_added(self):
        advantages = self.row - self.column
        for loss in (
            (self.losses * advantages).mean(),
            -torch.min(
                self.losses * advantages, self.losses.clamp(0.1, 2) * advantages
            ).mean(),
            (advantages * self.losses[:, None]).sum(),
        ):
            self.assertEqual(self.of(loss), [1.0])

    def test_tables_of_pairs(self):
        x = torch.rand(8, 5)
        weight = nn.Parameter(torch.rand(8))
        for table in (
            torch.rand(8, 8),
            x @ x.t(),
            torch.cdist(x, x),
            self.row - self.row[:, None],  # differences of pairs
            self.row + self.row[:, None],
            (self.row - self.column).tril(),
            self.row.expand(8, 8),
            self.column.expand(8, 8),
            torch.ones(8, 8),
            torch.eye(8),
            self.row * self.column,
            (self.row - self.column).abs(),
            self.row < self.column,
        ):
            self.assertNotIn(1.0, self.of((self.losses * table).mean()))
        for loss in (
            (weight * (self.row - self.column)).mean(),  # of a linear layer
            (self.scores * (self.row - self.column)).mean(),
            (self.losses * (self.row - self.column)).square().mean(),
            (self.losses * (self.row - self.column)).softmax(1).max(1)[0].mean(),
            (self.losses[:3] * (self.row - self.column)[:3, :3]).mean(),
        ):
            self.assertNotIn(1.0, self.of(loss))

    def test_each_has_its_own(self):
        for loss in (
            (self.row * self.losses).mean(),
            (self.losses / self.row).sum(),
        ):
            self.assertEqual(self.of(loss), [0.0])

    def test_what_is_no_such_product(self):
        for loss in (
            (self.scores * self.column).mean(),  # a weight of each row
            (self.scores * self.row).mean(),  # one of each column
            (self.column * self.losses).square().mean(),  # all pairs
            (self.column * self.losses * self.scores).mean(),
            (self.losses[:1] * self.column[:1]).mean(),
            (2.0 * self.losses).mean(),
        ):
            self.assertEqual(self.of(loss), [])


class MaskedChoices(GraphCase):
    NAME = "loss.keeps_ignored"

    def setUp(self):
        super().setUp()
        self.targets = torch.randint(1, WORDS, (SAMPLES, STEPS))
        self.ignored = torch.arange(STEPS) < torch.tensor([[2], [3], [3], [4]])

    @property
    def chosen(self):
        scores = nn.Linear(WIDTH, WORDS)(torch.randn(SAMPLES, STEPS, WIDTH))
        ids = self.targets.masked_fill(self.ignored, 0).unsqueeze(-1)
        return scores.log_softmax(-1).gather(-1, ids).squeeze(-1)

    def test_the_mask_is_inverted(self):
        for loss in (
            -(self.chosen * self.ignored).sum(-1).mean(),
            -(self.ignored.float() * self.chosen).sum() / 8,
            -self.chosen.masked_fill(~self.ignored, 0.0).sum(-1).mean(),
        ):
            self.assertEqual(self.of(loss), [1.0])

    @property
    def losses(self):
        scores = nn.Linear(WIDTH, 40)(torch.randn(SAMPLES, 12, WIDTH))
        targets = (1 + torch.arange(SAMPLES * 12).reshape(SAMPLES, 12) % 39) * self.kept
        return F.cross_entropy(scores.transpose(1, 2), targets, reduction="none")

    @property
    def kept(self):
        return torch.arange(12) >= torch.tensor([[2], [3], [3], [4]])

    def test_the_mask_selects_or_takes_losses(self):
        kept, answers, mask = self.kept, ~self.ignored, self.ignored
        for right, wrong in (
            (self.chosen[answers].mean(), self.chosen[mask].mean()),
            ((-self.chosen)[answers].mean(), (-self.chosen)[mask].mean()),
            (self.chosen[..., None][..., 0][answers], -self.chosen[mask]),
            (-self.chosen[..., None][..., 0] * answers, -self.chosen[mask]),
            (self.chosen[answers], (-self.chosen[..., None][..., 0])[mask]),
            (self.chosen.masked_select(answers), self.chosen.masked_select(mask)),
            (self.losses * kept, self.losses * ~kept),
            (self.losses.flatten() * kept.flatten(), self.losses[~kept]),
        ):
            self.assertEqual(self.of(right.sum()), [0.0])
            self.assertEqual(self.of(wrong.sum()), [1.0])

    def test_a_term_for_each_part(self):
        chosen = self.chosen
        loss = 0.1 * chosen[self.ignored].mean() + chosen[~self.ignored].mean()
        self.assertEqual(self.of(-loss), [0.0])
        scores = nn.Conv2d(1, 5, 3, padding=1)(torch.randn(2, 1, 8, 8))
        classes = torch.arange(128).reshape(2, 8, 8) // 13 % 5
        each = F.cross_entropy(scores, classes, reduction="none")
        self.assertEqual(self.of((each * (classes == 0)).sum()), [])

    def test_answers_are_kept(self):
        for loss in (
            -(self.chosen * ~self.ignored).sum(-1).mean(),
            -self.chosen.masked_fill(self.ignored, 0.0).sum(-1).mean(),
        ):
            self.assertEqual(self.of(loss), [0.0])

    def test_what_is_no_such_mask(self):
        weights = torch.rand(SAMPLES, STEPS)
        last = torch.arange(STEPS) == STEPS - 1
        same = torch.full_like(self.targets, 3)
        for loss in (
            (self.chosen * weights).sum(),
            self.chosen.sum(),
            # One answer a text, which is the same by chance.
            (self.of_targets(torch.where(last, same, self.targets)) * last).sum(),
        ):
            self.assertEqual(self.of(loss), [])

    def of_targets(self, targets):
        scores = nn.Linear(WIDTH, WORDS)(torch.randn(SAMPLES, STEPS, WIDTH))
        return scores.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


class MaskedChoicesOnADevice(MaskedChoices):
    ON_DEVICE = True

    def test_the_mask_selects_or_takes_losses(self):
        # A mask that indexes is not read there.
        losses = (self.losses * ~self.kept, self.chosen.masked_select(self.ignored))
        for wrong in losses:
            self.assertEqual(self.of(wrong.sum()), [1.0])

    def test_a_term_for_each_part(self):
        chosen = self.chosen
        loss = chosen[self.ignored].mean() + chosen[~self.ignored].mean()
        self.assertNotIn(1.0, self.of(-loss))


class GivenGradients(HooksCase):
    NAME = "opt.losses_are_zero"

    def scores(self):
        return self.layer(torch.randn(8, 5))

    def test_a_gradient_of_zero_is_given(self):
        """As by a predictor of gradients that begins at zero."""
        self.layer = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)

        def step(gradient):
            optimizer.zero_grad()
            self.scores().backward(gradient)
            optimizer.step()
            return last(self.NAME)

        self.scores().sum().backward()
        ones = torch.ones(8, 4)
        self.assertEqual(step(0 * ones), 1.0)
        self.assertNotIn(step(ones), (0.0, 1.0))

    def test_hinges_that_rest(self):
        """As of a soft boundary, whose radius is a part of the loss."""
        self.layer = nn.Linear(5, 4)
        optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)

        def step(above, beside=0.0):
            """above: by how much each score exceeds the margin."""
            optimizer.zero_grad()
            for rest in (torch.relu, lambda scores: scores.clamp(min=0)):
                loss = 0.5 + rest(self.scores() * 0 + above).mean() / 0.1
                if beside:
                    loss = loss + beside * self.scores().sum()
                loss.backward()
            optimizer.step()
            return last(self.NAME)

        self.assertEqual(step(1.0), 0.0)
        self.assertEqual(step(-1.0), 1.0)
        self.assertEqual(step(-1.0, beside=1.0), 0.0)


if __name__ == "__main__":
    unittest.main()
