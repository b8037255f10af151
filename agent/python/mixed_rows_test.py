"""Views that put rows or the heads of an attention together in the wrong order, and views
that come close to them."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase

SAMPLES, STEPS, HEADS, SIZE = 4, 6, 2, 5
WIDTH = HEADS * SIZE


def softmax(q, k, v):
    return (q @ k.mT / SIZE**0.5).softmax(-1) @ v


def with_dropout(q, k, v):
    return F.dropout((q @ k.mT / SIZE**0.5).softmax(-1), 0.1) @ v


def flat(q, k, v):
    """The heads lie beside the samples while they are multiplied."""
    q, k, v = (one.reshape(-1, *one.shape[-2:]) for one in (q, k, v))
    return torch.bmm(torch.bmm(q, k.mT).softmax(-1), v)


def by_einsum(q, k, v):
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
    return torch.einsum("bhqk,bhkd->bqhd", weights, v)


ATTENTIONS = (
    softmax,
    with_dropout,
    flat,
    F.scaled_dot_product_attention,
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
)


class Mixes(GraphCase):
    NAME = "loss.mixes_rows"

    def alarms(self, result):
        loss = nn.Linear(result.shape[-1], 2)(result).square().mean()
        return 1.0 in self.of(loss)


class Heads(Mixes):
    def split(self, way=0, steps=STEPS, heads=HEADS):
        """Queries, keys and values: [samples, heads, steps, size]."""
        x = nn.Linear(4, 3 * heads * SIZE)(torch.randn(SAMPLES, steps, 4))
        if way == 0:
            return (
                x.view(SAMPLES, steps, heads, 3 * SIZE).permute(0, 2, 1, 3).chunk(3, -1)
            )
        if way == 1:
            return x.view(SAMPLES, steps, 3, heads, SIZE).permute(2, 0, 3, 1, 4)
        parts = x.chunk(3, -1)
        return [one.view(SAMPLES, steps, heads, SIZE).transpose(1, 2) for one in parts]

    def test_heads_that_are_viewed_as_steps(self):
        for way in range(3):
            for attend in ATTENTIONS:
                result = attend(*self.split(way)).reshape(SAMPLES, STEPS, WIDTH)
                self.assertTrue(self.alarms(result), (way, attend))
        for sizes in ((SAMPLES, STEPS, HEADS, SIZE), (SAMPLES * STEPS, WIDTH)):
            self.assertTrue(self.alarms(softmax(*self.split()).reshape(sizes)), sizes)

    def test_dropout_and_a_copy_before_the_view(self):
        result = F.dropout(softmax(*self.split()), 0.1).contiguous()
        self.assertTrue(self.alarms(result.view(SAMPLES, STEPS, WIDTH)))

    def test_queries_of_other_heads_and_steps(self):
        q, _, _ = self.split(steps=8, heads=4)
        _, k, v = self.split()
        k, v = (one.repeat_interleave(2, 1) for one in (k, v))
        wide = 4 * SIZE
        result = F.scaled_dot_product_attention(q, k, v)
        self.assertFalse(self.alarms(result.transpose(1, 2).reshape(SAMPLES, 8, wide)))
        q, _, _ = self.split(steps=8, heads=4)
        _, k, v = self.split(steps=9, heads=4)
        result = softmax(q, k, v)
        self.assertTrue(self.alarms(result.reshape(SAMPLES, 8, wide)))

    def test_steps_before_the_samples(self):
        def attended():
            x = nn.Linear(4, WIDTH)(torch.randn(STEPS, SAMPLES, 4))
            x = x.view(STEPS, SAMPLES * HEADS, SIZE).transpose(0, 1)
            return torch.bmm(torch.bmm(x, x.mT).softmax(-1), x)

        self.assertTrue(self.alarms(attended().view(STEPS, SAMPLES, WIDTH)))
        right = attended().transpose(0, 1).reshape(STEPS, SAMPLES, WIDTH)
        self.assertFalse(self.alarms(right))

    def test_the_right_order(self):
        for way in range(3):
            for attend in (softmax, F.scaled_dot_product_attention):
                result = attend(*self.split(way)).transpose(1, 2)
                result = result.reshape(SAMPLES, STEPS, WIDTH)
                self.assertFalse(self.alarms(result), (way, attend))
        for right in (
            lambda x: x.permute(0, 2, 1, 3).flatten(2),
            lambda x: x.permute(2, 0, 1, 3).reshape(STEPS * SAMPLES, WIDTH),
            lambda x: torch.cat(x.unbind(1), -1),
            lambda x: x.permute(0, 1, 3, 2).reshape(SAMPLES, WIDTH, STEPS).mT,
        ):
            self.assertFalse(self.alarms(right(softmax(*self.split()))))
        result = by_einsum(*self.split()).reshape(SAMPLES, STEPS, WIDTH)
        self.assertFalse(self.alarms(result))

    def test_other_views_of_the_right_result(self):
        for view in (
            lambda x: x.reshape(SAMPLES, -1),
            lambda x: x.reshape(SAMPLES * HEADS, STEPS, SIZE),
            lambda x: x.reshape(SAMPLES, HEADS * STEPS, SIZE),
            lambda x: x.reshape(SAMPLES, HEADS, STEPS * SIZE),
            lambda x: x.reshape(SAMPLES, HEADS, 2, 3, SIZE).mean(2),
        ):
            self.assertFalse(self.alarms(view(softmax(*self.split()))))

    def test_one_query_of_a_class(self):
        for attend in ATTENTIONS:
            q, k, v = self.split(way=2)
            result = attend(q[:, :, :1], k, v).reshape(SAMPLES, 1, WIDTH)
            self.assertFalse(self.alarms(result), attend)

    def test_as_many_heads_as_steps(self):
        result = softmax(*self.split(steps=HEADS)).reshape(SAMPLES, HEADS, WIDTH)
        self.assertFalse(self.alarms(result))

    def test_channels_that_attend_to_each_other(self):
        """Heads of an image's channels, and of its points."""
        for attend in (
            lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
            lambda q, k, v: ((q.mT @ k).softmax(-1) @ v.mT).mT,
            lambda q, k, v: v @ (q.mT @ k).softmax(-1),
        ):
            x = nn.Conv2d(2, 3 * WIDTH, 1)(torch.randn(SAMPLES, 2, 4, 4))
            parts = x.chunk(3, 1)
            result = attend(*(one.view(SAMPLES, HEADS, SIZE, 16) for one in parts))
            self.assertFalse(self.alarms(result.reshape(SAMPLES, WIDTH, 4, 4)))

    def test_windows_of_one_head(self):
        """[samples, windows, points, width]: four neighbours are merged."""
        x = nn.Linear(4, WIDTH)(torch.randn(SAMPLES, 4, 16, 4))
        result = softmax(x, x, x)
        self.assertFalse(self.alarms(result.reshape(SAMPLES, 16, 4 * WIDTH)))

    def test_shifted_windows(self):
        """Windows lie beside the samples, and are laid out as an image again."""
        q, k, v = self.split(way=1, steps=4)
        result = softmax(q, k, v).transpose(1, 2).reshape(SAMPLES, 4, WIDTH)
        image = result.view(1, 1, SAMPLES, 2, 2, WIDTH).permute(0, 1, 3, 2, 4, 5)
        self.assertFalse(self.alarms(image.reshape(1, 2, 2 * SAMPLES, WIDTH)))

    def test_features_of_convolutions(self):
        x = nn.Conv2d(2, HEADS, 1)(torch.randn(SAMPLES, 2, STEPS, SIZE))
        self.assertFalse(self.alarms(x.view(SAMPLES, STEPS, WIDTH)))

    def test_attention_of_torch(self):
        for first in (False, True):
            for weights in (False, True):
                layer = nn.MultiheadAttention(WIDTH, HEADS, 0.1, batch_first=first)
                x = nn.Linear(4, WIDTH)(torch.randn(SAMPLES, STEPS, 4))
                result = layer(x, x, x, need_weights=weights)[0]
                self.assertFalse(self.alarms(result))


class AttendedSteps(Mixes):
    """[samples, steps] and the reverse: one is a multiple of the other."""

    def attend(self, x, first, views=lambda x: x, labels=None):
        """views: of [samples, steps, width], as the layer takes it."""
        layers = [
            nn.TransformerEncoderLayer(WIDTH, HEADS, 16, 0.1, batch_first=first),
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 16, 0.0, batch_first=first, norm_first=True
            ),
            lambda x: nn.MultiheadAttention(WIDTH, HEADS, batch_first=first)(x, x, x)[
                0
            ],
        ]
        found = set()
        for layer in layers:
            taken = views(nn.Linear(4, WIDTH)(x))
            result = layer(taken + torch.randn(taken.shape[0], 1, WIDTH))
            if labels is None:
                found.add(self.alarms(result))
                continue
            scores = nn.Linear(WIDTH, 3)(result.reshape(labels, -1, WIDTH).mean(1))
            found.add(1.0 in self.of(F.cross_entropy(scores, torch.arange(labels) % 3)))
        return found

    def test_a_view_in_place_of_a_transposition(self):
        for samples, steps, labels in ((4, 8, None), (4, 8, 4), (8, 4, 8)):
            x = torch.randn(samples, steps, 4)
            swap = lambda x: x.reshape(steps, samples, WIDTH)
            self.assertEqual(self.attend(x, False, swap, labels), {True})

    def test_the_right_order(self):
        for samples, steps in ((4, 8), (8, 4)):
            x = torch.randn(samples, steps, 4)
            swap = lambda x: x.transpose(0, 1)
            self.assertEqual(self.attend(x, False, swap), {False})
            self.assertEqual(self.attend(x, True), {False})

    def test_sequences_that_are_cut(self):
        """Twice as many of half the length, and half as many of twice the length."""
        cut = lambda x: x.reshape(8, 4, WIDTH)
        self.assertEqual(self.attend(torch.randn(4, 8, 4), True, cut), {False})
        joined = lambda x: x.reshape(4, 8, WIDTH)
        self.assertEqual(self.attend(torch.randn(8, 4, 4), True, joined), {False})

    def test_every_other_step(self):
        """[steps, samples] as [half the steps, both halves of them and samples]."""
        dilated = lambda x: x.reshape(4, 8, WIDTH)
        self.assertEqual(self.attend(torch.randn(8, 4, 4), False, dilated), {False})

    def test_an_attention_of_ones_own(self):
        def attend(x, swap):
            x = nn.Linear(4, WIDTH)(x)
            x = swap(x)
            steps, samples, _ = x.shape
            q, k, v = nn.Linear(WIDTH, 3 * WIDTH)(x).chunk(3, -1)
            q, k, v = (
                one.reshape(steps, samples, HEADS, SIZE).permute(1, 2, 0, 3)
                for one in (q, k, v)
            )
            return softmax(q, k, v).permute(2, 0, 1, 3).reshape(steps, samples, WIDTH)

        x = torch.randn(4, 8, 4)
        self.assertTrue(self.alarms(attend(x, lambda x: x.view(8, 4, WIDTH))))
        self.assertFalse(self.alarms(attend(x, lambda x: x.transpose(0, 1))))

    def test_a_convolution_after_the_view(self):
        x = nn.Linear(4, WIDTH)(torch.randn(4, 8, 4)).view(8, 4, WIDTH)
        self.assertFalse(self.alarms(nn.Conv1d(WIDTH, 3, 1)(x.mT).mT))
        x = nn.Linear(4, WIDTH)(torch.randn(4, 8, 4)).view(8, 4, WIDTH)
        heads = x.reshape(8, 4 * HEADS, SIZE).transpose(0, 1)
        self.assertFalse(self.alarms(heads.tanh()))


class HeadsOnADevice(Heads):
    ON_DEVICE = True


class AttendedStepsOnADevice(AttendedSteps):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
