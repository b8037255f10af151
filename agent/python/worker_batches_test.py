"""Streams that each worker of a loader gives as a whole, and shares of them."""

import pathlib
import random
import sys
import unittest

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said

NAME = "loader.workers_repeat"


class Stream(IterableDataset):
    """order(samples, worker) gives what a worker gives."""

    def __init__(self, order, rows=96):
        self.rows = torch.randn(rows, 3)
        self.order = order

    def __iter__(self):
        worker = get_worker_info()
        generator = random.Random(worker.id)
        for index in self.order(list(range(len(self.rows))), worker, generator):
            yield {"x": self.rows[index], "y": index % 3}


def shuffled(samples, worker, generator):
    generator.shuffle(samples)
    return samples


def share(samples, worker, generator):
    return shuffled(samples[worker.id :: worker.num_workers], worker, generator)


def drawn(samples, worker, generator):
    return generator.choices(samples, k=len(samples))


class WorkerBatches(HooksCase):
    def of(self, order, passes=1, **options):
        loader = DataLoader(Stream(order), 8, num_workers=2, **options)
        for _ in range(passes):
            for _ in loader:
                pass
        return said(NAME)

    def test_the_same_order(self):
        self.assertEqual(self.of(lambda samples, *_: samples), [1.0, 1.0])

    def test_an_order_of_each_worker(self):
        self.assertEqual(self.of(shuffled), [0.0, 1.0])

    def test_it_is_said_of_later_passes(self):
        self.assertEqual(self.of(shuffled, passes=2), [0.0, 1.0, 1.0, 1.0])

    def test_an_end_that_is_dropped(self):
        order = lambda *given: shuffled(*given)[:-5]
        self.assertEqual(self.of(order, drop_last=True), [0.0, 1.0])

    def test_shares(self):
        self.assertEqual(self.of(share, passes=2), [0.0, 0.0])

    def test_samples_that_are_drawn(self):
        self.assertEqual(self.of(drawn), [0.0])

    def test_a_pass_that_is_left(self):
        for _, _ in zip(range(6), DataLoader(Stream(shuffled), 8, num_workers=2)):
            pass
        self.assertEqual(said(NAME), [0.0])


if __name__ == "__main__":
    unittest.main()
