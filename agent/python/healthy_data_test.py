"""Loaders and samplers of healthy trainings that come close to a mistake, and the
mistakes beside them."""

import pathlib
import random
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, SignsCase, last, said


class Staged(data.Dataset):
    def __init__(self, missing=None):
        self.stage, self.missing = 1, missing

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((3,), float(index))


class Reading(Staged):
    def __getitem__(self, index):
        return super().__getitem__(index) * self.stage


class EasyFirst(data.Sampler):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return min(8, 4 * self.samples.stage)

    def __iter__(self):
        return iter(list(range(8))[: 4 * self.samples.stage])


class WorkerCopies(HooksCase):
    def train(self, samples, sampler=None):
        HooksCase.setUp(self)
        loader = data.DataLoader(
            samples, 4, sampler=sampler, num_workers=1, persistent_workers=True
        )
        for samples.stage in (1, 2):
            list(loader)
        loader._iterator._shutdown_workers()
        return said("loader.workers_hold_old")

    def test_what_the_sampler_alone_reads(self):
        samples = Staged()
        self.assertEqual(self.train(samples, EasyFirst(samples)), [0.0])

    def test_what_workers_read(self):
        samples = Reading()
        self.assertEqual(self.train(samples, EasyFirst(samples)), [1.0])

    def test_no_number(self):
        from _traincheck.worker_copies import _same

        self.assertTrue(_same(float("nan"), float("nan")))
        self.assertFalse(_same(float("nan"), 1.0))


class Orders(HooksCase):
    def train(self, sampler):
        HooksCase.setUp(self)
        rows = torch.randn(8, 5)
        for _ in range(2):
            list(data.DataLoader(rows, batch_size=4, sampler=sampler))
        return set(said("shuffles"))

    def test_an_order_that_is_meant(self):
        self.assertEqual(self.train(EasyFirst(Staged())), {0.0})

    def test_an_order_that_is_drawn(self):
        class Once(data.Sampler):
            def __init__(self):
                self.order = torch.randperm(8).tolist()

            def __iter__(self):
                return iter(self.order)

        class Helped(data.Sampler):
            def __iter__(self):
                return iter(order_of(8))

        self.assertEqual(self.train(Once()), set())
        self.assertEqual(self.train(Helped()), set())


def order_of(count):
    return random.sample(range(count), count)


class FirstBatches(HooksCase):
    def test_answers_to_one_prompt(self):
        rows = data.TensorDataset(torch.randn(8, 5))
        for order, found in (([3] * 4 + [5] * 4, []), (range(8), [0.0])):
            HooksCase.setUp(self)
            list(data.DataLoader(rows, batch_size=4, sampler=list(order)))
            self.assertEqual(said("loader.samples_alike"), found)

    def begin_again(self, rows):
        HooksCase.setUp(self)
        net, loader = nn.Linear(5, 4), data.DataLoader(rows, batch_size=4)
        for _ in range(5):
            x, y = next(iter(loader))
            F.cross_entropy(net(x), y).backward()
        return said("loader.begins_again")

    def test_samples_that_are_made_anew(self):
        class Tasks(Staged):
            def __getitem__(self, index):
                return torch.randn(5), random.randrange(4)

        random.seed(3)
        self.assertEqual(self.begin_again(Tasks()), [])

    def test_pictures_that_are_augmented(self):
        class Pictures(Staged):
            def __getitem__(self, index):
                return torch.randn(5), index % 4

        self.assertEqual(self.begin_again(Pictures())[-1], 1.0)


class Evaluations(HooksCase):
    def test_statistics_of_each_batch(self):
        for momentum, found in ((1.0, []), (0.1, [1.0])):
            HooksCase.setUp(self)
            net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
            net(torch.randn(8, 5)).sum().backward()
            net[1].momentum = momentum
            with torch.no_grad():
                for x in data.DataLoader(torch.randn(24, 5), batch_size=8):
                    net(x)
            self.assertEqual(said("loader.evaluated_in_training"), found)

    def test_few_loaders_are_remembered(self):
        from _traincheck import evaluations

        known = evaluations.Evaluations()
        for number in range(1000):
            known.pass_begins(number)
            known.backward_begins()
        self.assertEqual(len(known._trained_with), evaluations._LOADERS)


class SharedSamples(SignsCase):
    def epochs(self, parts):
        """Pairs of what is trained with and what is scored after it."""
        rows = data.TensorDataset(torch.randn(16, 5))
        for trained, scored in parts:
            part = data.Subset(rows, trained)
            list(data.DataLoader(part, 4))
            self.step()
            with torch.no_grad():
                list(data.DataLoader(data.Subset(rows, scored), 4))
        return said("loader.shares_samples")

    def test_a_part_of_what_was_scored(self):
        parts = [[0], range(1, 9)], [range(2, 6), range(4, 12)], [range(5, 8), [1, 5]]
        self.assertNotIn(1.0, self.epochs(parts))

    def test_parts_that_overlap(self):
        self.assertEqual(self.epochs([[range(8), range(6, 16)]]), [1.0])


class WrittenData(HooksCase):
    def read(self, handed_out):
        HooksCase.setUp(self)

        class Rows(Staged):
            def __getitem__(self, index):
                return handed_out(self, index)

        rows = Rows()
        rows.values, rows.reads = torch.rand(8, 3), torch.ones(8)
        for _ in range(2):
            list(data.DataLoader(rows, 4))
        return last("loader.writes_data")

    def test_a_number_of_reads(self):
        def count(rows, index):
            rows.reads[index] += 1
            return rows.values[index]

        self.assertEqual(self.read(count), 0.0)

    def test_a_target_that_is_scaled_in_place(self):
        def scale(rows, index):
            rows.reads[index] *= 0.5
            return rows.values[index], rows.reads[index]

        self.assertEqual(self.read(scale), 1.0)


class EmptyPasses(SignsCase):
    NAME = "opt.loader_drops_all"

    def setUp(self):
        super().setUp()
        self.whole = data.DataLoader(torch.randn(16, 5), 8, drop_last=True)

    def epoch(self, *loaders):
        for loader in loaders:
            for _ in loader:
                self.step()

    @staticmethod
    def few():
        return data.DataLoader(torch.randn(5, 5), 8, drop_last=True)

    def test_a_set_that_grows(self):
        for _ in range(3):
            self.epoch(self.whole, self.few())
        self.assertNotIn(1.0, said(self.NAME))

    def test_a_set_that_stays_too_small(self):
        few = self.few()
        for _ in range(3):
            self.epoch(self.whole, few)
        self.assertIn(1.0, said(self.NAME))

    def test_an_evaluation_of_nothing(self):
        self.epoch(self.whole)
        with torch.no_grad():
            list(self.few())
        self.epoch(self.whole)
        self.assertIn(1.0, said(self.NAME))


class Worded(Staged):
    def __init__(self, **words):
        super().__init__()
        self.stoi = words


class ClassTables(SignsCase):
    NAME = "loader.classes_apart"

    def pair(self):
        return [data.DataLoader(d, 4) for d in (Worded(a=0, b=1), Worded(b=0, a=1))]

    def test_two_languages_that_are_trained(self):
        loaders = self.pair()
        for _ in range(3):
            for _ in zip(*loaders):
                self.step()
        self.assertNotIn(1.0, said(self.NAME))

    def test_what_is_evaluated(self):
        trained, evaluated = self.pair()
        for _ in trained:
            self.step()
        with torch.no_grad():
            list(evaluated)
        self.assertEqual(said(self.NAME), [1.0])


class InputScales(SignsCase):
    NAME = "loader.scaled_apart"

    def evaluate(self, *factors):
        HooksCase.setUp(self)
        for _ in data.DataLoader(torch.randn(32, 5), 32):
            self.step()
        with torch.no_grad():
            for factor in factors:
                list(data.DataLoader(factor * torch.randn(32, 5), 32))
        return said(self.NAME)

    def test_inputs_beyond_those_of_the_training(self):
        self.assertEqual(self.evaluate(1.0, 100.0), [0.0, 0.0])

    def test_one_of_two_that_is_not_divided(self):
        self.assertEqual(self.evaluate(1.0, 255.0), [0.0, 1.0])
        self.assertEqual(self.evaluate(100.0), [1.0])


class WorkerStates(HooksCase):
    def states(self, kind, workers):
        """How many states a worker has recorded as it began."""

        class Told(kind):
            def __len__(self):
                return 2

            def __getitem__(self, index):
                return [one[1] for one in CORE.of("bytes")].count("WORKER_INIT")

            def __iter__(self):
                yield self[0]

        if kind is data.Dataset:
            del Told.__iter__
        loader = data.DataLoader(Told(), num_workers=workers, batch_size=None)
        return [int(count) > 0 for count in loader]

    def test_a_stream_that_workers_share(self):
        self.assertEqual(self.states(data.IterableDataset, 2), [False, False])

    def test_items(self):
        self.assertEqual(self.states(data.Dataset, 2), [True, True])


class Lengths(HooksCase):
    def length(self, sampler):
        from _traincheck import lengths

        return lengths.length_of(sampler)

    def test_what_is_counted_by_drawing(self):
        class Drawing(data.Sampler):
            def __iter__(self):
                return iter(torch.randperm(8).tolist())

            def __len__(self):
                return sum(1 for _ in self)

        class Helped(Drawing):
            def __len__(self):
                return len(self.batches())

            def batches(self):
                return list(self)

        for own in (Drawing(), Helped()):
            before = torch.get_rng_state()
            self.assertIsNone(self.length(own))
            self.assertIsNone(self.length(data.BatchSampler(own, 2, False)))
            self.assertTrue(torch.equal(before, torch.get_rng_state()))

    def test_what_is_read_off(self):
        in_order = data.SequentialSampler(range(8))
        self.assertEqual(self.length(data.BatchSampler(in_order, 3, False)), 3)
        self.assertEqual(self.length(EasyFirst(Staged())), 4)
        self.assertIsNone(self.length(object()))
        self.assertIsNone(self.length(None))

    def test_the_order_of_a_training(self):
        class Drawn(data.Sampler):
            def __iter__(self):
                yield from torch.randperm(16).view(4, 4).tolist()

            def __len__(self):
                return sum(1 for _ in self)

        loader = data.DataLoader(torch.arange(16), batch_sampler=Drawn())
        torch.manual_seed(5)
        read = [batch.tolist() for _ in range(2) for batch in loader]
        torch.manual_seed(5)
        expected = []
        for _ in range(2):
            torch.empty((), dtype=torch.int64).random_()  # the seed of a pass
            expected += torch.randperm(16).view(4, 4).tolist()
        self.assertEqual(read, expected)


if __name__ == "__main__":
    unittest.main()
