"""Graphs of losses of sequences that are right and come close to a mistake."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import GraphCase, said

WORDS, SAMPLES, STEPS, WIDTH = 11, 6, 9, 8


class Tokens(GraphCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS + 1))
        self.ahead = torch.ones(STEPS, STEPS).triu(1) > 0

    def attend(self, x, hidden=None, fill=-1e9):
        scores = x @ x.transpose(1, 2) / WIDTH**0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, fill)
        return scores.softmax(-1) @ x

    def learn(self, rows, targets, **options):
        scores = self.head(rows).flatten(0, 1)
        return F.cross_entropy(scores, targets.flatten(), **options)


class SeesTargets(Tokens):
    NAME = "loss.sees_targets"

    def copy(self, decode):
        """An encoder reads the text that its decoder is to write."""
        given, targets = self.text[:, :-1], self.text[:, 1:]
        read = self.attend(nn.Embedding(WORDS, WIDTH)(self.text)).mean(1)[:, None]
        return self.learn(decode(self.embed(given)) + read, targets)

    def test_an_encoder_of_the_same_text(self):
        causal = lambda x: self.attend(x, self.ahead)
        self.assertEqual(self.of(self.copy(causal)), [0.0])
        recurrence = nn.GRU(WIDTH, WIDTH, batch_first=True)
        decoders = [lambda x: recurrence(x)[0], lambda x: x]
        for decode in decoders:
            self.assertNotIn(1.0, self.of(self.copy(decode)))

    def test_a_decoder_that_sees_all_beside_an_encoder(self):
        loss = self.learn(
            self.attend(self.embed(self.text[:, :-1]))
            + self.attend(nn.Embedding(WORDS, WIDTH)(self.text[:, :-1])),
            self.text[:, 1:],
        )
        self.assertEqual(self.of(loss), [1.0])

    def prefix(self, seen, **options):
        """A prompt of four tokens that all see the first `seen`; answers are learned."""
        hidden = self.ahead.clone()
        hidden[:seen, :seen] = False
        targets = self.text[:, 1:].clone()
        if not options:
            targets[:, :3] = -100
        rows = self.attend(self.embed(self.text[:, :-1]), hidden)
        return self.learn(rows, targets, **options)

    def test_a_prompt_that_sees_itself(self):
        self.assertEqual(self.of(self.prefix(4)), [0.0])
        single = self.prefix(4, reduction="none").view(SAMPLES, STEPS)
        self.assertEqual(self.of(single[:, 3:].mean()), [0.0])

    def test_a_prompt_that_sees_the_answer(self):
        self.assertEqual(self.of(self.prefix(6)), [1.0])
        single = self.prefix(STEPS, reduction="none").view(SAMPLES, STEPS)
        self.assertEqual(self.of(single[:, 3:].mean()), [1.0])

    def left_padded(self, causal):
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        for row, start in zip(self.text, (3, 2, 1, 4, 0, 2)):
            row[:start] = 0
        given, targets = self.text[:, :-1], self.text[:, 1:]
        hidden = (given == 0)[:, None].expand(-1, STEPS, -1)
        rows = self.attend(self.embed(given), hidden | self.ahead if causal else hidden)
        return self.learn(rows, targets, ignore_index=0)

    def test_rows_of_padding_that_see_all_alike(self):
        self.assertEqual(self.of(self.left_padded(True)), [0.0])
        self.assertEqual(self.of(self.left_padded(False)), [1.0])

    def test_masks_of_finite_numbers(self):
        given, targets = self.text[:, :-1], self.text[:, 1:]
        for hidden, wrong in ((-9999.0, 0.0), (-1000.0, 0.0), (-1.0, 1.0)):
            mask = self.ahead * hidden
            x = self.embed(given)[:, None]
            rows = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)[:, 0]
            self.assertEqual(self.of(self.learn(rows, targets)), [wrong])


class RepeatsInput(Tokens):
    NAME = "loss.repeats_input"

    def of_rows(self, move):
        start, given = nn.Parameter(torch.randn(WIDTH)), self.text[:, 1:]
        rows = move(start.expand(SAMPLES, 1, -1), self.embed(given))
        return self.of(self.learn(self.attend(rows, self.ahead), given))

    def test_vectors_that_are_shifted(self):
        for move in (
            lambda start, x: torch.cat((start, x[:, :-1]), 1),
            lambda start, x: F.pad(x[:, :-1], (0, 0, 1, 0)),
        ):
            self.assertEqual(self.of_rows(move), [])

    def test_features_beside_each_other(self):
        rotate = lambda start, x: x + torch.cat((-x[..., 4:], x[..., :4]), -1)
        self.assertEqual(self.of_rows(rotate), [1.0])

    def test_a_causal_encoder_beside_a_decoder(self):
        targets = self.text[:, 1:]
        read = self.attend(self.embed(targets), self.ahead).mean(1)[:, None]
        rows = self.attend(self.embed(self.text[:, :-1]), self.ahead)
        self.assertEqual(self.of(self.learn(rows + read, targets)), [0.0])


class RepeatsInputInSteps(Tokens):
    """Recurrences, and words that are dropped."""

    NAME = "loss.repeats_input"
    KINDS = (nn.GRU, nn.LSTM, nn.RNN)

    def dropped(self, share=0.25, by=None):
        hit = torch.rand(self.text.shape) < share
        by = torch.zeros_like(self.text) if by is None else by
        return torch.where(hit, by, self.text)

    def of_states(self, kind, given, read=None, state=None, **options):
        layer = kind(WIDTH, WIDTH, batch_first=True, **options)
        wide = nn.Linear(WIDTH * (2 if layer.bidirectional else 1), WIDTH)
        states = layer(self.embed(given), state)[0]
        rows = F.dropout(wide(states if read is None else read(states)), 0.2)
        return self.of(self.learn(rows, self.text))

    def test_dropped_words(self):
        for kind in self.KINDS:
            self.assertEqual(self.of_states(kind, self.dropped()), [1.0])
            found = self.of_states(kind, self.dropped(), num_layers=2)
            self.assertEqual(found, [1.0])

    def test_all_words(self):
        for kind in self.KINDS:
            self.assertEqual(self.of_states(kind, self.text), [1.0])

    def test_dropped_words_and_attention(self):
        for hidden, found in ((self.whole, [1.0]), (None, [])):
            rows = self.attend(self.embed(self.dropped()), hidden)
            self.assertEqual(self.of(self.learn(rows, self.text)), found)

    @property
    def whole(self):
        return torch.ones(STEPS + 1, STEPS + 1).triu(1) > 0

    def test_targets_ahead(self):
        for kind in self.KINDS:
            layer = kind(WIDTH, WIDTH, batch_first=True)
            states = layer(self.embed(self.dropped()[:, :-1]))[0]
            self.assertEqual(self.of(self.learn(states, self.text[:, 1:])), [])

    def test_both_directions(self):
        for kind in self.KINDS:
            found = self.of_states(kind, self.dropped(), bidirectional=True)
            self.assertEqual(found, [])

    def test_an_autoencoder(self):
        last = lambda states: states[:, -1:].expand(-1, STEPS + 1, -1)
        mean = lambda states: states.mean(1, keepdim=True).expand(-1, STEPS + 1, -1)
        for kind in self.KINDS:
            for read in (last, mean):
                self.assertEqual(self.of_states(kind, self.dropped(), read), [])
                self.assertEqual(self.of_states(kind, self.text, read), [])

    def test_a_decoder_that_begins_with_a_state(self):
        for kind in self.KINDS:
            read = nn.Linear(WIDTH, WIDTH)(self.embed(self.text).mean(1))[None]
            state = (read, torch.zeros_like(read)) if kind is nn.LSTM else read
            found = self.of_states(kind, self.dropped(), state=state)
            self.assertEqual(found, [])

    def test_words_that_others_replace(self):
        """Mistakes of writing, which are mended."""
        others = torch.randint(1, WORDS, self.text.shape)
        for kind in self.KINDS:
            found = self.of_states(kind, self.dropped(0.3, by=others))
            self.assertEqual(found, [])

    def test_only_dropped_words_as_targets(self):
        given = self.dropped()
        targets = self.text.masked_fill(given == self.text, -100)
        for kind in self.KINDS:
            states = kind(WIDTH, WIDTH, batch_first=True)(self.embed(given))[0]
            self.assertEqual(self.of(self.learn(states, targets)), [])

    def test_most_words_dropped(self):
        for kind in self.KINDS:
            self.assertEqual(self.of_states(kind, self.dropped(0.7)), [])

    def test_steps_that_are_shifted_or_mixed(self):
        shift = lambda x: torch.cat((x[:, :1] * 0, x[:, :-1]), 1)
        mix = lambda x: nn.Linear(STEPS + 1, STEPS + 1)(x.mT).mT
        wide = lambda x: nn.Linear(WIDTH * (STEPS + 1), WIDTH * (STEPS + 1))(
            x.flatten(1)
        ).view(x.shape)
        for kind in self.KINDS:
            for read in (shift, mix, wide):
                self.assertEqual(self.of_states(kind, self.text, read), [])

    def test_texts_that_are_read_backwards(self):
        flip = lambda x: x.flip(1)
        for kind in self.KINDS:
            self.assertEqual(self.of_states(kind, self.text, flip), [])


class ShiftsTwice(Tokens):
    NAME = "loss.shifts_twice"

    def learn_ahead(self, shift):
        self.backward(
            self.learn(self.embed(self.text)[:, :-shift], self.text[:, shift:])
        )
        return said(self.NAME)

    def test_heads_that_go_backward_by_themselves(self):
        found = [self.learn_ahead(shift) for shift in (1, 2)][-1]
        self.assertEqual(set(found), {0.0})

    def test_nothing_but_the_token_after_next(self):
        self.assertEqual(set(self.learn_ahead(2)), {1.0})


class MaskOfOnes(Tokens):
    NAME = "loss.mask_of_ones"

    def of_mask(self, mask):
        x = self.embed(self.text[:, :-1])[:, None]
        return self.of(F.scaled_dot_product_attention(x, x, x, attn_mask=mask).sum())

    def test_a_bonus_for_neighbours(self):
        bonds = (torch.rand(STEPS, STEPS) < 0.3).float().triu(1)
        for bonus in (bonds + bonds.t(), bonds, (bonds + bonds.t()).fill_diagonal_(1)):
            self.assertEqual(self.of_mask(bonus), [0.0])

    def test_masks(self):
        causal = torch.ones(STEPS, STEPS).tril()
        real = torch.ones(STEPS).index_fill(0, torch.arange(6, STEPS), 0)
        for mask in (
            1 - causal,
            real.expand(STEPS, -1),
            1 - real.expand(STEPS, -1),
            real[:, None] * real,
            causal * real.flip(0),
        ):
            self.assertEqual(self.of_mask(mask.contiguous()), [1.0])


class SamplesAsSteps(GraphCase):
    NAME = "loss.samples_as_steps"

    def states(self):
        return nn.GRU(3, 5)(torch.randn(STEPS, 4, 3))[0]

    def test_labels_of_steps_for_all_sequences_together(self):
        returns = torch.randn(STEPS)
        for total in (
            lambda x: nn.Linear(5, 1)(x).squeeze(2).sum(1),
            lambda x: nn.Linear(5, 1)(x).squeeze(2).mean(1),
        ):
            self.assertEqual(self.of(F.mse_loss(total(self.states()), returns)), [])

    def test_samples_of_a_batch(self):
        for pool in (
            lambda x: x[:, -1],
            lambda x: x[torch.arange(STEPS), torch.randint(4, (STEPS,))],
        ):
            scores = nn.Linear(5, 3)(pool(self.states()))
            loss = F.cross_entropy(scores, torch.arange(STEPS) % 3)
            self.assertEqual(self.of(loss), [1.0])

    def test_means_over_the_steps_of_a_batch(self):
        real = torch.rand(STEPS, 4, 1).round()
        for pool in (
            lambda x: x.mean(1),
            lambda x: (x * real).sum(1) / real.sum(1).clamp(min=1),
        ):
            self.setUp()
            for (labels,) in DataLoader(TensorDataset(torch.arange(STEPS) % 3), STEPS):
                scores = nn.Linear(5, 3)(pool(self.states()))
                self.backward(F.cross_entropy(scores, labels))
            self.assertEqual(said(self.NAME), [1.0])


class MixesRows(GraphCase):
    NAME = "loss.mixes_rows"

    def of_view(self, sizes, view, layer=lambda x: x):
        x = nn.Linear(3, 5)(torch.randn(*sizes, 3))
        return self.of(layer(x.reshape(view)).square().mean())

    def test_windows_of_a_sequence(self):
        self.assertEqual(self.of_view((32, 8), (8, 32, 5)), [])
        self.assertEqual(self.of_view((8, 32), (32, 8, 5)), [])
        layer = nn.GRU(5, 4, batch_first=True)
        self.assertNotIn(1.0, self.of_view((32, 8), (8, 32, 5), lambda x: layer(x)[0]))

    def test_neighbours_side_by_side(self):
        self.assertEqual(self.of_view((2, 12), (12, 10)), [])  # frames
        self.assertEqual(self.of_view((32, 8), (8, 20 * 8)), [])  # bags

    def test_one_step_at_a_time(self):
        """[samples, 1, size], which a layer that has the batch first turns round."""
        for kind in (nn.GRU, nn.LSTM, nn.RNN):
            layer, state, states = kind(5, 4, batch_first=True), None, []
            x = nn.Linear(3, 5)(torch.randn(16, 6, 3))
            for one in x.unbind(1):
                last = states[-1] if states else torch.zeros(16, 1, 4)
                given = torch.cat((one[:, None, :1], last), -1)
                out, state = layer(given, state)
                states.append(out)
            loss = torch.cat(states, 1).square().mean()
            self.assertNotIn(1.0, self.of(loss))

    def test_one_sequence_of_a_batch(self):
        """[1, steps, size]: a batch of one."""
        for kind in (nn.GRU, nn.LSTM, nn.RNN):
            x = torch.cat((torch.randn(1, 6, 2), torch.randn(1, 6, 3)), -1)
            x = nn.Linear(5, 5)(x)
            out = kind(5, 4, batch_first=True)(torch.cat((x, x), 1))[0]
            self.assertNotIn(1.0, self.of(out.square().mean()))

    def test_a_view_that_a_recurrence_reads_by_steps(self):
        for kind in (nn.GRU, nn.LSTM):
            layer = kind(5, 4)
            found = self.of_view((8, 32), (32, 8, 5), lambda x: layer(x)[0])
            self.assertIn(1.0, found)


class SeesTargetsOnADevice(SeesTargets):
    ON_DEVICE = True


class RepeatsInputInStepsOnADevice(RepeatsInputInSteps):
    ON_DEVICE = True


class RepeatsInputOnADevice(RepeatsInput):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
