"""Right programs whose losses come close to a mistake, and the mistake beside each."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase, HooksCase, said
from _traincheck import packed_texts
from _traincheck import rounded_averages
from _traincheck.checkpoint_content import flatten
from _traincheck.prompt_ends import PromptEnds
from _traincheck.row_orders import RowOrders
from _traincheck.stray_terms import StrayTerms

WORDS, SAMPLES, STEPS, WIDTH, PAD = 11, 6, 9, 8, 0


class HealthyCase(GraphCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS))
        for row, length in zip(self.text, (STEPS, 4, 6, STEPS, 3, 7)):
            row[length:] = PAD

    def scores(self, *sizes):
        return nn.Linear(5, sizes[-1])(torch.randn(*sizes[:-1], 5))


class DividedTwice(HealthyCase):
    NAME = "loss.divided_twice"

    def test_a_mask_as_divisor(self):
        mask = torch.ones(8, dtype=torch.bool)
        self.assertEqual(self.of((self.scores(8) / mask).sum()), [])

    def test_a_mean_over_all_pairs(self):
        counts = torch.tensor([2, 3, 4, 5])
        for add in (
            lambda pairs: pairs.sum((1, 2)),
            lambda pairs: pairs.sum(2).sum(1),
        ):
            whole = add(self.scores(4, 6, 6).square())
            self.assertEqual(self.of((whole / counts / counts).mean()), [0.0])

    def test_a_sum_over_other_sizes(self):
        counts = torch.tensor([2, 3, 4, 5])
        table = self.scores(4, 6, 3).square().sum((1, 2))
        self.assertEqual(self.of((table / counts / counts).mean()), [1.0])


class FavoursFrequent(HealthyCase):
    NAME = "loss.favours_frequent"

    def test_labels_that_are_booleans(self):
        labels = torch.arange(32)[:, None] % 8 == 0
        weight = torch.tensor([7.0])
        loss = F.binary_cross_entropy_with_logits(
            self.scores(32, 1), labels.float(), pos_weight=weight
        )
        self.assertEqual(self.of(loss), [0.0])


class PoolsPadding(HealthyCase):
    NAME = "loss.pools_padding"

    def of_pooled(self, pool):
        words = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        hidden = self.text == PAD
        states = layer(words(self.text), src_key_padding_mask=hidden)
        return self.of(pool(states, hidden).square().mean())

    def test_zeros_and_the_share_of_real_tokens(self):
        def pool(states, hidden):
            real = (~hidden).float().mean(1, keepdim=True)
            return states.masked_fill(hidden[..., None], 0.0).mean(1) / real

        def chosen(states, hidden):
            real = (~hidden).float().mean(1, keepdim=True)
            return torch.where(hidden[..., None], 0.0, states).mean(1) / real

        self.assertEqual(self.of_pooled(pool), [])
        self.assertEqual(self.of_pooled(chosen), [])

    def test_a_mean_of_all(self):
        self.assertEqual(self.of_pooled(lambda states, _: states.mean(1)), [1.0])


class TargetsOutOfReach(HealthyCase):
    NAME = "loss.targets_out_of_reach"

    def test_missing_values_that_a_mask_leaves_out(self):
        seen = (torch.rand(8, 8) < 0.5).float()
        depth = torch.where(seen > 0, torch.rand(8, 8), -1.0)
        predicted = lambda: torch.sigmoid(self.scores(8, 8))
        for errors in (
            lambda: F.mse_loss(predicted(), depth, reduction="none"),
            lambda: (predicted() - depth).square(),
            lambda: (predicted() - depth).abs(),
        ):
            self.assertEqual(self.of((errors() * seen).sum() / seen.sum()), [])
            self.assertEqual(self.of(errors()[seen > 0].mean()), [])

    def test_errors_that_are_averaged_later(self):
        signs = torch.randn(8, 8).sign()
        predicted = lambda: torch.sigmoid(self.scores(8, 8))
        for loss in (
            F.mse_loss(predicted(), signs, reduction="none").mean(),
            F.mse_loss(predicted(), signs, reduction="none").mean(1).mean(),
            0.5 * (predicted() - signs).square().sum(1).mean(),
            (predicted() - signs).square().mean().sqrt(),
            ((predicted() - signs).abs() * torch.full((8, 8), 2.0)).mean(),
        ):
            self.assertEqual(self.of(loss), [1.0])

    def test_noise_around_values_in_reach(self):
        clean = torch.zeros(8, 1, 16, 16)
        clean[:, :, 4:9, 4:9] = 1
        noisy = clean + 0.3 * torch.randn_like(clean)
        predicted = torch.sigmoid(self.scores(8, 1, 16, 16))
        self.assertEqual(self.of(F.mse_loss(predicted, noisy)), [])

    def test_pictures_of_another_range(self):
        pictures = 2 * torch.rand(8, 1, 1, 1).expand(8, 1, 16, 16) - 1
        predicted = torch.sigmoid(self.scores(8, 1, 16, 16))
        self.assertEqual(self.of(F.mse_loss(predicted, pictures)), [1.0])


class ScoresDropped(HealthyCase):
    NAME = "loss.scores_dropped"

    def test_a_mask_of_both_sides(self):
        mask = (torch.rand(8, 4) < 0.7).float()
        weights = (mask / mask.mean()).sqrt()
        targets = torch.randn(8, 4)
        loss = F.mse_loss(self.scores(8, 4) * weights, targets * weights)
        self.assertEqual(self.of(loss), [0.0])
        swapped = F.mse_loss(targets * weights, self.scores(8, 4) * weights)
        self.assertEqual(self.of(swapped), [0.0])
        self.assertEqual(
            self.of(F.mse_loss(targets, self.scores(8, 4) * weights)), [1.0]
        )


class OneClass(HealthyCase):
    NAME = "loss.one_class"

    def test_one_head_of_several(self):
        zeros = torch.zeros(8, dtype=torch.int64)
        entropy = lambda count: F.cross_entropy(self.scores(8, count), zeros)
        several = torch.stack([entropy(count) for count in (2, 1, 4)])
        self.assertEqual(self.of(several.sum()), [0.0])
        self.assertEqual(self.of(entropy(1) + entropy(1) * 2), [1.0])


class AttendsToPadding(HealthyCase):
    NAME = "loss.attends_to_padding"

    def of_text(self, attend, text=None, padding=PAD):
        text = self.text if text is None else text
        words = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        return self.of(attend(words(text)).square().mean())

    def by_heads(self, x, mask, heads=2):
        """[heads * samples, ...], as the first programs with attention have it."""
        parts = x.view(*x.shape[:2], heads, -1).permute(2, 0, 1, 3).flatten(0, 1)
        scores = parts @ parts.transpose(1, 2)
        if mask is not None:
            scores = scores.masked_fill(mask.repeat(heads, 1, 1), float("-inf"))
        return scores.softmax(-1) @ parts

    def test_heads_before_samples(self):
        hidden = (self.text == PAD)[:, None].expand(-1, STEPS, -1)
        self.assertEqual(self.of_text(lambda x: self.by_heads(x, hidden)), [0.0])
        self.assertEqual(self.of_text(lambda x: self.by_heads(x, None)), [1.0])

    def test_weights_that_are_masked(self):
        real = (self.text != PAD).float()[:, None]

        def attend(x):
            weights = (x @ x.transpose(1, 2) * real).softmax(-1) * real
            return weights / (weights.sum(-1, keepdim=True) + 1e-13) @ x

        self.assertEqual(self.of_text(attend), [0.0])

    def test_a_finite_fill(self):
        hidden = (self.text == PAD)[:, None]
        attend = lambda x: (x @ x.transpose(1, 2)).masked_fill(hidden, -100)
        self.assertEqual(self.of_text(lambda x: attend(x).softmax(-1) @ x), [0.0])

    def test_a_state_that_is_never_left(self):
        states = self.text.masked_fill(self.text == PAD, WORDS - 1)
        attend = lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x
        self.assertEqual(self.of_text(attend, states, padding=None), [])

    def test_rows_that_are_sorted_and_as_many_as_steps(self):
        lengths = torch.tensor([9, 9, 8, 7, 7, 5, 4, 4, 3])
        text = torch.randint(1, WORDS, (9, 9))
        text = text.masked_fill(torch.arange(9) >= lengths[:, None], PAD)
        hidden = (text == PAD)[:, None]

        def attend(x):
            scores = (x @ x.transpose(1, 2)).masked_fill(hidden, float("-inf"))
            return scores.softmax(-1) @ x

        self.assertEqual(self.of_text(attend, text), [])


class PaddingIdxIsAToken(HealthyCase):
    NAME = "loss.padding_idx_is_a_token"

    def test_no_event_and_a_last_state(self):
        days = self.text.masked_fill(self.text == PAD, WORDS - 1)
        days[:, 1] = PAD
        codes = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        states, _ = nn.GRU(WIDTH, WIDTH, batch_first=True)(codes(days))
        self.assertEqual(self.of(states.mean(1).square().mean()), [])

    def test_a_large_vocabulary(self):
        text = self.text.masked_fill(self.text == PAD, 99)
        text[:, 1] = PAD
        words = nn.Embedding(100, WIDTH, padding_idx=PAD)
        self.assertEqual(self.of(words(text).square().mean()), [1.0])


class PositionsOfSamples(HealthyCase):
    NAME = "loss.positions_of_samples"

    def of_stores(self, rows):
        days, stores = nn.Embedding(WORDS, WIDTH), nn.Embedding(rows, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        x = days(self.text) + stores(torch.arange(SAMPLES)[:, None])
        return self.of(layer(x).square().mean())

    def test_a_vector_for_each_sample(self):
        self.assertEqual(self.of_stores(SAMPLES), [])
        self.assertEqual(self.of_stores(SAMPLES + 4), [1.0])


class WeighsOverSamples(HealthyCase):
    NAME = "loss.weighs_over_samples"

    def test_parts_of_one_sample(self):
        classes, shares = self.scores(24, 4).softmax(1), self.scores(24, 4).softmax(0)
        picture = (classes * shares).sum(0).clamp(1e-6, 1 - 1e-6)
        labels = torch.randint(4, (24,))
        loss = F.cross_entropy(self.scores(24, 4), labels)
        present = torch.tensor([1.0, 0.0, 1.0, 0.0])
        loss += F.binary_cross_entropy(picture, present)
        self.assertNotIn(1.0, self.of(loss))

    def test_shares_of_layers(self):
        shares = nn.Parameter(torch.randn(6, 4)).softmax(0)
        x = self.scores(6, 4) * shares
        labels = torch.randint(4, (6,))
        self.assertEqual(self.of(F.cross_entropy(x, labels)), [])

    def test_attention_over_the_samples(self):
        states = self.scores(6, 9, 4)
        weights = nn.Linear(4, 1)(states).squeeze(-1).softmax(0)
        pooled = (weights.unsqueeze(-1) * states).sum(1)
        labels = torch.randint(4, (6,))
        self.assertEqual(self.of(F.cross_entropy(pooled, labels)), [1.0])


class NoiseByVariance(HealthyCase):
    NAME = "loss.noise_by_variance"

    def test_a_small_number_beside_the_deviation(self):
        mean, log = self.scores(16, 8).chunk(2, 1)
        deviation = log.exp()
        action = mean + deviation * torch.randn_like(mean)
        likelihood = -0.5 * ((action - mean) / (deviation + 1e-6)) ** 2 - log - 0.9
        self.assertEqual(self.of(likelihood.sum(1).mean()), [])

    def test_a_divergence_in_parts(self):
        mean, log = self.scores(16, 8).chunk(2, 1)
        drawn = mean + log.exp() * torch.randn_like(mean)
        divergence = (log.exp() - 1).sum() - (log + 1).sum() + mean.square().sum()
        self.assertEqual(self.of(drawn.square().mean() + 0.5 * divergence), [1.0])


class PenaltyWithoutGraph(HealthyCase):
    NAME = "loss.penalty_without_graph"

    def of_terms(self, loss):
        HooksCase.setUp(self)
        net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
        x = torch.randn(16, 5, requires_grad=True)
        [slope] = torch.autograd.grad(net(x).sum(), x)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        loss(net(x).mean(), net(x).square().mean(), penalty).backward()
        return said(self.NAME)

    def test_a_sum_of_a_list(self):
        self.assertEqual(self.of_terms(lambda one, two, _: sum([one, two])), [])
        self.assertEqual(self.of_terms(lambda *terms: sum(terms)), [1.0])
        self.assertEqual(self.of_terms(lambda *terms: sum(terms[::-1])), [1.0])


class OverlapOfScores(HealthyCase):
    NAME = "loss.overlap_of_scores"

    def test_cosines_and_projections(self):
        mask = F.one_hot(torch.arange(8) % 4, 4).float()
        for below in (
            lambda out: out.pow(2).sum(1).sqrt(),
            lambda out: out.pow(2).sum(1),
            lambda out: out.norm(dim=1),
        ):
            out = self.scores(8, 4)
            shared = (out * mask).sum(1)
            self.assertEqual(self.of((shared / below(out)).mean()), [])


class RowsReordered(HooksCase):
    NAME = "loss.rows_reordered"

    def of(self, lose):
        torch.manual_seed(0)
        HooksCase.setUp(self)
        words, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 2)
        x, y = torch.randint(WORDS, (8, STEPS)), torch.arange(8) % 2
        for rows, labels in DataLoader(TensorDataset(x, y), batch_size=8):
            order = rows[:, 0].argsort()
            lose(lambda rows: head(words(rows).sum(1)), rows, labels, order).backward()
        return said(self.NAME)

    def test_losses_of_both_orders(self):
        def mixed(read, rows, labels, order):
            scores = 0.3 * read(rows) + 0.7 * read(rows[order])
            other = F.cross_entropy(scores, labels[order])
            return 0.3 * F.cross_entropy(scores, labels) + 0.7 * other

        self.assertEqual(self.of(mixed), [0.0])

    def test_vectors_of_both_orders(self):
        def noisy(read, rows, labels, order):
            return F.cross_entropy(read(rows) + 0.1 * read(rows[order]), labels)

        self.assertEqual(self.of(noisy), [])

    def test_batches_of_many_tensors(self):
        orders = RowOrders(PromptEnds(set()))
        orders.fetched(1, [torch.zeros(8, dtype=torch.int64) for _ in range(99)])
        self.assertLess(len(orders._targets), 9)
        wide = torch.arange(1 << 10).repeat(1 << 5, 1 << 5)
        orders.fetched(1, [wide])
        self.assertEqual(orders._positions, [])


class AttendsAcrossTexts(unittest.TestCase):
    def test_hours_and_columns(self):
        hours = torch.arange(48).expand(4, -1) % 24
        for periods in (hours, hours[:, :40], torch.arange(16)[None] % 4):
            self.assertIsNone(packed_texts.texts_of(periods))

    def test_texts_of_different_lengths(self):
        rows = [[0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 0, 1, 2]]
        self.assertIsNotNone(packed_texts.texts_of(torch.tensor(rows)))


class LowersEntropy(HealthyCase):
    NAME = "loss.lowers_entropy"

    def test_the_entropy_of_samples_without_labels(self):
        labels = torch.arange(8) % 4
        for choose in (
            lambda known: known[torch.arange(8), labels],
            lambda known: known.gather(1, labels[:, None]).squeeze(1),
        ):
            logarithms = self.scores(24, 4).log_softmax(1)
            chosen, unknown = choose(logarithms[:8]), logarithms[8:]
            entropy = -(unknown.exp() * unknown).sum(1).mean()
            self.assertEqual(self.of(0.1 * entropy - chosen.mean()), [])

    def test_single_actions(self):
        policy = Categorical(logits=self.scores(4))
        chosen = policy.log_prob(torch.tensor(1))
        self.assertEqual(self.of(policy.entropy() - 0.3 * chosen), [1.0])


class RatioStartsApart(HealthyCase):
    NAME = "loss.ratio_starts_apart"

    def test_limits_of_variances_and_temperatures(self):
        for low, high in ((1e-6, 1e6), (0.01, 100.0), (0.5, 10.0)):
            variance = self.scores(8, 1).exp().clamp(low, high)
            self.assertEqual(self.of((1 / variance + variance.log()).mean()), [])
        ratio = (1 + self.scores(8, 1)).exp()
        self.assertEqual(self.of(ratio.clamp(0.8, 1.28).mean()), [1.0])


class StrayTerm(HooksCase):
    NAME = "loss.stray_term"

    def test_steps_that_take_turns(self):
        parts = [nn.Parameter(torch.randn(4, 2)) for _ in range(2)]
        optimizers = [torch.optim.SGD([part], lr=0.01) for part in parts]

        def objective():
            error = (parts[0] @ parts[1].t() - 1).square().mean()
            return error + sum(0.1 * part.square().mean() for part in parts)

        for _ in range(5):
            optimizers[0].zero_grad()
            objective().backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            loss = objective()
            loss.backward()
            optimizers[1].step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_an_optimizer_that_is_gone_has_no_number(self):
        terms = StrayTerms(None)
        weights = [nn.Parameter(torch.ones(1))]
        numbers = {terms._number(torch.optim.SGD(weights, lr=1.0)) for _ in range(5)}
        self.assertEqual(numbers, {1, 2, 3, 4, 5})
        self.assertEqual(len(terms._numbers), 0)


class MultipliesCrosswise(HealthyCase):
    NAME = "loss.multiplies_crosswise"

    def test_slopes_times_hours(self):
        hours, future = torch.arange(1.0, 9.0), torch.randn(8, 8)
        forecast = self.scores(8, 1) + self.scores(8, 1) * hours
        error = future - forecast
        pinball = torch.maximum(0.9 * error, -0.1 * error)
        self.assertEqual(self.of(pinball.mean()), [])
        self.assertEqual(self.of((self.scores(8, 1) * hours).mean()), [1.0])


class KeepsIgnored(HealthyCase):
    NAME = "loss.keeps_ignored"

    def test_single_tokens_that_are_alike(self):
        ids = torch.randint(3, WORDS, (2, 15))
        ids[:, 4::5] = PAD
        judged = torch.zeros(2, 15)
        judged[:, 4::5] = 1
        logarithms = self.scores(2, 15, WORDS).log_softmax(-1)
        chosen = logarithms.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        self.assertEqual(self.of(-(chosen * judged).sum() / judged.sum()), [])


class LayersAreLinear(HealthyCase):
    NAME = "loss.layers_are_linear"

    def test_a_product_of_two_towers(self):
        users, items = self.scores(8, 16), self.scores(4, 16)
        labels = torch.arange(8) % 4
        self.assertEqual(self.of(F.cross_entropy(users @ items.t(), labels)), [0.0])


class ReadsPaddedState(HealthyCase):
    NAME = "loss.reads_padded_state"

    def of_cell(self, choose):
        words = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        cell, state = nn.GRUCell(WIDTH, WIDTH), torch.zeros(SAMPLES, WIDTH)
        for x, tokens in zip(words(self.text).unbind(1), self.text.unbind(1)):
            state = choose((tokens != PAD)[:, None], cell(x, state), state)
        return self.of(state.square().mean())

    def test_a_state_that_padding_leaves_as_it_is(self):
        self.assertNotIn(1.0, self.of_cell(torch.where))
        blend = lambda real, new, old: real * new + (~real) * old
        self.assertNotIn(1.0, self.of_cell(blend))


class Bounds(unittest.TestCase):
    def test_checkpoints_of_many_numbers(self):
        keys, leaves, left_out = flatten({"a": [0] * 10_000_000, "b": 1})
        self.assertEqual((len(keys), len(leaves)), (20_000, 20_000))
        self.assertEqual(left_out, 10_000_001 - 20_000)
        keys, _, left_out = flatten([[[] for _ in range(10_000)] for _ in range(50)])
        self.assertEqual(keys, [])
        self.assertGreater(left_out, 0)

    def test_a_look_at_an_average_holds_no_parameter(self):
        copy, source = torch.ones(3), torch.zeros(3)
        look = rounded_averages._Look([("weight", copy, source)])
        held = [value for value in vars(look).values() if value is copy]
        self.assertEqual(held, [])
        self.assertTrue(look.is_of([("weight", copy, source)]))
        self.assertFalse(look.is_of([("weight", source, copy)]))


if __name__ == "__main__":
    unittest.main()
