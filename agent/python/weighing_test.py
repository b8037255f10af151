"""What graphs of losses say of weights and what the first layer is given."""

import math
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase, HooksCase, last, said

WORDS, WIDTH, STEPS, SAMPLES = 20, 8, 7, 4


class RepeatedQuotients(GraphCase):
    NAME = "loss.divided_twice"

    def setUp(self):
        super().setUp()
        self.lengths = torch.tensor([2, 3, 4, 5, 3, 3, 6, 7])

    @property
    def sums(self):
        return nn.Linear(5, 1)(torch.randn(8, 5)).square().squeeze(1)

    def again(self, divide):
        """What is said of means over the lengths that are divided once more."""
        return self.of(divide(self.sums / self.lengths, self.lengths).sum())

    def test_a_mean_that_is_divided_again(self):
        for divide in (
            lambda means, lengths: means / lengths,
            lambda means, lengths: means[:4] / lengths[:4],
            lambda means, lengths: means.split(4)[1] / lengths.float()[4:],
            lambda means, lengths: (-means.unsqueeze(1)) / lengths[:, None],
        ):
            self.assertEqual(self.again(divide), [1.0])

    def test_other_divisors(self):
        for divide in (
            lambda means, lengths: means,
            lambda means, lengths: means / lengths.flip(0),
            lambda means, lengths: means[2:6] / lengths[2:6],
            lambda means, lengths: means / 4,
            lambda means, lengths: means / lengths.sum(),
        ):
            self.assertEqual(self.again(divide), [0.0])

    def test_deviations_and_one_length_are_not_asked(self):
        deviations = torch.rand(8) + 0.5
        self.assertEqual(self.of((self.sums / deviations / deviations).sum()), [])
        alike = torch.full((8,), 4)
        self.assertEqual(self.of((self.sums / alike / alike).sum()), [])


class Weights(GraphCase):
    NAME = "loss.favours_frequent"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.labels = torch.tensor([0] * 24 + [1] * 6 + [2] * 2)
        self.counts = torch.bincount(self.labels).float()

    @property
    def scores(self):
        return nn.Linear(5, 3)(torch.randn(32, 5))

    def entropy(self, weight, labels=None):
        labels = self.labels if labels is None else labels
        return self.of(F.cross_entropy(self.scores, labels, weight=weight))

    def binary(self, labels, weight):
        scores = self.scores[:, : labels.shape[1]]
        return self.of(
            F.binary_cross_entropy_with_logits(scores, labels, pos_weight=weight)
        )

    def test_numbers_of_samples_and_their_inverse(self):
        self.assertEqual(self.entropy(self.counts.square()), [1.0])
        self.assertEqual(self.entropy(32 / self.counts), [0.0])

    def test_pictures(self):
        scores = self.scores[:, :, None, None].expand(32, 3, 4, 4)
        labels = self.labels[:, None, None].expand(32, 4, 4)
        loss = F.cross_entropy(scores, labels, weight=self.counts.square())
        self.assertEqual(self.of(loss), [1.0])

    def test_what_does_not_tell(self):
        self.assertEqual(self.entropy(None), [])
        self.assertEqual(self.entropy(torch.ones(3)), [])
        balanced = torch.arange(32) % 3
        self.assertEqual(self.entropy(torch.tensor([1.0, 2.0, 4.0]), balanced), [])
        # Samples that are sorted by class.
        self.assertEqual(self.entropy(32 / self.counts, torch.full((32,), 2)), [])

    def test_padding_without_a_weight(self):
        labels = torch.tensor([-100] * 4 + [0] * 4 + [1] * 20 + [2] * 4)
        weight = torch.tensor([0.0, 1.0, 9.0])
        self.assertEqual(self.entropy(weight, labels), [0.0])

    def test_positives_over_negatives(self):
        labels = F.one_hot(self.labels, 3).float()
        ones, zeros = labels.sum(0), (1 - labels).sum(0)
        self.assertEqual(self.binary(labels, (ones / zeros) ** 3), [1.0])
        self.assertEqual(self.binary(labels, zeros / ones), [0.0])
        rare, weight = labels[:, 2:], zeros[2] / ones[2]
        self.assertEqual(self.binary(rare, weight**-3), [1.0])
        self.assertEqual(self.binary(rare, weight), [0.0])
        self.assertEqual(self.binary(rare, torch.tensor(1.0)), [])
        self.assertEqual(self.binary(rare / 2, weight), [])


class Overlaps(GraphCase):
    NAME = "loss.overlap_of_scores"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Conv2d(1, 3, 3, padding=1)
        self.x, self.mask = torch.randn(4, 1, 8, 8), torch.rand(4, 3, 8, 8).round()

    def of(self, loss, activation):
        return super().of(loss(activation(self.net(self.x))))

    def dice(self, p):
        both = p.square().sum((2, 3)) + self.mask.sum((2, 3))
        return 1 - ((2 * (p * self.mask).sum((2, 3)) + 1) / (both + 1)).mean()

    def jaccard(self, p):
        shared = (self.mask * p).flatten(1).sum(1)
        whole = (p + self.mask - p * self.mask).flatten(1).sum(1)
        return 1 - (shared / (whole + 1e-6)).mean()

    def tversky(self, p):
        shared = (p * self.mask).sum()
        more, less = (p * (1 - self.mask)).sum(), ((1 - p) * self.mask).sum()
        return 1 - shared / (shared + 0.3 * more + 0.7 * less + 1)

    def test_scores_and_probabilities(self):
        for loss in (self.dice, self.jaccard, self.tversky):
            self.assertEqual(self.of(loss, lambda scores: scores), [1.0])
            self.assertEqual(self.of(loss, torch.sigmoid), [0.0])
            self.assertEqual(self.of(loss, lambda scores: scores.softmax(1)), [0.0])

    def test_a_choice_against_empty_masks(self):
        def chosen(p):
            shared = 2 * (p * self.mask).sum((-1, -2))
            both = p.sum((-1, -2)) + self.mask.sum((-1, -2))
            both = torch.where(both == 0, shared, both)
            return 1 - ((shared + 1e-6) / (both + 1e-6)).mean()

        self.assertEqual(self.of(chosen, lambda scores: scores), [1.0])
        self.assertEqual(self.of(chosen, torch.sigmoid), [0.0])

    def test_sums_of_products_in_one_call(self):
        def by_letters(p):
            shared = torch.einsum("bchw,bchw->bc", p, self.mask)
            both = torch.einsum("bchw->bc", p) + torch.einsum("bchw->bc", self.mask)
            return 1 - ((2 * shared + 1e-5) / (both + 1e-5)).mean()

        def of_vectors(p):
            shared = torch.dot(self.mask.flatten(), p.flatten())
            return 1 - (2 * shared + 1) / (p.sum() + self.mask.sum() + 1)

        for loss in (by_letters, of_vectors):
            self.assertEqual(self.of(loss, lambda scores: scores), [1.0])
            self.assertEqual(self.of(loss, lambda scores: scores.softmax(1)), [0.0])

    def test_scores_of_another_size(self):
        for mode in ("bilinear", "nearest"):
            resize = nn.Upsample((8, 8), mode=mode)
            small = lambda scores: resize(scores[:, :, ::2, ::2])
            self.assertEqual(self.of(self.dice, small), [1.0])

    def test_other_quotients(self):
        def within(p):
            return ((p * self.mask).sum() / self.mask.sum()).square()

        def cosine(p):
            other = torch.randn_like(p)
            return (p * other).sum() / (p.square().sum().sqrt() + 1)

        def weighed_mean(p):
            shares = torch.einsum("bchw,bdhw->bcd", p, self.mask)
            return (shares / p.sum((2, 3))[..., None]).square().mean()

        for loss in (within, cosine, weighed_mean):
            self.assertEqual(self.of(loss, lambda scores: scores), [])


class MeansOverClasses(GraphCase):
    NAME = "loss.averages_over_classes"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.shares = torch.randn(6, 4).softmax(1)

    @property
    def logarithms(self):
        return F.log_softmax(nn.Linear(5, 4)(torch.randn(6, 5)) / 2, 1)

    def divergence(self, reduction):
        return F.kl_div(self.logarithms, self.shares, reduction=reduction)

    def test_divergences(self):
        self.assertEqual(self.of(self.divergence("mean")), [1.0])
        self.assertEqual(self.of(self.divergence("batchmean")), [0.0])
        self.assertEqual(self.of(self.divergence("none").sum(1).mean()), [0.0])

    def test_entropies(self):
        self.assertEqual(self.of(-(self.shares * self.logarithms).mean()), [1.0])
        self.assertEqual(
            self.of((-self.shares * self.logarithms).sum(-1).mean()), [0.0]
        )
        entropy = F.cross_entropy(self.logarithms, self.shares)
        self.assertEqual(self.of(entropy), [0.0])

    def test_other_weights(self):
        self.assertEqual(self.of((torch.rand(6, 4) * self.logarithms).mean()), [])
        self.assertEqual(self.of((self.shares * self.logarithms).mean(0).sum()), [])


class Bytes(GraphCase):
    NAME = "loss.reads_bytes"

    def of(self, net, x):
        return super().of(net(x).square().mean())

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.pictures = torch.randint(0, 256, (8, 3, 6, 6)).float()

    def test_pictures(self):
        net = nn.Conv2d(3, 4, 3)
        self.assertEqual(self.of(net, self.pictures), [1.0])
        self.assertEqual(self.of(net, self.pictures / 255), [0.0])
        strided = self.pictures.contiguous(memory_format=torch.channels_last)
        self.assertEqual(self.of(net, strided), [1.0])

    def test_pictures_that_are_divided_twice(self):
        name = "loss.divides_bytes_twice"
        for pixels, wrong in (
            (self.pictures / 255 / 255, 1.0),
            ((self.pictures / 255 / 255).double(), 1.0),
            (self.pictures * (1 / 255) / 255.0, 1.0),
            (self.pictures / 255, 0.0),
            (self.pictures, 0.0),
            (torch.rand(8, 3, 6, 6) / 255, 0.0),
            (self.pictures / 255 / 256, 0.0),
        ):
            with self.subTest(largest=float(pixels.max())):
                net = nn.Conv2d(3, 4, 3).to(pixels.dtype)
                self.of(net, pixels)
                self.assertEqual(last(name), wrong)

    def test_rows(self):
        for bias in (True, False):
            net = nn.Linear(108, 2, bias=bias)
            self.assertEqual(self.of(net, self.pictures.flatten(1)), [1.0])
            self.assertEqual(self.of(net, torch.randn(8, 108)), [0.0])

    def test_what_is_scaled_by_the_model(self):
        net = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3))
        self.assertEqual(self.of(net, self.pictures), [])

    def test_few_values(self):
        self.assertEqual(self.of(nn.Linear(9, 2), 255 * torch.eye(9)), [0.0])


class PackedLengths(GraphCase):
    NAME = "loss.packs_other_lengths"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.lengths = torch.tensor([3, 7, 2, 5])
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS))
        self.text[torch.arange(STEPS) >= self.lengths[:, None]] = 0
        self.order = self.lengths.argsort(descending=True)

    def of(self, lengths, text=None, batch_first=True, padding=0, **options):
        words = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        vectors = words(self.text if text is None else text)
        vectors = F.dropout(vectors if batch_first else vectors.transpose(0, 1), 0.2)
        packed = pack_padded_sequence(
            vectors, lengths, batch_first=batch_first, **options
        )
        layer = nn.GRU(WIDTH, 4, batch_first=batch_first)
        return super().of(layer(packed)[1].square().mean())

    def test_rows_that_were_not_sorted(self):
        self.assertEqual(self.of(self.lengths[self.order]), [1.0])
        self.assertEqual(self.of(self.lengths[self.order], padding=None), [1.0])
        self.assertEqual(self.of(self.lengths[self.order], batch_first=False), [1.0])

    def test_rows_and_lengths_that_were_sorted(self):
        rows = self.text[self.order]
        self.assertEqual(self.of(self.lengths[self.order], rows), [0.0])

    def test_any_order(self):
        for first in (True, False):
            options = {"batch_first": first, "enforce_sorted": False}
            self.assertEqual(self.of(self.lengths, **options), [0.0])
            self.assertEqual(self.of(self.lengths.flip(0), **options), [1.0])

    def test_texts_that_are_cut_on_purpose(self):
        self.assertEqual(self.of(self.lengths - 1, enforce_sorted=False), [0.0])
        self.assertEqual(self.of(torch.full((SAMPLES,), STEPS)), [0.0])


class PackedTexts(HooksCase):
    NAME = "loss.attends_across_texts"
    # Two rows: texts of 4 and 5 tokens; one of 6, and padding.
    POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 0, 0, 0]])

    def batch_of(self, positions):
        torch.manual_seed(0)
        tokens = torch.randint(1, WORDS, (len(positions), 9))
        return next(iter(DataLoader([{"ids": tokens, "at": positions}], None)))

    def of(self, mask=None, causal=False, positions=POSITIONS, table=False):
        HooksCase.setUp(self)
        batch = self.batch_of(positions)
        x = nn.Embedding(WORDS, WIDTH)(batch["ids"])
        if table:
            batch = self.batch_of(torch.zeros_like(positions))
            x = x + nn.Embedding(9, WIDTH)(positions)
        x = x.unflatten(-1, (2, -1)).transpose(-2, -3)
        seen = F.scaled_dot_product_attention(
            x, x, x, None if mask is None else mask[:, None], is_causal=causal
        )
        self.backward(seen.square().mean())
        return said(self.NAME)

    def blocks(self, causal=True):
        texts = (self.POSITIONS == 0).cumsum(1)
        same = texts[:, :, None] == texts[:, None, :]
        return same.tril() if causal else same

    def test_a_causal_mask_alone(self):
        whole = torch.ones(2, 9, 9, dtype=torch.bool).tril()
        self.assertEqual(self.of(causal=True), [1.0])
        self.assertEqual(self.of(), [1.0])
        self.assertEqual(self.of(whole), [1.0])
        self.assertEqual(self.of(causal=True, table=True), [1.0])

    def test_a_block_for_each_text(self):
        self.assertEqual(self.of(self.blocks()), [0.0])
        self.assertEqual(self.of(self.blocks(causal=False)), [0.0])
        self.assertEqual(self.of(self.blocks(), table=True), [0.0])

    def test_rows_of_one_text(self):
        one = torch.arange(9).expand(2, -1).clone()
        padded = one.clone()
        padded[:, 6:] = 0
        behind = one - 2  # padding on the left
        behind[:, :2] = 1
        for positions in (one, padded, behind, one % 2):
            self.assertEqual(self.of(causal=True, positions=positions), [], positions)


class PackedTextsOnADevice(PackedTexts):
    ON_DEVICE = True

    def of(self, *args, **options):
        super().of(*args, **options)
        self.backward(torch.ones((), requires_grad=True) * 2)
        return said(self.NAME)


class RowOrders(HooksCase):
    NAME = "loss.rows_reordered"

    def of(self, change, targets=lambda y, order: y):
        """change: (states, order) -> what the head is given."""
        torch.manual_seed(0)
        HooksCase.setUp(self)
        words, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 2)
        x, y = torch.randint(WORDS, (16, STEPS)), torch.arange(16) % 2
        for rows, labels in DataLoader(TensorDataset(x, y), batch_size=8):
            order = rows[:, 0].argsort()
            states = change(words, rows, order)
            F.cross_entropy(head(states), targets(labels, order)).backward()
        return said(self.NAME)

    @staticmethod
    def sort(words, rows, order):
        return words(rows[order]).sum(1)

    def test_labels_that_were_not_sorted(self):
        self.assertEqual(self.of(self.sort), [1.0, 1.0])
        cut = lambda words, rows, order: words(rows[order, :4]).sum(1)
        self.assertEqual(self.of(cut), [1.0, 1.0])

    def test_labels_that_were_sorted(self):
        self.assertEqual(self.of(self.sort, lambda y, order: y[order]), [0.0, 0.0])

    def test_states_that_were_put_back(self):
        back = lambda *given: self.sort(*given)[given[2].argsort()]
        self.assertEqual(self.of(back), [])
        plain = lambda words, rows, order: words(rows).sum(1)
        self.assertEqual(self.of(plain), [])

    def test_other_rows(self):
        other = lambda words, rows, order: words(rows.roll(1, 1)).sum(1)
        self.assertEqual(self.of(other), [])


class Tables(GraphCase):
    NAME = "loss.positions_of_samples"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        places = torch.arange(16)[:, None]
        rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(1e4) / WIDTH))
        self.table = torch.zeros(16, WIDTH)
        self.table[:, 0::2] = torch.sin(places * rates)
        self.table[:, 1::2] = torch.cos(places * rates)
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS))

    def of(self, added, batch_first=True, p=0.1, **options):
        words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 16, batch_first=batch_first, **options
        )
        text = self.text if batch_first else self.text.t()
        vectors = F.dropout(words(text) * math.sqrt(WIDTH) + added, p)
        return super().of(layer(vectors).square().mean())

    def test_a_table_that_is_cut_to_the_samples(self):
        self.assertEqual(self.of(self.table[:SAMPLES, None]), [1.0])
        self.assertEqual(self.of(self.table[:SAMPLES, None], norm_first=True), [1.0])
        self.assertEqual(self.of(self.table[:SAMPLES], batch_first=False), [1.0])

    def test_a_table_that_is_cut_to_the_steps(self):
        self.assertEqual(self.of(self.table[:STEPS]), [0.0])
        self.assertEqual(self.of(self.table[:STEPS, None], batch_first=False), [0.0])

    def test_tables_that_are_trained(self):
        table = nn.Parameter(torch.randn(16, 1, WIDTH))
        self.assertEqual(self.of(table[:SAMPLES]), [1.0])
        self.assertEqual(self.of(table[:STEPS], batch_first=False), [])
        self.assertEqual(self.of(table[:STEPS].transpose(0, 1)), [])

    def test_what_each_sample_has(self):
        self.assertEqual(self.of(torch.randn(SAMPLES, 1, WIDTH)), [])
        at = torch.tensor([7, 0, 3, 5])
        self.assertEqual(self.of(self.table[at][:, None]), [])


class WeightsOnADevice(Weights):
    ON_DEVICE = True


class OverlapsOnADevice(Overlaps):
    ON_DEVICE = True


class MeansOverClassesOnADevice(MeansOverClasses):
    ON_DEVICE = True


class PackedLengthsOnADevice(PackedLengths):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
