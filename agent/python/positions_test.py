"""Positions that count up, and the angles that are computed of them."""

import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase

LENGTH = 300


def angles(places, width=8):
    rates = 100.0 ** (-torch.arange(width) / width)
    return places[:, None].float() * rates


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class RoundedPositions(GraphCase):
    NAME = "loss.rounds_positions"

    def of_angles(self, given, length=LENGTH, kind=torch.float32):
        x = nn.Linear(5, 16)(torch.randn(2, 3, length, 5)).to(kind)
        cos, sin = given.cos().to(kind), given.sin().to(kind)
        return self.of(rotated(x, cos, sin).float().square().mean())

    def test_positions_in_bfloat16(self):
        places = torch.arange(LENGTH).to(torch.bfloat16)
        self.assertEqual(self.of_angles(angles(places)), [1.0])

    def test_positions_in_float16(self):
        places = torch.arange(2100).to(torch.float16)
        self.assertEqual(self.of_angles(angles(places), 2100), [1.0])

    def test_a_product_under_autocast(self):
        rates = 100.0 ** (-torch.arange(8) / 8)
        with torch.autocast("cpu", torch.bfloat16):
            given = torch.arange(LENGTH)[:, None].float() @ rates[None]
        found = self.of_angles(given, kind=torch.bfloat16)
        self.assertEqual(found, [1.0])

    def test_angles_that_are_cast_to_bfloat16(self):
        given = angles(torch.arange(LENGTH)).to(torch.bfloat16)
        self.assertEqual(self.of_angles(given), [1.0])

    def test_one_number_for_both(self):
        def found(places):
            given = angles(places)
            x = nn.Linear(5, 16)(torch.randn(2, 3, LENGTH, 5))
            pairs = torch.view_as_complex(x.unflatten(-1, (8, 2)))
            turned = pairs * torch.polar(torch.ones_like(given), given)
            return self.of(torch.view_as_real(turned).square().mean())

        self.assertEqual(found(torch.arange(LENGTH).to(torch.bfloat16)), [1.0])
        self.assertEqual(found(torch.arange(LENGTH)), [0.0])

    def test_heads_behind_the_places(self):
        places = torch.arange(LENGTH).to(torch.bfloat16)
        given = angles(places)[:, None]
        x = nn.Linear(5, 16)(torch.randn(2, LENGTH, 3, 5))
        loss = rotated(x, given.cos(), given.sin()).square().mean()
        self.assertEqual(self.of(loss), [1.0])

    def test_exact_positions(self):
        self.assertEqual(self.of_angles(angles(torch.arange(LENGTH))), [0.0])

    def test_cosines_that_are_cast_to_bfloat16(self):
        found = self.of_angles(angles(torch.arange(LENGTH)), kind=torch.bfloat16)
        self.assertEqual(found, [0.0])

    def test_short_texts(self):
        places = torch.arange(256).to(torch.bfloat16)
        self.assertEqual(self.of_angles(angles(places), 256), [])

    def test_texts_that_are_packed(self):
        places = torch.arange(LENGTH) % 200
        self.assertEqual(self.of_angles(angles(places)), [])

    def test_places_of_another_scale(self):
        self.assertEqual(self.of_angles(angles(torch.arange(LENGTH) / 4)), [])

    def test_places_that_end(self):
        places = torch.arange(LENGTH).clamp(max=270)
        self.assertEqual(self.of_angles(angles(places)), [])

    def test_weights_of_steps(self):
        layer = nn.Linear(5, 16)
        for weights in (
            torch.rand(LENGTH, 1),
            torch.ones(LENGTH, 16),
            torch.linspace(1, 0, LENGTH)[:, None],
            torch.arange(LENGTH)[:, None].cos().flip(0),
            torch.randint(2, (LENGTH, 1)),
        ):
            loss = (layer(torch.randn(LENGTH, 5)) * weights).square().mean()
            self.assertEqual(self.of(loss), [])


class RoundedPositionsOnADevice(RoundedPositions):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
