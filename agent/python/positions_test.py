"""Positions that count up, and the angles that are computed of them."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

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


class ProjectedSeries(GraphCase):
    """Tables that are added to series of numbers, which have no embedding."""

    NAME = "loss.positions_of_samples"
    SERIES = torch.randn(4, 7, 3)  # samples, steps, numbers

    def of(self, count, batch_first=True, bias=True, trained=False, first=None):
        torch.manual_seed(0)
        places = torch.arange(16)[:, None] / 100.0 ** (torch.arange(0, 8, 2) / 8)
        table = torch.stack([places.sin(), places.cos()], 2).flatten(1)[:count]
        table = table[:, None]
        if trained:
            table = nn.Parameter(torch.randn(16, 1, 8))[:count]
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
        series = (
            self.SERIES if batch_first else self.SERIES.transpose(0, 1).contiguous()
        )
        series = series if first is None else first(series)
        read = nn.Linear(3, 8, bias=bias)(series)
        read = read * 8**0.5 + table
        return super().of(layer(F.dropout(read, 0.1)).square().mean())

    def of_steps(self, **options):
        return self.of(7, batch_first=False, **options)

    def test_a_table_that_is_cut_to_the_samples(self):
        self.assertEqual(self.of(4), [1.0])
        self.assertEqual(self.of(4, bias=False), [1.0])
        self.assertEqual(self.of(4, trained=True), [1.0])

    def test_a_table_that_is_cut_to_the_steps(self):
        self.assertEqual(self.of_steps(), [0.0])
        self.assertEqual(self.of_steps(bias=False), [0.0])
        self.assertNotIn(1.0, self.of_steps(trained=True))

    def test_what_cannot_be_told(self):
        square = lambda series: series[:, :4]
        self.assertEqual(self.of(4, first=square), [])
        self.assertEqual(self.of(4, first=nn.Linear(3, 3)), [])


class RoundedPositionsOnADevice(RoundedPositions):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
