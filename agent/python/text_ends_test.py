"""Ends of texts that are never targets, and right programs that come close to it."""

import pathlib
import sys
import unittest

import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

PAD, END = 0, 1


def texts(lengths, end=END):
    """One row each: tokens, and the end of the text."""
    return [[2 + i % 5 for i in range(length - 1)] + [end] for length in lengths]


def padded(rows, padding, width=None):
    width = width or max(map(len, rows))
    ids = torch.full((len(rows), width), padding)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return ids, mask


def read(batches):
    for _ in DataLoader(batches, batch_size=None):
        pass
    return said("loader.ends_masked")


class EndsMasked(HooksCase):
    LENGTHS = [[3, 5, 4, 6, 5, 2], [4, 5, 4, 4, 5, 2], [7, 3, 4, 6, 5, 2]] * 2

    def batches(self, padding, masked, end=END, with_mask=True, width=None):
        for lengths in self.LENGTHS:
            ids, mask = padded(texts(lengths, end), padding, width)
            labels = ids.masked_fill(masked(ids, mask), -100)
            batch = {"input_ids": ids, "labels": labels}
            yield batch | ({"attention_mask": mask} if with_mask else {})

    def test_the_end_is_the_padding(self):
        masked = lambda ids, mask: ids == END
        self.assertEqual(read([*self.batches(END, masked)]), [1.0] * 6)

    def test_the_end_is_a_target(self):
        masked = lambda ids, mask: mask == 0
        self.assertEqual(read([*self.batches(END, masked)]), [0.0] * 6)

    def test_a_padding_of_its_own(self):
        masked = lambda ids, mask: ids == PAD
        self.assertEqual(read([*self.batches(PAD, masked)]), [])
        self.assertEqual(read([*self.batches(PAD, masked, with_mask=False)]), [])

    def test_without_a_mask(self):
        masked = lambda ids, mask: ids == END
        found = read([*self.batches(END, masked, with_mask=False)])
        self.assertEqual(found, [1.0] * 5)

    def test_a_mask_that_was_made_of_the_tokens(self):
        lengths = [[3, 5, 4, 6], [4, 5, 4, 4], [7, 3, 4, 6], [2, 3, 2, 8], [9, 2, 3, 4]]
        for padding, wrong in ((END, [1.0] * 2), (PAD, [])):
            self.setUp()
            batches = []
            for each in lengths:
                ids, _ = padded(texts(each), padding)
                labels = ids.masked_fill(ids == padding, -100)
                mask = ids != padding
                batches.append({"x": ids, "attention_mask": mask, "labels": labels})
            self.assertEqual(read(batches), wrong)

    def test_batches_that_are_tuples(self):
        for padding, masks, wrong in (
            (END, lambda ids, mask: ids == END, [1.0] * 6),
            (END, lambda ids, mask: mask == 0, [0.0] * 6),
            (PAD, lambda ids, mask: mask == 0, []),
        ):
            self.setUp()
            found = read([tuple(b.values()) for b in self.batches(padding, masks)])
            self.assertEqual(found, wrong)

    def test_texts_that_were_cut_have_no_end(self):
        masked = lambda ids, mask: ids == PAD
        # The longest row ends in a token, which is not that of the others.
        cut = [*self.batches(PAD, masked, end=4, with_mask=False)]
        self.assertEqual(read(cut), [])

    def test_one_width_says_nothing(self):
        masked = lambda ids, mask: ids == PAD
        self.assertEqual(
            read([*self.batches(PAD, masked, with_mask=False, width=8)]), []
        )

    def test_labels_that_are_shifted(self):
        def batches():
            for lengths in self.LENGTHS:
                ids, mask = padded(texts(lengths), END)
                following = torch.cat([ids[:, 1:], ids[:, -1:]], 1)
                ignored = torch.cat([mask[:, 1:], mask[:, :1] * 0], 1) == 0
                labels = following.masked_fill(ignored, -100)
                yield {"input_ids": ids, "attention_mask": mask, "labels": labels}

        self.assertEqual(read([*batches()]), [])


class EndsOfTurns(HooksCase):
    """Conversations whose answers have a weight in the loss."""

    PROMPT = [5, 6]

    def row(self, answers, supervises_end):
        tokens, weights = [], []
        for length in answers:
            answer = [7] * length + [END]
            tokens += self.PROMPT + answer
            weights += [0.0, 0.0] + [1.0] * length + [float(supervises_end)]
        padding = 24 - len(tokens)
        return tokens + [END] * padding, weights + [0.0] * padding

    def read(self, supervises_end, count=4, **more):
        rows = [self.row((2, 3 + i), supervises_end) for i in range(count)]
        tokens, weights = (torch.tensor(column) for column in zip(*rows))
        batch = {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}
        return read([batch | {"loss_mask": weights[:, 1:]} | more])

    def test_ends_without_a_weight(self):
        self.assertEqual(self.read(False), [1.0])

    def test_ends_with_a_weight(self):
        self.assertEqual(self.read(True), [0.0])

    def test_what_is_no_mask_of_the_tokens(self):
        self.assertEqual(self.read(False, count=3), [])  # too few ends
        self.assertEqual(self.read(False, loss_mask=torch.zeros(4, 3)), [])

    def test_ignored_labels_are_no_end(self):
        tokens = torch.tensor([[7, 7, -100, 7, 7, -100, -100]] * 4)
        batch = {"input_ids": tokens.abs(), "labels": tokens}
        self.assertEqual(read([batch | {"loss_mask": (tokens > 0).float()}]), [])

    def test_single_turns_may_have_no_end(self):
        tokens = torch.tensor([[5, 6, 7, 7, END, END]] * 4)
        weights = torch.tensor([[0.0, 1, 1, 0, 0]] * 4)
        batch = {"input_ids": tokens[:, :-1], "labels": tokens[:, 1:]}
        self.assertEqual(read([batch | {"loss_mask": weights}]), [])


if __name__ == "__main__":
    unittest.main()
