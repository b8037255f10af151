"""What whole graphs of losses say of tokens, masks, samples and labels."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase
from _traincheck import graph_nodes

WORDS, SAMPLES, STEPS, WIDTH = 11, 6, 9, 8


def scalars(name):
    return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]


class GraphCase(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def of(self, loss, name):
        """Values of the scalar that a backward of the loss wrote."""
        HooksCase.setUp(self)  # only the first backwards are looked at
        self.backward(loss)
        return scalars(name)


class Tokens(GraphCase):
    def setUp(self):
        super().setUp()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS + 1))

    def by_hand(self, x, causal, y=None):
        scores = x @ (x if y is None else y).transpose(-1, -2) / WIDTH**0.5
        if causal:
            hidden = torch.ones(scores.shape[-2:]).triu(1) > 0
            scores = scores.masked_fill(hidden, float("-inf"))
        return scores.softmax(-1) @ (x if y is None else y)

    def by_torch(self, x, causal):
        x = x.unflatten(-1, (2, -1)).transpose(-2, -3)
        return (
            F.scaled_dot_product_attention(x, x, x, is_causal=causal)
            .transpose(-2, -3)
            .flatten(-2)
        )

    def by_layer(self, x, causal):
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return layer(x, src_mask=mask if causal else None)

    def loss(self, given, targets, attend, causal):
        scores = self.head(attend(self.embed(given), causal))
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def attends(self):
        return (self.by_hand, self.by_torch, self.by_layer)

    def test_targets_that_are_seen(self):
        given, targets = self.text[:, :-1], self.text[:, 1:]
        for attend in self.attends():
            for causal in (False, True):
                loss = self.loss(given, targets, attend, causal)
                self.assertEqual(
                    self.of(loss, "loss.sees_targets"), [0.0 if causal else 1.0]
                )

    def test_targets_that_end_with_the_last_token(self):
        for ignored in (False, True):
            targets = self.text[:, 1:].clone()
            if ignored:
                targets[:, :2] = -100
            scores = self.head(self.by_hand(self.embed(self.text), False))[:, :-1]
            loss = F.cross_entropy(scores.transpose(1, 2), targets)
            self.assertEqual(self.of(loss, "loss.sees_targets"), [1.0])

    def test_steps_before_the_batch(self):
        given, targets = self.text.t()[:-1], self.text.t()[1:]

        def attend(x, causal):
            return self.by_hand(x.transpose(0, 1), causal).transpose(0, 1)

        loss = self.loss(given, targets, attend, False)
        self.assertEqual(self.of(loss, "loss.sees_targets"), [1.0])

    def test_labels_that_are_shifted_twice(self):
        name = "loss.shifts_twice"
        for attend in (self.by_hand, lambda x, causal: x):
            for shift, wrong in ((1, 0.0), (2, 1.0)):
                scores = self.head(attend(self.embed(self.text), True))
                loss = F.cross_entropy(
                    scores[:, :-shift].flatten(0, 1), self.text[:, shift:].flatten()
                )
                self.assertEqual(self.of(loss, name), [wrong])
        scores = self.head(self.embed(self.text[:, :-1]))[:, :-1]
        loss = F.cross_entropy(scores.flatten(0, 1), self.text[:, 2:].flatten())
        self.assertEqual(self.of(loss, name), [1.0])
        further = self.head(self.embed(self.text))
        loss = sum(
            F.cross_entropy(further[:, :-n].flatten(0, 1), self.text[:, n:].flatten())
            for n in (1, 2)
        )
        self.assertEqual(self.of(loss, name), [0.0])

    def test_an_encoder_sees_all(self):
        source = torch.randint(1, WORDS, (SAMPLES, STEPS))
        for shared in (False, True):
            encoder = self.embed if shared else nn.Embedding(WORDS, WIDTH)
            for crosses in (False, True):
                seen = self.by_hand(encoder(source), False)
                x = self.by_hand(self.embed(self.text[:, :-1]), True)
                y = self.by_hand(x, False, seen) if crosses else seen + x
                loss = F.cross_entropy(
                    self.head(y).flatten(0, 1), self.text[:, 1:].flatten()
                )
                self.assertEqual(self.of(loss, "loss.sees_targets"), [0.0])

    def test_masked_words_are_no_next_ones(self):
        given = self.text.clone()
        given[:, ::3] = 0
        targets = torch.where(given == 0, self.text, -100)
        loss = self.loss(given, targets, self.by_hand, False)
        self.assertEqual(self.of(loss, "loss.sees_targets"), [])
        self.assertEqual(
            self.of(
                self.loss(given, targets, self.by_hand, False), "loss.repeats_input"
            ),
            [],
        )

    def test_tokens_that_are_to_be_repeated(self):
        name = "loss.repeats_input"
        for attend in self.attends():
            loss = self.loss(self.text, self.text, attend, True)
            self.assertEqual(self.of(loss, name), [1.0])
            loss = self.loss(self.text[:, :-1], self.text[:, 1:], attend, True)
            self.assertEqual(self.of(loss, name), [0.0])
            # What is squeezed through something narrow may be asked for again.
            loss = self.loss(self.text, self.text, attend, False)
            self.assertEqual(self.of(loss, name), [])

    def test_padding_that_is_learned(self):
        name = "loss.learns_padding"
        self.text[:3, 5:] = 0
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        given, targets = self.text[:, :-1], self.text[:, 1:]

        def loss(**options):
            scores = self.head(self.by_hand(self.embed(given), True))
            return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), **options)

        weight = torch.ones(WORDS)
        weight[0] = 0
        self.assertEqual(self.of(loss(), name), [1.0])
        self.assertEqual(self.of(loss(ignore_index=0), name), [0.0])
        self.assertEqual(self.of(loss(weight=weight), name), [0.0])
        weighed = loss(reduction="none") * (targets.flatten() != 0)
        self.assertEqual(self.of(weighed.sum(), name), [])
        # Of other classes than the tokens padding has one all the same.
        self.head = nn.Linear(WIDTH, WORDS + 1)
        self.assertEqual(self.of(loss(), name), [1.0])

    def test_padding_that_is_pooled(self):
        name = "loss.pools_padding"
        self.text[:3, 5:] = 0
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        real = (self.text != 0)[..., None].float()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)

        def loss(pool):
            hidden = layer(self.embed(self.text), src_key_padding_mask=self.text == 0)
            return pool(hidden).square().mean()

        self.assertEqual(self.of(loss(lambda x: x.mean(1)), name), [1.0])
        self.assertEqual(self.of(loss(lambda x: x.mean(-2)), name), [1.0])
        masked = lambda x: (x * real).sum(1) / real.sum(1)
        self.assertEqual(self.of(loss(masked), name), [0.0])
        for pool in (
            lambda x: x[:, 0],
            lambda x: x.amax(1),
            lambda x: x.mean(2),
            lambda x: (x * real).mean(1),
        ):
            self.assertEqual(self.of(loss(pool), name), [])
        # Without attention the padding's vector of zeros changes the scale alone.
        bag = self.embed(self.text).mean(1).square().mean()
        self.assertEqual(self.of(bag, name), [])
        self.text[:, 5:] = 1
        self.assertEqual(self.of(loss(lambda x: x.mean(1)), name), [])

    def padded(self, attend, inverted):
        self.text[:4, 5:] = 0
        padding = self.text == 0
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        return attend(self.embed(self.text), ~padding if inverted else padding).sum()

    def test_inverted_masks(self):
        name = "loss.mask_inverted"

        def by_hand(x, hidden):
            scores = (x @ x.transpose(1, 2)).masked_fill(hidden[:, None], -1e9)
            return scores.softmax(-1) @ x

        def by_layer(x, hidden):
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
            return layer(x, src_key_padding_mask=hidden)

        def by_module(x, hidden):
            module = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
            return module(x, x, x, key_padding_mask=hidden)[0]

        def fused(x, hidden):
            x = x.unflatten(2, (2, 4)).transpose(1, 2)
            mask = ~hidden[:, None, None]
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

        def from_labels(x, hidden):
            labels = nn.Parameter(torch.randn(3, WIDTH))
            queries = labels.expand(len(x), -1, -1)
            mask = ~hidden[:, None]
            return F.scaled_dot_product_attention(queries, x, x, attn_mask=mask)

        def from_labels_by_hand(x, hidden):
            labels = nn.Parameter(torch.randn(len(x), 3, WIDTH))
            scores = (labels @ x.transpose(1, 2)).masked_fill(hidden[:, None], -1e9)
            return scores.softmax(-1) @ x

        kinds = (by_hand, by_layer, by_module, fused, from_labels, from_labels_by_hand)
        for attend in kinds:
            with self.subTest(attend.__name__):
                self.assertEqual(self.of(self.padded(attend, False), name), [0.0])
                self.assertEqual(self.of(self.padded(attend, True), name), [1.0])
        unmasked = self.padded(lambda x, hidden: self.by_hand(x, False), False)
        self.assertEqual(self.of(unmasked, name), [])

    def test_masks_of_ones(self):
        ones = torch.ones(STEPS + 1, STEPS + 1).tril()
        for mask, wrong in (
            (ones, [1.0]),
            (ones.log(), [0.0]),
            (ones > 0, []),
            (ones - ones, [0.0]),
            (0.3 * ones, [0.0]),
        ):
            x = self.embed(self.text)[:, None]
            loss = F.scaled_dot_product_attention(x, x, x, attn_mask=mask).sum()
            found = self.of(loss, "loss.mask_of_ones")
            # A mask of booleans is made one of numbers by some versions.
            self.assertIn(found, ([0.0], []) if not wrong else (wrong,))

    def test_nothing_is_unpacked(self):
        given, targets = self.text[:, :-1], self.text[:, 1:]
        unpacked = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: tensor, lambda tensor: unpacked.append(1) or tensor
        ):
            loss = self.loss(given, targets, self.by_hand, False)
        seen = []
        loss.register_hook(lambda gradient: seen.append(len(unpacked)))
        loss.backward()
        self.assertEqual(scalars("loss.sees_targets"), [])
        self.assertEqual(seen, [0])  # before the first gradient

    def test_checkpointing_packs(self):
        region = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        checkpoint.checkpoint(region, torch.ones(2, 3), use_reentrant=False).sum()
        self.assertTrue(graph_nodes._packed)


class Samples(GraphCase):
    def classify(self, layer, samples, steps):
        x = torch.randn(samples, steps, WIDTH)
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        scores = nn.Linear(y.shape[-1], 3)(y[:, -1])
        return F.cross_entropy(scores, torch.arange(samples) % 3)

    def test_samples_that_are_taken_for_steps(self):
        name = "loss.samples_as_steps"
        for first in (False, True):
            layers = [
                cls(WIDTH, 5, batch_first=first) for cls in (nn.LSTM, nn.GRU, nn.RNN)
            ]
            layers.append(nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=first))
            layers.append(
                nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=first)
            )
            for layer in layers:
                found = self.of(self.classify(layer, 6, 4), name)
                self.assertEqual(set(found), {0.0 if first else 1.0}, layer)
                # Where both are as many, nothing tells them apart.
                self.assertEqual(self.of(self.classify(layer, 6, 6), name), [])

    def test_last_states_that_a_view_mixes(self):
        layer = nn.GRU(WIDTH, 5, bidirectional=True, batch_first=True)
        for view, wrong in (
            (lambda h: h.view(6, 10), [1.0]),
            (lambda h: h.reshape(6, -1), [1.0]),
            (lambda h: h.transpose(0, 1).reshape(6, 10), []),
            (lambda h: torch.cat((h[0], h[1]), 1), []),
        ):
            h = view(layer(torch.randn(6, 4, WIDTH))[1])
            loss = F.cross_entropy(nn.Linear(10, 3)(h), torch.arange(6) % 3)
            found = self.of(loss, "loss.mixes_rows")
            self.assertEqual([value for value in found if value], wrong)

    def test_views_that_mix_nothing(self):
        x = nn.Linear(WIDTH, 5)(torch.randn(6, 4, WIDTH))
        loss = nn.Linear(20, 2)(x.view(6, 20)).square().mean()
        self.assertEqual(self.of(loss, "loss.mixes_rows"), [0.0])
        x = nn.Linear(WIDTH, 5)(torch.randn(6, 4, WIDTH))
        loss = nn.Linear(5, 2)(x.view(24, 5)).square().mean()
        self.assertEqual(self.of(loss, "loss.mixes_rows"), [])

    def test_one_sequence_of_labelled_steps(self):
        layer = nn.LSTM(WIDTH, 5)
        y = layer(torch.randn(6, 1, WIDTH))[0][:, 0]
        loss = F.cross_entropy(nn.Linear(5, 3)(y), torch.arange(6) % 3)
        self.assertEqual(self.of(loss, "loss.samples_as_steps"), [])

    def test_windows_of_samples(self):
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        x = layer(torch.randn(6 * 3, 6, WIDTH)).unflatten(0, (6, 3)).mean((1, 2))
        loss = F.cross_entropy(nn.Linear(WIDTH, 3)(x), torch.arange(6) % 3)
        self.assertEqual(self.of(loss, "loss.samples_as_steps"), [0.0])


class Labels(GraphCase):
    def test_labels_that_are_no_signs(self):
        name = "loss.labels_no_signs"
        signs = torch.tensor([1.0, -1.0, 1.0, -1.0])
        for labels, wrong in ((signs, 0.0), ((signs + 1) / 2, 1.0)):
            x = torch.randn(4, 5, requires_grad=True)
            y = torch.randn(4, 5)
            for loss in (
                F.margin_ranking_loss(x[:, 0], x[:, 1], labels, margin=0.3),
                F.cosine_embedding_loss(x, y, labels),
                F.hinge_embedding_loss(x[:, 0].square(), labels),
                F.soft_margin_loss(x[:, 0], labels),
            ):
                self.assertEqual(self.of(loss, name), [wrong])

    def test_what_needs_no_signs(self):
        x = torch.randn(4, 5, requires_grad=True)
        weighed = (torch.rand(4) * (x[:, 0] - x[:, 1]) + 0.2).clamp(min=0).mean()
        pieces = torch.where(x < 0, x, 0.0) + torch.where(x >= 0, x * 2, 0.0)
        both = torch.where(x < 0, x, 0.0) + torch.where(x < 0.5, x * 2, 0.0)
        for loss in (weighed, pieces.sum(), both.sum()):
            self.assertNotIn(1.0, self.of(loss, "loss.labels_no_signs"))

    def test_samples_that_are_contrasted_with_themselves(self):
        name = "loss.contrasts_with_itself"
        twin = torch.arange(8).roll(4)

        def loss(targets, masked):
            z = F.normalize(nn.Linear(5, 4)(torch.randn(8, 5)), dim=1)
            scores = z @ z.t() / 0.1
            if masked:
                scores = scores.masked_fill(torch.eye(8) > 0, float("-inf"))
            return F.cross_entropy(scores, targets)

        self.assertEqual(self.of(loss(twin, False), name), [1.0])
        self.assertEqual(self.of(loss(twin, True), name), [0.0])
        self.assertEqual(self.of(loss(torch.arange(8), False), name), [0.0])
        classes = F.cross_entropy(nn.Linear(5, 8)(torch.randn(8, 5)), twin)
        self.assertEqual(self.of(classes, name), [0.0])
        classes = F.cross_entropy(nn.Linear(5, 3)(torch.randn(8, 5)), twin % 3)
        self.assertEqual(self.of(classes, name), [])

    def test_several_labels_of_one_sample(self):
        name = "loss.several_labels"
        one = F.one_hot(torch.arange(8) % 4, 4).float()
        several = (one + one.roll(1, 1)).clamp(max=1)
        soft = several / several.sum(1, keepdim=True)
        for targets, found in ((one, [0.0]), (several, [1.0]), (soft, [])):
            scores = nn.Linear(5, 4)(torch.randn(8, 5))
            self.assertEqual(self.of(F.cross_entropy(scores, targets), name), found)
        # Several positives, each with its share.
        log = nn.Linear(5, 4)(torch.randn(8, 5)).log_softmax(1)
        supervised = -((several * log).sum(1) / several.sum(1)).mean()
        self.assertEqual(self.of(supervised, name), [])
        allowed = torch.tensor([1.0, 0.0, 1.0, 1.0])  # classes, for all samples
        log = nn.Linear(5, 4)(torch.randn(8, 5)).log_softmax(1)
        self.assertEqual(self.of(-(log * allowed).sum(1).mean(), name), [])

    def test_penalties_of_gradients(self):
        name = "loss.penalty_of_parts"
        critic = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.LeakyReLU(), nn.Flatten(), nn.Linear(64, 1)
        )

        def penalty(norm):
            x = torch.randn(3, 2, 6, 6, requires_grad=True)
            (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            return (norm(gradient) - 1).square().mean()

        for norm, wrong in (
            (lambda g: g.norm(2, dim=1), [1.0]),
            (lambda g: g.norm(2, dim=(2, 3)), [1.0]),
            (lambda g: g.flatten(1).norm(2, dim=1), [0.0]),
            (lambda g: g.norm(2, dim=(1, 2, 3)), [0.0]),
            (lambda g: g.norm(), []),
            (lambda g: (g**2).sum(1).add(1e-12).sqrt(), [1.0]),
            (lambda g: ((g * g).sum((2, 3)) + 1e-12) ** 0.5, [1.0]),
            (lambda g: (g.square().sum((1, 2, 3)) + 1e-12) ** 0.5, [0.0]),
            (lambda g: g.flatten(1).square().sum(1).sqrt(), [0.0]),
            (lambda g: g.square().mean(1).sqrt(), []),
        ):
            self.assertEqual(self.of(penalty(norm), name), wrong)
        hidden = critic[0](torch.randn(3, 2, 6, 6)).norm(2, dim=1)
        self.assertEqual(self.of((hidden - 1).square().mean(), name), [])

    def ctc(self, scores, targets):
        return F.ctc_loss(
            scores, targets, torch.full((3,), 12), torch.tensor([3, 2, 1])
        )

    def test_ctc(self):
        scores = torch.randn(12, 3, 5, requires_grad=True)
        targets = torch.tensor([[1, 2, 3], [2, 1, 0], [4, 0, 0]])
        right = self.ctc(scores.log_softmax(2), targets)
        self.assertEqual(self.of(right, "loss.ctc_blank"), [0.0])
        right = self.ctc(scores.log_softmax(2), targets)
        self.assertEqual(self.of(right, "loss.ctc_of_scores"), [0.0])
        blank = self.ctc(scores.log_softmax(2), targets.flip(1))
        self.assertEqual(self.of(blank, "loss.ctc_blank"), [1.0])
        flat = self.ctc(scores.log_softmax(2), torch.tensor([1, 2, 3, 2, 1, 4]))
        self.assertEqual(self.of(flat, "loss.ctc_blank"), [0.0])
        wrong = self.ctc(scores, targets)
        self.assertEqual(self.of(wrong, "loss.ctc_of_scores"), [1.0])

    def test_targets_that_hand_gradients_back(self):
        name = "loss.bootstraps_with_gradient"
        net = nn.Linear(5, 3)
        x, then, reward = torch.randn(4, 5), torch.randn(4, 5), torch.randn(4)
        action = torch.zeros(4, 1, dtype=torch.int64)

        def value():
            return net(x).gather(1, action).squeeze(1)

        best = reward + 0.9 * net(then).max(1).values
        for error in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
            best = reward + 0.9 * net(then).max(1).values
            self.assertEqual(self.of(error(value(), best), name), [1.0])
            best = reward + 0.9 * net(then).max(1).values
            self.assertEqual(self.of(error(value(), best.detach()), name), [])
        pooled = net(then).max(1).values
        self.assertEqual(self.of(F.mse_loss(value(), pooled), name), [])

    def test_values_of_the_next_state_that_hand_gradients_back(self):
        name = "loss.bootstraps_with_gradient"
        critic = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
        x, then, goes_on = torch.randn(4, 5), torch.randn(4, 5), torch.ones(4)
        value = lambda: critic(x).squeeze(-1)
        target = lambda: 1.0 + 0.9 * goes_on * critic(then).squeeze(-1)
        for error in (
            F.mse_loss,
            F.smooth_l1_loss,
            lambda a, b: F.mse_loss(b, a),
            lambda a, b: (b - a).pow(2).mean(),
        ):
            self.assertEqual(self.of(error(value(), target()), name), [1.0])
            detached = target().detach()
            self.assertEqual(self.of(error(value(), detached), name), [])
        other = nn.Linear(5, 1)  # a mixture of two models is no estimate
        mixed = 1.0 + 0.9 * other(then).squeeze(-1)
        self.assertEqual(self.of(F.mse_loss(value(), mixed), name), [])


class TokensOnADevice(Tokens):
    ON_DEVICE = True


class SamplesOnADevice(Samples):
    ON_DEVICE = True


class LabelsOnADevice(Labels):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
