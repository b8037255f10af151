"""Terms of a variational encoder's loss: is one a mean, and the other a sum?"""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase

ROWS, NUMBERS, LATENT = 8, 32, 6


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(NUMBERS, 2 * LATENT)
        self.outer = nn.Linear(LATENT, NUMBERS)

    def forward(self, x):
        mean, log_variance = self.inner(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergences = 1 + log_variance - mean.pow(2) - log_variance.exp()
        return self.outer(z), -0.5 * divergences


class DivergenceScales(GraphCase):
    NAME = "loss.divergence_scaled_apart"

    def of_terms(self, error, divergence):
        x = torch.rand(ROWS, NUMBERS)
        y, divergences = Encoder()(x)
        return self.of(error(y, x) + divergence(divergences))

    def test_a_mean_and_a_sum(self):
        def error(y, x):
            return F.mse_loss(y, x)

        for divergence in (
            lambda all_of_them: all_of_them.sum(1).mean(),
            lambda all_of_them: all_of_them.sum() / ROWS,
        ):
            self.assertEqual(self.of_terms(error, divergence), [1.0])

    def test_a_mean_by_hand_and_a_sum(self):
        for error in (
            lambda y, x: (y - x).pow(2).mean(),
            lambda y, x: ((y - x) ** 2).mean(1).mean(),
            lambda y, x: (y - x).abs().mean(),
            F.l1_loss,
        ):
            found = self.of_terms(error, lambda all_of_them: all_of_them.sum(1).mean())
            self.assertEqual(found, [1.0])

    def test_a_mean_over_the_batch_and_a_sum_over_it(self):
        found = self.of_terms(F.mse_loss, lambda all_of_them: all_of_them.sum())
        self.assertEqual(found, [1.0])
        found = self.of_terms(
            lambda y, x: F.mse_loss(y, x, reduction="sum"),
            lambda all_of_them: all_of_them.mean(),
        )
        self.assertEqual(found, [1.0])

    def of_distributions(self, error, deviation):
        x, net = torch.rand(ROWS, NUMBERS), Encoder()
        mean, raw = net.inner(x).chunk(2, 1)
        given = Normal(mean, deviation(raw))
        prior = Normal(torch.zeros(LATENT), torch.ones(LATENT))
        divergences = kl_divergence(given, prior)
        y = net.outer(given.rsample())
        return self.of(error(y, x) + divergences.sum(-1).mean())

    def test_distributions(self):
        for deviation in (lambda raw: (0.5 * raw).exp(), F.softplus):
            self.assertEqual(self.of_distributions(F.mse_loss, deviation), [1.0])
            found = self.of_distributions(
                lambda y, x: (y - x).square().sum(1).mean(), deviation
            )
            self.assertNotIn(1.0, found)

    def test_a_sum_and_a_mean(self):
        for error in (
            lambda y, x: F.mse_loss(y, x, reduction="sum") / ROWS,
            lambda y, x: F.mse_loss(y, x, reduction="none").sum(1).mean(),
            lambda y, x: 0.5 * F.mse_loss(y, x, reduction="none").sum((1,)).mean(),
            lambda y, x: F.binary_cross_entropy_with_logits(y, x, reduction="sum")
            / ROWS,
        ):
            found = self.of_terms(error, lambda all_of_them: all_of_them.mean())
            self.assertEqual(found, [1.0])

    def test_sums(self):
        for error, divergence in (
            (
                lambda y, x: F.mse_loss(y, x, reduction="sum"),
                lambda all_of_them: all_of_them.sum(),
            ),
            (
                lambda y, x: F.mse_loss(y, x, reduction="none").sum(1).mean(),
                lambda all_of_them: all_of_them.sum(1).mean(),
            ),
            (
                lambda y, x: F.mse_loss(y, x) * NUMBERS,
                lambda all_of_them: all_of_them.sum(1).mean(0),
            ),
        ):
            self.assertNotIn(1.0, self.of_terms(error, divergence))

    def test_means(self):
        found = self.of_terms(F.mse_loss, lambda all_of_them: all_of_them.mean())
        self.assertEqual(found, [])

    def test_a_weight_that_was_chosen(self):
        for weight in (0.1, 1e-3, 1 / NUMBERS, LATENT):
            for error in (F.mse_loss, lambda y, x: (y - x).square().mean()):
                found = self.of_terms(
                    error, lambda all_of_them: weight * all_of_them.sum(1).mean()
                )
                self.assertNotIn(1.0, found)

    def test_sums_by_hand(self):
        for error, divergence in (
            (
                lambda y, x: (y - x).square().sum(),
                lambda all_of_them: all_of_them.sum(),
            ),
            (
                lambda y, x: (y - x).abs().sum(1).mean(),
                lambda all_of_them: all_of_them.sum(1).mean(),
            ),
            (
                lambda y, x: (y - x).square().mean(),
                lambda all_of_them: all_of_them.mean(),
            ),
        ):
            self.assertNotIn(1.0, self.of_terms(error, divergence))

    def test_few_numbers(self):
        x = torch.rand(ROWS, NUMBERS)
        y, divergences = Encoder()(x)
        loss = F.mse_loss(y[:, :3], x[:, :3]) + divergences.sum(1).mean()
        self.assertEqual(self.of(loss), [])


class DivergenceScalesOnADevice(DivergenceScales):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
