"""Data sets that change what they hold, and others that come close to it."""

import pathlib
import sys
import unittest

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase


def last(name):
    """The value that was written last."""
    said = [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]
    return (said or [None])[-1]


class Rows(Dataset):
    """Hands out the rows of what it holds."""

    def __init__(self, values, handed_out):
        self.values = values
        self.handed_out = handed_out

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.handed_out(self.values, index)


class WrittenData(HooksCase):
    def epochs(self, data, count=2):
        for _ in range(count):
            for batch in DataLoader(data, batch_size=2, shuffle=True):
                pass
        return last("loader.writes_data")

    def test_a_transform_that_works_in_place(self):
        for values in (torch.rand(8, 3), np.random.rand(8, 3)):
            self.assertEqual(self.epochs(Rows(values, self.halved)), 1.0)

    def test_samples_in_a_list(self):
        def halved(samples, index):
            x = samples[index]["x"]
            x /= 2
            return x

        for make in (lambda: torch.rand(3) + 1, lambda: np.random.rand(3) + 1):
            self.assertEqual(
                self.epochs(Rows([{"x": make(), "y": 1} for _ in range(8)], halved)),
                1.0,
            )
            self.assertEqual(
                self.epochs(Rows([make() for _ in range(8)], self.halved)), 1.0
            )

    @staticmethod
    def masked(samples, index):
        tokens = samples[index]
        for place in range(0, 8, 3):
            tokens[place] = (tokens[place] + 1) % 50
        return torch.as_tensor(tokens)

    def test_tokens_that_are_masked(self):
        tokens = torch.randint(2, 50, (8, 8))
        for values in (
            list(tokens.clone()),
            tokens.tolist(),
            tokens.clone(),
            tokens.numpy(),
        ):
            data = Rows(values, self.masked)
            self.assertEqual(self.epochs(data), 1.0)
            data = Rows(values, lambda v, i: torch.tensor(list(v[i])) + 1)
            self.assertEqual(self.epochs(data), 0.0)

    def test_a_picture_a_part_of_which_is_cut_out(self):
        def cut(values, index):
            values[index][4:20, 8:28] += 3
            return torch.from_numpy(values[index] / 255.0)

        for of in (list, np.asarray):
            pictures = of(np.random.randint(1, 99, (8, 32, 32), dtype=np.uint8))
            self.assertEqual(self.epochs(Rows(pictures, cut)), 1.0)

    def test_numbers_that_are_drawn_anew(self):
        def drawn(values, index):
            values[index][:] = torch.randint(1, 1000, (8,))
            return values[index].clone()

        self.assertEqual(self.epochs(Rows(torch.ones(8, 8).long(), drawn)), 0.0)

    def test_counts_of_each_sample(self):
        data = Rows(torch.rand(8, 3), lambda values, index: values[index])

        def counted(values, index):
            data.counts[index][index % 4] += 1
            return values[index].clone()

        data.counts, data.handed_out = torch.ones(8, 4).long(), counted
        self.assertEqual(self.epochs(data), 0.0)

    def test_samples_that_are_prepared_once(self):
        def prepared(samples, index):
            sample = samples[index]
            if "done" not in sample:
                sample["x"] -= 1
                sample["done"] = True
            return sample["x"]

        samples = [{"x": torch.rand(3)} for _ in range(8)]
        self.assertEqual(self.epochs(Rows(samples, prepared)), 0.0)

    def test_in_a_part_of_the_data(self):
        data = Rows(torch.rand(8, 3), self.halved)
        self.assertEqual(self.epochs(Subset(data, [5, 6, 7, 3])), 1.0)

    @staticmethod
    def halved(values, index):
        row = values[index]
        row /= 2
        return row

    def test_a_copy_is_changed(self):
        data = Rows(torch.rand(8, 3), lambda values, index: values[index] / 2)
        self.assertEqual(self.epochs(data), 0.0)

    def test_room_to_work_in(self):
        for room in (torch.zeros(3), torch.zeros(16), torch.zeros(4, 3)):
            data = Rows(torch.rand(8, 3), lambda values, index: values[index])

            def handed_out(values, index):
                data.room[:3] = values[index]
                return data.room[:3].clone()

            data.room, data.handed_out = room, handed_out
            self.assertIsNot(self.epochs(data), 1.0)

    def test_rows_that_are_filled_when_they_are_first_read(self):
        def filled(values, index):
            if not values[index].any():
                values[index] = torch.rand(3)
            return values[index]

        self.assertEqual(self.epochs(Rows(torch.zeros(8, 3), filled)), 0.0)

    def test_a_buffer_that_others_write(self):
        data = Rows(torch.rand(8, 3), lambda values, index: values[index])
        for _ in DataLoader(data, batch_size=2):
            data.values += 1
        self.assertEqual(last("loader.writes_data"), 0.0)

    def test_nothing_that_could_be_changed(self):
        self.assertEqual(self.epochs(Rows([1, 2, 3], lambda v, i: v[i])), None)


if __name__ == "__main__":
    unittest.main()
