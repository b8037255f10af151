"""Noise of a generator of the user's own, which is added to what is to be predicted."""

import math
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import WATCH, HooksCase, said

ROWS, WIDTH, STEPS = 24, 32, 10


def clean(rows=ROWS, width=WIDTH):
    phase = 6.3 * torch.rand(rows, 1)
    return torch.sin(phase + torch.arange(width) / 4)


def anew():
    return torch.Generator().manual_seed(63)


class RepeatedNoise(HooksCase):
    NAME = "opt.repeats_draws"

    def setUp(self):
        super().setUp()
        self.net = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, WIDTH))
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def train(self, spoil, make=clean, loss=F.mse_loss, steps=STEPS):
        for _ in range(steps):
            x = make()
            self.optimizer.zero_grad()
            loss(self.net(spoil(x)), x).backward()
            self.optimizer.step()
        return {value for value in said(self.NAME) if not math.isnan(value)}

    def test_a_generator_that_is_made_anew(self):
        def spoil(x):
            return x + 0.3 * torch.randn(x.shape, generator=anew())

        for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
            self.setUp()
            self.assertEqual(self.train(spoil, loss=loss), {1.0})

    def test_a_generator_that_is_seeded_anew(self):
        kept = torch.Generator()

        def spoil(x):
            return x + 0.3 * torch.randn(x.shape, generator=kept.manual_seed(5))

        self.assertEqual(self.train(spoil), {1.0})

    def test_pictures(self):
        self.net = nn.Conv2d(1, 1, 3, padding=1)
        self.optimizer = torch.optim.Adam(self.net.parameters())

        def spoil(x):
            return x + 0.3 * torch.randn(x.shape, generator=anew())

        def make():
            return clean(width=64).view(ROWS, 1, 8, 8)

        self.assertEqual(self.train(spoil, make), {1.0})

    def test_noise_that_is_drawn_on(self):
        kept = anew()

        def spoil(x):
            return x + 0.3 * torch.randn(x.shape, generator=kept)

        self.assertEqual(self.train(spoil), {0.0})

    def test_seeds_of_the_steps(self):
        kept, seeds = torch.Generator(), iter(range(99))

        def spoil(x):
            kept.manual_seed(next(seeds))
            return x + 0.3 * torch.randn(x.shape, generator=kept)

        self.assertEqual(self.train(spoil), {0.0})

    def test_noise_for_each_of_two_steps(self):
        seeds = iter([i // 2 for i in range(99)])

        def spoil(x):
            own = torch.Generator().manual_seed(next(seeds))
            return x + 0.3 * torch.randn(x.shape, generator=own)

        self.assertEqual(self.train(spoil), {0.0})

    def test_samples_that_come_again(self):
        x = clean()
        noise = 0.3 * torch.randn(x.shape)
        self.assertEqual(self.train(lambda x: x + noise, lambda: x), set())

    def test_samples_with_noise_of_their_own(self):
        samples = clean(5 * ROWS)
        noise = 0.3 * torch.randn(samples.shape)
        at = []

        def make():
            at[:] = [torch.randperm(len(samples))[:ROWS]]
            return samples[at[0]]

        found = self.train(lambda x: x + noise[at[0]], make)
        self.assertEqual(found, {0.0})

    def test_one_pattern_for_all_samples(self):
        pattern = torch.randn(WIDTH)
        self.assertEqual(self.train(lambda x: x + pattern), set())

    def test_a_bias_for_each_place(self):
        """Of sensors that are read together."""
        for bias in (
            torch.randn(ROWS, 1),
            torch.randn(ROWS, 1) * torch.arange(WIDTH) / WIDTH,
            torch.randn(ROWS, 1) * torch.sin(torch.arange(WIDTH) / 8),
        ):
            self.setUp()
            self.assertEqual(self.train(lambda x: x + bias), set())

    def test_copies_of_the_targets(self):
        self.assertEqual(self.train(lambda x: x), set())
        self.setUp()
        self.assertEqual(self.train(lambda x: x + 1e-4 * torch.ones_like(x)), set())

    def test_noise_as_the_target(self):
        """Nothing is said where the noise is not what lies between both."""

        def spoil(x):
            return 0.6 * clean() + 0.8 * x

        def make():
            return torch.randn(ROWS, WIDTH, generator=anew())

        self.assertEqual(self.train(spoil, make), set())

    def test_small_batches(self):
        def spoil(x):
            return x + 0.3 * torch.randn(x.shape, generator=anew())

        self.assertEqual(self.train(spoil, lambda: clean(8)), set())

    def test_dropout_that_varies_beside_it(self):
        self.net = nn.Sequential(self.net, nn.Dropout(0.2))

        def spoil(x):
            return x + 0.3 * torch.randn(x.shape, generator=anew())

        self.assertEqual(self.train(spoil), {0.0, 1.0})

    def test_what_is_looked_at(self):
        self.train(lambda x: x + torch.randn(x.shape), steps=12)
        noise = WATCH.repeated_draws.noise
        self.assertFalse(noise.awaits_loss())
        self.assertIsNone(noise._last)


if __name__ == "__main__":
    unittest.main()
