"""What recurrences make of the padding behind texts, as graphs of losses show it."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said
from _traincheck import attention

WORDS, SAMPLES, STEPS, WIDTH, PAD = 11, 6, 9, 8, 0
RECURRENCES = (nn.GRU, nn.LSTM, nn.RNN)


class PaddedCase(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS))
        self.lengths = torch.tensor([STEPS, 4, 6, STEPS, 3, 7])
        for row, length in zip(self.text, self.lengths):
            row[length:] = PAD


class PaddedStates(PaddedCase):
    def setUp(self):
        super().setUp()
        self.head = nn.Linear(WIDTH, 2)

    def classify(self, read, padding=PAD, **options):
        """What backwards said, of each kind of recurrence."""
        embed = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        found = []
        for kind in RECURRENCES:
            HooksCase.setUp(self)  # only the first backwards are looked at
            layer = kind(WIDTH, WIDTH, batch_first=True, **options)
            state = read(layer, embed(self.text))[..., :WIDTH]
            labels = torch.randint(2, (len(state),))
            self.backward(F.cross_entropy(self.head(state), labels))
            found += said("loss.reads_padded_state")
        return found

    def last_state(self, layer, x):
        state = layer(x)[1]
        return (state[0] if isinstance(state, tuple) else state)[-1]

    def test_the_state_behind_the_padding(self):
        for read in (self.last_state, lambda layer, x: layer(x)[0][:, -1]):
            self.assertEqual(self.classify(read), [1.0] * 3)
            self.assertEqual(self.classify(read, num_layers=2), [1.0] * 3)
            self.assertEqual(self.classify(read, bidirectional=True), [1.0] * 3)
            self.assertEqual(self.classify(read, padding=None), [1.0] * 3)

    def test_steps_first(self):
        embed = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        layer = nn.LSTM(WIDTH, WIDTH)
        state = layer(embed(self.text.t()))[0][-1, :, :]
        self.backward(F.cross_entropy(self.head(state), torch.randint(2, (SAMPLES,))))
        self.assertEqual(said("loss.reads_padded_state"), [1.0])

    def test_packed(self):
        def pack(x):
            return pack_padded_sequence(x, self.lengths, True, enforce_sorted=False)

        def outputs(layer, x):
            whole = pad_packed_sequence(layer(pack(x))[0], batch_first=True)[0]
            return whole[torch.arange(SAMPLES), self.lengths - 1]

        packed = lambda layer, x: self.last_state(layer, pack(x))
        self.assertEqual(self.classify(packed), [0.0] * 3)
        self.assertEqual(self.classify(outputs), [0.0] * 3)

    def test_other_states(self):
        real = (self.text != PAD)[..., None]
        rows = torch.arange(SAMPLES)
        for read in (
            lambda layer, x: layer(x)[0][rows, self.lengths - 1],
            lambda layer, x: (layer(x)[0] * real).sum(1) / real.sum(1),
            lambda layer, x: layer(x)[0].amax(1),
            lambda layer, x: layer(x)[0].flatten(0, 1),
        ):
            self.assertEqual(self.classify(read), [])

    def by_cell(self, use):
        """use: makes a loss of the states of a loop over the tokens."""
        embed, cell = nn.Embedding(WORDS, WIDTH, padding_idx=PAD), nn.GRUCell(
            WIDTH, WIDTH
        )
        state, states = torch.zeros(SAMPLES, WIDTH), []
        for x in embed(self.text).transpose(0, 1):
            state = cell(x, state)
            states.append(state)
        HooksCase.setUp(self)
        self.backward(use(states))
        return said("loss.reads_padded_state")

    def test_a_loop_over_the_tokens(self):
        labels = torch.randint(2, (SAMPLES,))
        last = lambda states: F.cross_entropy(self.head(states[-1]), labels)
        self.assertEqual(self.by_cell(last), [1.0])
        tags = (self.text > 4).long()

        def joined(states):
            scores = torch.cat([self.head(one)[:, None] for one in states], 1)
            return F.cross_entropy(scores.flatten(0, 1), tags.flatten())

        def apart(states):
            return sum(
                F.cross_entropy(self.head(one), tags[:, i])
                for i, one in enumerate(states)
            )

        for each in (joined, apart):
            self.assertEqual(self.by_cell(each), [], each)

    def test_padding_before_the_texts(self):
        self.text = self.text.flip(1)
        self.assertEqual(self.classify(self.last_state), [])

    def test_no_padding(self):
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS))
        self.assertEqual(self.classify(self.last_state), [])
        self.assertEqual(self.classify(self.last_state, padding=None), [])


class StepByStep(PaddedCase):
    """A recurrent layer that is called for each token of the texts."""

    def of_layer(self, layer, x, carries=True, text=None, steps=range(STEPS)):
        embed, head = nn.Embedding(WORDS, WIDTH, padding_idx=PAD), nn.Linear(WIDTH, 2)
        state, states = None, []
        words = embed(self.text if text is None else text)
        for i in steps:
            out, state = layer(x(words, i), state if carries else None)
            states.append(out)
        HooksCase.setUp(self)
        scores = head(torch.cat(states, 1)).flatten(0, 1)
        self.backward(F.cross_entropy(scores, torch.randint(2, (len(scores),))))
        return said("loss.samples_as_steps")

    def test_texts_that_are_taken_for_steps(self):
        one = lambda words, i: words[:, i : i + 1]
        for kind in RECURRENCES:
            self.assertEqual(self.of_layer(kind(WIDTH, WIDTH), one), [1.0], kind)

    def test_the_batch_first(self):
        one = lambda words, i: words[:, i : i + 1]
        for kind in RECURRENCES:
            layer = kind(WIDTH, WIDTH, batch_first=True)
            self.assertNotIn(1.0, self.of_layer(layer, one))

    def test_steps_first(self):
        one = lambda words, i: words[:, i][None]
        for kind in RECURRENCES:
            self.assertNotIn(1.0, self.of_layer(kind(WIDTH, WIDTH), one))

    def test_words_of_one_text(self):
        """Each row is a word, and a loop over its letters is no sequence of them."""
        one = lambda words, i: words[:, i : i + 1]
        for kind in RECURRENCES:
            layer = kind(WIDTH, WIDTH)
            self.assertNotIn(1.0, self.of_layer(layer, one, carries=False))
            mean = lambda words, i: words.mean(1, keepdim=True)
            self.assertNotIn(1.0, self.of_layer(layer, mean, steps=range(2)))

    def test_parts_of_one_sequence(self):
        """Nothing tells that the rows are texts of their own."""
        one = lambda words, i: words[:, i : i + 1]
        text = torch.randint(1, WORDS, (SAMPLES, STEPS))
        for kind in RECURRENCES:
            layer = kind(WIDTH, WIDTH)
            self.assertNotIn(1.0, self.of_layer(layer, one, text=text))


class Attention(PaddedCase):
    NAME = "loss.attends_to_padding"

    def of(self, attend, padding=PAD, name=None):
        embed = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        HooksCase.setUp(self)  # only the first backwards are looked at
        self.backward(attend(embed(self.text)).square().mean())
        return said(name or self.NAME)

    def by_layer(self, x, dropout=0.1, **masks):
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout, batch_first=True)
        return layer(x, **masks)

    def by_hand(self, x, mask=None):
        scores = x @ x.transpose(1, 2)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None], -1e9)
        return scores.softmax(-1) @ x

    def test_no_mask(self):
        for dropout in (0.0, 0.1):
            attend = lambda x: self.by_layer(x, dropout)
            self.assertEqual(self.of(attend), [1.0])
            self.assertEqual(self.of(attend, padding=None), [1.0])
        self.assertEqual(self.of(self.by_hand), [1.0])

    def test_a_mask_of_the_padding(self):
        hidden = self.text == PAD
        for dropout in (0.0, 0.1):
            attend = lambda x: self.by_layer(x, dropout, src_key_padding_mask=hidden)
            self.assertEqual(self.of(attend), [0.0])
        self.assertEqual(self.of(lambda x: self.by_hand(x, hidden)), [0.0])

    def test_tokens_that_see_what_is_before_them(self):
        mask = nn.Transformer.generate_square_subsequent_mask(STEPS)
        attend = lambda x: self.by_layer(x, src_mask=mask)
        self.assertEqual(self.of(attend), [0.0])
        fused = lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)
        self.assertEqual(self.of(fused), [0.0])

    def test_a_mask_of_another_width(self):
        """A fused kernel may have filled it up."""
        embed = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        x = embed(self.text)[:, None]
        mask = torch.zeros(SAMPLES, 1, STEPS, STEPS)
        mixed = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        one = attention.find(mixed.grad_fn)
        one._scores = lambda: torch.zeros(1, 1, STEPS, STEPS + 7)
        self.assertIsNone(one.sees_padding(self.text != PAD))

    def test_no_padding(self):
        self.text = torch.randint(1, WORDS, (SAMPLES, STEPS))
        self.assertEqual(self.of(self.by_layer), [])

    def learns(self, targets, ignored=-100):
        head = nn.Linear(WIDTH, WORDS)

        def attend(x):
            scores = head(x)[:, : targets.shape[1]].flatten(0, 1)
            return F.cross_entropy(scores, targets.flatten(), ignore_index=ignored)

        return self.of(attend, padding=None, name="loss.learns_padding")

    def test_padding_that_nobody_names_is_learned(self):
        following = self.text[:, 1:]
        self.assertEqual(self.learns(following), [1.0])
        self.assertEqual(self.learns(following, ignored=PAD), [0.0])
        masked = following.masked_fill(self.text[:, :-1] == PAD, -100)
        self.assertEqual(self.learns(masked), [])  # the end of a text is a target

    def test_a_padding_idx_that_is_a_token(self):
        name = "loss.padding_idx_is_a_token"
        self.text[:, 1] = 5
        self.assertEqual(self.of(self.by_hand, padding=5, name=name), [1.0])
        self.assertEqual(self.of(self.by_hand, padding=PAD, name=name), [0.0])
        self.assertEqual(self.of(self.by_hand, padding=None, name=name), [])
        # Padding before the texts, which end in one token.
        self.text = torch.randint(2, WORDS, (SAMPLES, STEPS))
        for row, length in zip(self.text, self.lengths):
            row[: STEPS - length] = PAD
            row[-1] = 1
        self.assertEqual(self.of(self.by_hand, padding=PAD, name=name), [])


class Positions(HooksCase):
    NAME = "loss.positions_of_samples"

    def of(self, over, batch_first=True, size=SAMPLES):
        torch.manual_seed(0)
        HooksCase.setUp(self)
        words, places = nn.Embedding(WORDS, WIDTH), nn.Embedding(16, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=batch_first)
        text = torch.randint(1, WORDS, (size, STEPS))
        text = text if batch_first else text.t()
        counted = torch.arange(text.shape[over])
        counted = counted[:, None] if over == 0 else counted
        self.backward(layer(words(text) + places(counted)).square().mean())
        return said(self.NAME)

    def test_positions_over_the_samples(self):
        self.assertEqual(self.of(over=0), [1.0])
        self.assertEqual(self.of(over=1, batch_first=False), [1.0])

    def test_batches_as_wide_as_they_are_high(self):
        for over, wrong in ((0, 1.0), (1, 0.0)):
            HooksCase.setUp(self)
            words, places = nn.Embedding(WORDS, WIDTH), nn.Embedding(16, WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
            text = torch.randint(1, WORDS, (8, 9))
            counted = torch.arange(8)[:, None] if over == 0 else torch.arange(8)
            mask = nn.Transformer.generate_square_subsequent_mask(8)
            read = layer(words(text[:, :-1]) + places(counted), src_mask=mask)
            scores = nn.Linear(WIDTH, WORDS)(read)
            self.backward(F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten()))
            self.assertEqual(said(self.NAME), [wrong])
        self.assertEqual(self.of(over=0, size=STEPS), [])

    def test_short_integers(self):
        words, places = nn.Embedding(WORDS, WIDTH), nn.Embedding(16, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        text = torch.randint(1, WORDS, (SAMPLES, STEPS)).int()
        counted = torch.arange(SAMPLES).int()[:, None]
        self.backward(layer(words(text) + places(counted)).square().mean())
        self.assertEqual(said(self.NAME), [1.0])

    def test_positions_over_the_steps(self):
        self.assertEqual(self.of(over=1), [0.0])
        self.assertEqual(self.of(over=0, batch_first=False), [0.0])


class OverBatch(HooksCase):
    NAME = "loss.weighs_over_samples"

    def of(self, over, size=STEPS):
        torch.manual_seed(0)
        HooksCase.setUp(self)
        net, head = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 2)
        x = torch.randn(SAMPLES, size, WIDTH)
        weights = net(x).softmax(over)
        labels = torch.randint(2, (SAMPLES,))
        self.backward(F.cross_entropy(head((weights * x).sum(1)), labels))
        return said(self.NAME)

    def test_attention_over_the_samples(self):
        self.assertEqual(self.of(0), [1.0])

    def test_attention_over_the_steps(self):
        self.assertEqual(self.of(1), [0.0])

    def test_what_cannot_be_told(self):
        self.assertEqual(self.of(0, size=SAMPLES), [])

    def of_steps_first(self, over, size=STEPS):
        """The batch is the second dimension, and the sum runs over the first."""
        HooksCase.setUp(self)
        net, head = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 2)
        states = nn.Linear(WIDTH, WIDTH)(torch.randn(size, SAMPLES, WIDTH))
        weights = net(states).squeeze(-1).softmax(over)
        pooled = (weights.unsqueeze(-1) * states).sum(0)
        labels = torch.randint(2, (SAMPLES,))
        self.backward(F.cross_entropy(head(pooled), labels))
        return said(self.NAME)

    def test_steps_first(self):
        self.assertEqual(self.of_steps_first(1), [1.0])
        self.assertEqual(self.of_steps_first(0), [0.0])
        self.assertEqual(self.of_steps_first(1, size=SAMPLES), [])

    def test_groups_that_share_samples_out(self):
        """A sum over places of their shares among groups, as many as samples."""
        net, head = nn.Linear(WIDTH, SAMPLES), nn.Linear(WIDTH, 2)
        places = nn.Linear(WIDTH, WIDTH)(torch.randn(STEPS, WIDTH))
        shares = net(places).softmax(1)
        groups = (shares.unsqueeze(-1) * places.unsqueeze(1)).sum(0)
        labels = torch.randint(2, (2 * SAMPLES,))
        self.backward(F.cross_entropy(head(groups).repeat(2, 1), labels))
        self.assertEqual(said(self.NAME), [])


class PooledPadding(PaddedCase):
    def pooled(self, kind, pool):
        words = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)(self.text)
        layer = kind(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        HooksCase.setUp(self)  # only the first backwards are looked at
        self.backward(pool(layer(words)[0], words).square().mean())
        return said("loss.pools_padding")

    def test_behind_a_recurrence(self):
        real = (self.text != PAD)[..., None].float()
        for kind in RECURRENCES:
            found = self.pooled(kind, lambda x, _: x.mean(1))
            self.assertEqual(found, [1.0])
            found = self.pooled(kind, lambda x, _: (x * real).sum(1) / real.sum(1))
            self.assertEqual(found, [0.0])

    def test_vectors_of_words_beside_it(self):
        """They are zeros where there is no word: the scale alone changes."""
        for kind in RECURRENCES:
            found = self.pooled(kind, lambda x, words: x[:, 0].mean() + words.mean(1))
            self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
