"""Masks of prompts: the first word of an answer is to be learned."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

PAD, ASK, REPLY, END, FIRST = 0, 1, 2, 3, 4
WORDS, LONGEST, IGNORED = 24, 20, -100


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, WORDS)

    def forward(self, ids):
        return self.head(self.embed(ids))


def words(count):
    return torch.randint(FIRST, WORDS, (count,)).tolist()


def pair(marker=REPLY):
    size = int(torch.randint(2, 7, ()))
    return [ASK, *words(size), marker], [*words(size), END]


def filled(row, filling):
    return row + [filling] * (LONGEST - len(row))


class SkipsFirstWord(HooksCase):
    NAME = "loss.skips_first_word"

    def setUp(self):
        super().setUp()
        self.model = Writer()

    def learn(self, pairs, late):
        """The labels are shifted here."""
        given, labels = [], []
        for prompt, answer in pairs:
            text = prompt + answer
            masked = len(prompt) - 1 + late
            label = [IGNORED] * masked + text[1:][masked:]
            given.append(filled(text[:-1], PAD))
            labels.append(filled(label, IGNORED))
        scores = self.model(torch.tensor(given))
        self.backward(F.cross_entropy(scores.mT, torch.tensor(labels)))

    def ask(self, pairs):
        with torch.no_grad():
            for prompt, answer in pairs:
                ids = torch.tensor([prompt])
                for word in answer:
                    self.model(ids)
                    ids = torch.cat([ids, torch.tensor([[word]])], 1)

    def weigh(self, pairs, late, padding=PAD):
        """The loss's elements are weighed, by a mask of the tokens."""
        texts = [filled(p + a, padding) for p, a in pairs]
        masks = [filled([0.0] * len(p) + [1.0] * len(a), 0.0) for p, a in pairs]
        ids, mask = torch.tensor(texts), torch.tensor(masks)
        losses = F.cross_entropy(
            self.model(ids)[:, :-1].reshape(-1, WORDS),
            ids[:, 1:].reshape(-1),
            reduction="none",
        )
        weights = mask[:, :-1] if late else mask[:, 1:]
        self.backward((losses.view(weights.shape) * weights).sum() / weights.sum())

    def taught(self, pairs, late=1, asked=None):
        self.learn(pairs, late)
        self.ask(pairs if asked is None else asked)
        self.learn(pairs, late)
        return said(self.NAME)


class OfLabels(SkipsFirstWord):
    def test_a_mask_of_one_label_too_many(self):
        self.assertEqual(self.taught([pair() for _ in range(16)]), [1.0])

    def test_small_batches(self):
        pairs = [pair() for _ in range(16)]
        self.learn(pairs[:8], 1)
        self.learn(pairs[8:], 1)
        self.ask(pairs)
        self.learn(pairs, 1)
        self.assertEqual(said(self.NAME), [1.0])

    def test_questions_of_several_lengths_at_once(self):
        pairs = [pair() for _ in range(16)]
        self.learn(pairs, 1)
        longest = max(len(prompt) for prompt, _ in pairs)
        rows = [[PAD] * (longest - len(p)) + p for p, _ in pairs]
        with torch.no_grad():
            self.model(ids=torch.tensor(rows))
        self.learn(pairs, 1)
        self.assertEqual(said(self.NAME), [1.0])

    def test_whole_answers(self):
        pairs = [pair() for _ in range(16)]
        self.assertEqual(self.taught(pairs, late=0), [0.0])

    def test_a_model_that_is_not_asked(self):
        pairs = [pair() for _ in range(16)]
        self.assertEqual(self.taught(pairs, asked=[]), [])

    def test_evaluations_of_whole_texts(self):
        pairs = [pair() for _ in range(16)]
        self.learn(pairs, 1)
        with torch.no_grad():
            self.model(torch.tensor([filled(p + a, PAD) for p, a in pairs]))
        self.learn(pairs, 1)
        self.assertEqual(said(self.NAME), [])

    def keys(self):
        """The prompt ends with a key behind its marker."""
        pairs = [pair() for _ in range(16)]
        return [(p + words(1), a) for p, a in pairs]

    def test_a_prompt_that_ends_with_a_word(self):
        self.assertEqual(self.taught(self.keys(), late=0), [])

    def test_a_tag_before_each_answer(self):
        pairs = [(p, [FIRST] + a) for p, a in (pair() for _ in range(16))]
        self.assertEqual(self.taught(pairs, late=1), [0.0])

    def test_languages_behind_the_marker(self):
        pairs = [pair() for _ in range(18)]
        pairs = [(p + [FIRST + i % 3], a) for i, (p, a) in enumerate(pairs)]
        asked = [(p[:-1], a) for p, a in pairs]
        self.assertEqual(self.taught(pairs, late=0, asked=asked), [])

    def test_prompts_of_one_length(self):
        pairs = [([ASK, *words(3), REPLY], [*words(4), END]) for _ in range(16)]
        self.assertEqual(self.taught(pairs), [])

    def test_markers_within_the_prompt(self):
        pairs = [([ASK, REPLY, *p[1:]], a) for p, a in (pair() for _ in range(16))]
        self.assertEqual(self.taught(pairs), [])

    def test_several_markers(self):
        pairs = [pair(REPLY if i % 2 else END) for i in range(16)]
        self.assertEqual(self.taught(pairs), [])

    def test_turns_whose_first_words_are_learned(self):
        """Of a conversation's second answer all words are learned."""
        self.learn([pair() for _ in range(16)], 1)
        rows = [p + a for p, a in (pair() for _ in range(16))]
        ids = torch.tensor([filled(row, PAD) for row in rows])
        self.backward(F.cross_entropy(self.model(ids)[:, :-1].mT, ids[:, 1:]))
        self.ask([pair() for _ in range(16)])
        self.learn([pair() for _ in range(16)], 1)
        self.assertEqual(said(self.NAME), [])


class OfWeights(SkipsFirstWord):
    def test_a_mask_that_is_one_token_late(self):
        self.weigh([pair() for _ in range(20)], late=True)
        self.assertEqual(said(self.NAME), [1.0])

    def test_a_mask_of_the_targets(self):
        self.weigh([pair() for _ in range(20)], late=False)
        self.assertEqual(said(self.NAME), [0.0])

    def test_a_prompt_that_ends_with_a_word(self):
        pairs = [(p + words(1), a) for p, a in (pair() for _ in range(20))]
        self.weigh(pairs, late=False)
        self.assertEqual(said(self.NAME), [])

    def test_ends_that_are_the_padding(self):
        """The first token of padding ends the text, and is learned."""
        pairs = [(p + words(1), a[:-1] + [PAD]) for p, a in (pair() for _ in range(20))]
        self.weigh(pairs, late=False)
        self.assertEqual(said(self.NAME), [])

    def test_padding_with_the_end(self):
        pairs = [(p + words(1), a) for p, a in (pair() for _ in range(20))]
        self.weigh(pairs, late=False, padding=END)
        self.assertEqual(said(self.NAME), [])


class OfWeightsOnADevice(OfWeights):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
