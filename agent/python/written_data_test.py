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
