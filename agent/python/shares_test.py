"""How data is split and scaled, and what is evaluated."""

import copy
import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, WATCH, said


def fit(net, data, evaluated, evaluates=None, epochs=2, step=lambda net: None):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(epochs):
        for x, y in DataLoader(data, batch_size=16, shuffle=True):
            WATCH.shadows.update()  # as when a step closes
            optimizer.zero_grad()
            F.mse_loss(net(x.flatten(1)).squeeze(1), y).backward()
            optimizer.step()
            step(net)
        with torch.no_grad():
            for x, _ in DataLoader(evaluated, batch_size=16):
                (evaluates or net).eval()(x.flatten(1))


class Table(Dataset):
    """Rows in an array of numpy's."""

    def __init__(self, rows):
        self.names = ["some", "thing"]
        self.rows = rows.numpy()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], 0.5


class ScaledSplits(HooksCase):
    NAME = "loader.scaled_before_split"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.rows, self.targets = 3 * torch.randn(96, 5) + 2, torch.randn(96)

    def scaled(self, known):
        return (self.rows - known.mean(0)) / known.std(0)

    def of(self, train, evaluated):
        fit(nn.Linear(5, 1), train, evaluated)
        return said(self.NAME)

    def halves(self, rows):
        return [TensorDataset(rows[part], self.targets[part]) for part in PARTS]

    def test_all_rows_at_once(self):
        rows = self.scaled(self.rows)
        self.assertEqual(self.of(*self.halves(rows)), [1.0])

    def test_parts_of_what_was_scaled(self):
        for data in (TensorDataset(self.scaled(self.rows), self.targets), None):
            self.setUp()
            data = data or Table(self.scaled(self.rows))
            drawn = random_split(data, [64, 32])
            self.assertEqual(self.of(*drawn), [1.0])

    def test_the_training_alone(self):
        rows = self.scaled(self.rows[:64])
        self.assertEqual(self.of(*self.halves(rows)), [0.0])

    def test_what_nobody_has_scaled(self):
        self.assertEqual(self.of(*self.halves(self.rows)), [])
        self.assertEqual(self.of(*self.halves(torch.randn(96, 5))), [])

    def test_flags_and_few_rows(self):
        self.rows[:, 4] = (self.rows[:, 4] > 2).float()
        rows = self.scaled(self.rows)
        rows[:, 4] = self.rows[:, 4]
        self.assertEqual(self.of(*self.halves(rows)), [1.0])
        self.setUp()
        few = [Subset(part, range(8)) for part in self.halves(torch.randn(96, 5))]
        self.assertEqual(self.of(*few), [])

    def series(self, known, borders=(64, 96), kind=None):
        """A data set for each part of the rows, scaled by those that are known."""
        scaled, kind = (self.rows - known.mean(0)) / known.std(0), kind or Cut
        begins = (0, *borders[:-1])
        return [kind(scaled[b:e].clone()) for b, e in zip(begins, borders)]

    def of_series(self, train, *evaluated):
        self.setUp()
        for one in evaluated:
            fit(nn.Linear(20, 1), train, one)
        return said(self.NAME)

    def test_series_that_are_cut(self):
        of, known = self.of_series, self.rows[:64]
        self.assertEqual(of(*self.series(self.rows)), [1.0])
        self.assertEqual(of(*self.series(self.rows, kind=CutArray)), [1.0])
        self.assertEqual(of(*self.series(self.rows, (48, 72, 96))), [1.0])
        self.assertEqual(of(*self.series(known)), [0.0])
        self.assertEqual(of(*self.series(known, (64, 80, 96))), [0.0, 0.0])

    def test_series_that_nobody_can_tell(self):
        of, whole = self.of_series, self.series(self.rows, (96,))[0]
        self.assertEqual(of(*self.series(self.rows[:40])), [])
        self.assertEqual(of(whole, Cut(whole.series)), [])  # each holds all rows
        self.assertEqual(of(whole, Cut(whole.series.clone())), [])
        context = Cut(whole.series[60:].clone())  # the first windows begin before
        self.assertEqual(of(Cut(whole.series[:64].clone()), context), [])
        train, held_out = self.series(self.rows)
        self.assertEqual(of(train, Other(held_out.series)), [])


class Cut(Dataset):
    """Windows of four rows."""

    def __init__(self, series):
        self.width = 4
        self.series = series

    def __len__(self):
        return len(self.series) - self.width + 1

    def __getitem__(self, begin):
        return torch.as_tensor(self.series[begin : begin + self.width]), 0.5


class CutArray(Cut):
    def __init__(self, series):
        super().__init__(series.numpy())


class Other(Cut):
    pass


PARTS = slice(0, 64), slice(64, 96)


class Windows(HooksCase):
    NAME = "loader.windows_overlap"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.series = torch.randn(800).cumsum(0)

    def windows(self, stride):
        cut = self.series.unfold(0, 13, stride)[:128]
        return TensorDataset(cut[:, :12, None], cut[:, 12])

    def of(self, train, evaluated):
        fit(nn.Linear(12, 1), train, evaluated)
        return said(self.NAME)

    def test_neighbours_that_were_drawn_apart(self):
        for stride in (1, 2):
            self.setUp()
            drawn = random_split(self.windows(stride), [96, 32])
            self.assertEqual(self.of(*drawn), [1.0])

    def test_windows_side_by_side(self):
        drawn = random_split(self.windows(13), [0.75, 0.25])
        self.assertEqual(self.of(*drawn), [0.0])

    def test_a_split_by_time(self):
        data = self.windows(1)
        parts = Subset(data, range(96)), Subset(data, range(96, 128))
        self.assertEqual(self.of(*parts), [0.0])

    def test_how_well_the_training_does(self):
        data = self.windows(1)
        self.assertEqual(self.of(data, Subset(data, range(0, 128, 2))), [0.0])

    def test_windows_of_few_values(self):
        self.series = (self.series > 0).float()
        self.assertEqual(self.of(*random_split(self.windows(1), [96, 32])), [])


class StillCopies(HooksCase):
    NAME = "opt.evaluates_still_copy"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
        self.data = TensorDataset(torch.randn(48, 5), torch.randn(48))
        self.held_out = TensorDataset(torch.randn(32, 5), torch.randn(32))

    def of(self, evaluates, epochs=4, step=lambda net: None):
        fit(self.net, self.data, self.held_out, evaluates, epochs, step)
        return [value for value in said(self.NAME) if value == value]

    def test_a_copy_that_nobody_updates(self):
        self.assertEqual(self.of(copy.deepcopy(self.net)), [1.0])

    def test_an_average_whose_update_is_forgotten(self):
        self.assertEqual(self.of(AveragedModel(self.net)), [1.0])

    def test_an_average(self):
        average = AveragedModel(self.net)
        self.assertEqual(self.of(average, step=average.update_parameters), [0.0])

    def test_two_evaluations_are_too_few(self):
        self.assertEqual(self.of(copy.deepcopy(self.net), epochs=2), [])

    def test_a_teacher(self):
        teacher = copy.deepcopy(self.net).eval()

        def ask(net):
            with torch.no_grad():
                teacher(torch.randn(4, 5))

        self.assertEqual(self.of(teacher, step=ask), [])

    def test_another_network(self):
        other = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 1))
        self.assertEqual(self.of(other), [])


if __name__ == "__main__":
    unittest.main()
