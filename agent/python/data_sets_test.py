"""What is trained with, evaluated and supervised of a data set: each mistake, and right
programs that come close to it."""

import pathlib
import random
import sys
import unittest

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import data
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.data import Subset, TensorDataset, random_split

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, said
from _traincheck import private_generators


def train(net, data, batches=3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        batches -= 1
        if batches == 0:
            break


def evaluate(net, data):
    with torch.no_grad():
        for x, _ in DataLoader(data, batch_size=4):
            net(x)


class DataCase(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2)
        self.data = TensorDataset(torch.randn(32, 3), torch.randint(2, (32,)))


class SortedBatches(HooksCase):
    class Folder(Dataset):
        def __init__(self, numbers, label_of):
            self.items = [(torch.randn(3), number) for number in numbers]
            self.label_of = label_of

        def __len__(self):
            return len(self.items)

        def __getitem__(self, index):
            return self.items[index][0], self.label_of(index)

    def test_rows_of_a_list(self):
        numbers = [0] * 8 + [1] * 8 + [2] * 8
        for label_of, wrong in (
            (lambda index: numbers[index], [1.0]),
            (lambda index: index % 3, [0.0]),  # the numbers are lengths
        ):
            self.setUp()
            net = nn.Linear(3, 3)
            loader = DataLoader(self.Folder(numbers, label_of), batch_size=4)
            for _ in range(2):
                for x, y in loader:
                    F.cross_entropy(net(x), y).backward()
            self.assertEqual(said("loss.sorted_batches"), 2 * wrong)

    def slices(self, y, loss=F.cross_entropy, each=2, steps=True):
        HooksCase.setUp(self)
        net = nn.Linear(3, 3 if loss is F.cross_entropy else 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            for labels in y.split(each):
                loss(net(torch.randn(len(labels), 3)), labels).backward()
                if steps:
                    optimizer.step()
        return said("loss.sorted_batches")

    def test_sorted_samples_without_a_loader(self):
        y = torch.arange(24) // 8
        halves = torch.arange(24)[:, None] // 12
        binary = F.binary_cross_entropy_with_logits
        self.assertEqual(self.slices(y), [1.0, 1.0])
        self.assertEqual(self.slices(halves.float(), binary, each=1), [1.0, 1.0])
        for labels, options in (
            (y[torch.randperm(24)], {}),
            (torch.zeros_like(y), {}),
            (torch.arange(24) % 3, {"each": 3}),  # as many classes as samples
            (y, {"each": 12}),
            (y, {"steps": False}),  # parts of one batch
            (y.flip(0), {}),
            (torch.tensor([0, 0, 1, 1] * 6), {}),  # two that take turns
        ):
            self.assertEqual(self.slices(labels, **options), [])
        self.assertEqual(self.slices(halves[::2] * 0.5, binary), [])

    def test_classes_that_are_learned_on_purpose_one_after_the_other(self):
        net = nn.Linear(3, 3)
        clients = [torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(3)]
        for made_anew in (True, False):
            HooksCase.setUp(self)
            for _ in range(3):
                for kind, client in enumerate(clients):
                    if made_anew:
                        client = torch.optim.SGD(net.parameters(), lr=0.1)
                    for _ in range(4):
                        labels = torch.full((4,), kind)
                        F.cross_entropy(net(torch.randn(4, 3)), labels).backward()
                        client.step()
            self.assertEqual(said("loss.sorted_batches"), [])


class IgnoresSplit(DataCase):
    NAME = "loader.ignores_split"

    def test_the_whole_is_trained_with(self):
        _, held_out = random_split(self.data, [24, 8])
        train(self.net, self.data)
        evaluate(self.net, held_out)
        train(self.net, self.data)
        self.assertEqual(said(self.NAME), [1.0])

    def test_a_part_is(self):
        part, held_out = random_split(self.data, [24, 8])
        train(self.net, part)
        evaluate(self.net, held_out)
        # With everything in the end.
        train(self.net, self.data)
        self.assertEqual(said(self.NAME), [0.0, 0.0])

    def test_a_few_samples_to_look_at(self):
        few = Subset(self.data, range(4))
        train(self.net, self.data)
        evaluate(self.net, few)
        self.assertEqual(said(self.NAME), [])

    def test_a_pass_over_all_that_does_not_train(self):
        part, _ = random_split(self.data, [24, 8])
        for x, _ in DataLoader(self.data, batch_size=4):
            x.mean(0)
        train(self.net, part)
        self.assertEqual(said(self.NAME), [0.0])

    def test_a_list(self):
        rows = list(self.data)
        random_split(rows, [24, 8])
        train(self.net, rows)
        self.assertEqual(said(self.NAME), [])


class FrozenNorms(HooksCase):
    def test_frozen_norms(self):
        def frozen(change=lambda norm: None, steps=5):
            HooksCase.setUp(self)
            norm = nn.BatchNorm1d(3).requires_grad_(False)
            head = nn.Linear(3, 2)
            net = nn.Sequential(norm, head)
            optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
            for _ in range(steps):
                change(norm)
                optimizer.zero_grad()
                net(torch.randn(4, 3)).sum().backward()
                optimizer.step()
            return said("opt.frozen_norm_moves")[:1]

        def follow(norm):
            norm.bias += 0.01

        self.assertEqual(frozen(), [1.0])
        self.assertEqual(frozen(lambda norm: norm.eval()), [0.0])
        self.assertEqual(frozen(follow), [])
        self.assertEqual(frozen(lambda norm: norm.requires_grad_(True)), [])


class Varied(Dataset):
    def __init__(self, varied):
        self.varied = varied

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return self.varied(torch.full((3,), float(index))), index % 2


def noisy(row):
    return row + torch.randn(3)


def flipped(row):
    return -row if random.random() < 0.5 else row


class DrawsInEvaluation(DataCase):
    NAME = "loader.draws_in_evaluation"

    def found(self, data, evaluated=None):
        part, held_out = random_split(data, [24, 8])
        train(self.net, part)
        evaluate(self.net, evaluated or held_out)
        return said(self.NAME)

    def test_of_what_is_trained_with(self):
        self.assertEqual(self.found(Varied(noisy)), [1.0, 1.0])

    def test_by_another_generator(self):
        self.assertEqual(self.found(Varied(flipped)), [1.0, 1.0])

    def test_nothing_is_drawn(self):
        self.assertEqual(self.found(Varied(lambda row: row + 1)), [0.0, 0.0])

    def test_another_data_set_may(self):
        self.assertEqual(self.found(self.data, evaluated=Varied(noisy)), [])

    def test_a_list(self):
        self.assertEqual(self.found(list(self.data)), [])


def fit(net, loader, epochs=3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()


class NeverShuffles(DataCase):
    NAME = "loader.never_shuffles"

    def test_the_order_of_the_data(self):
        fit(self.net, DataLoader(self.data, batch_size=4))
        self.assertEqual(said(self.NAME), [1.0])

    def test_an_order_of_its_own_in_each_epoch(self):
        fit(self.net, DataLoader(self.data, batch_size=4, shuffle=True))
        self.assertEqual(said(self.NAME), [0.0])

    def test_a_loader_for_each_epoch(self):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        for _ in range(3):
            for x, y in DataLoader(self.data, batch_size=4):  # gone while it is read
                optimizer.zero_grad()
                F.cross_entropy(self.net(x), y).backward()
                optimizer.step()
        self.assertEqual(said(self.NAME), [1.0])

    def test_too_few_passes_or_batches(self):
        fit(self.net, DataLoader(self.data, batch_size=16))
        fit(self.net, DataLoader(Subset(self.data, range(16)), batch_size=4), epochs=1)
        self.assertEqual(said(self.NAME), [])

    def test_an_evaluation(self):
        for _ in range(3):
            evaluate(self.net, self.data)
        self.assertEqual(said(self.NAME), [])


class Samplers(HooksCase):
    def test_samplers_that_draw(self):
        from _traincheck.samplers import draws_at_random

        class Own(data.Sampler):
            def __iter__(self):
                return iter(range(4))

        class OwnBatches:
            def __iter__(self):
                return iter([[0, 1], [2, 3]])

        class Buckets(data.BatchSampler):
            def __iter__(self):
                return iter([[3, 2], [1, 0]])

        rows = list(range(4))
        in_order = data.SequentialSampler(rows)
        weighted = data.WeightedRandomSampler([1.0] * 4, 4)
        distributed = data.DistributedSampler(rows, num_replicas=1, rank=0)
        for options, expected in (
            ({}, False),
            ({"shuffle": True}, True),
            ({"sampler": weighted}, True),
            ({"sampler": distributed}, True),
            ({"sampler": Own()}, None),
            ({"batch_sampler": data.BatchSampler(weighted, 2, False)}, True),
            ({"batch_sampler": data.BatchSampler(in_order, 2, False)}, False),
            ({"batch_sampler": OwnBatches()}, None),
            ({"batch_sampler": Buckets(in_order, 2, False)}, None),
            ({"batch_sampler": Buckets(weighted, 2, False)}, True),
        ):
            loader = data.DataLoader(rows, **options)
            self.assertEqual(draws_at_random(loader), expected, options)


class LeavesSamplesOut(DataCase):
    NAME = "loader.leaves_samples_out"

    def evaluate(self, samples, grad=False, **options):
        CORE.log.clear()
        loader = DataLoader(TensorDataset(torch.ones(samples, 3)), 4, **options)
        with torch.set_grad_enabled(grad):
            for _ in loader:
                pass
        return said(self.NAME)

    def test_the_last_batch_of_an_evaluation(self):
        self.assertEqual(self.evaluate(10, drop_last=True), [1.0])
        self.assertEqual(self.evaluate(12, drop_last=True), [0.0])
        self.assertEqual(self.evaluate(10), [0.0])

    def test_where_it_is_meant(self):
        self.assertEqual(self.evaluate(10, grad=True, drop_last=True), [])
        self.assertEqual(self.evaluate(10, shuffle=True, drop_last=True), [])
        self.assertEqual(self.evaluate(10, sampler=range(5), drop_last=True), [])


class Keeps(Dataset):
    """Draws from generators that it keeps."""

    def __init__(self, draw, *kept):
        self.transform = [Holder(one) for one in kept]
        self.draw = draw

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.draw([each.generator for each in self.transform], index)


class Holder:
    def __init__(self, generator):
        self.generator = generator


def seeded(generators, index):
    """What an item draws goes by its number alone."""
    python, numbers, tensors = generators
    python.seed(index)
    numbers.seed(index)
    tensors.manual_seed(index)
    return python.random() + numbers.rand() + torch.rand((), generator=tensors).item()


class PrivateGenerators(HooksCase):
    def drawn(self, draw, *kept):
        data = Keeps(draw, *kept)
        generators = private_generators.PrivateGenerators()
        generators.worker_begins(data)
        found = []
        for index in range(len(data)):
            data[index]
            found.append(generators.fetch_ended())
        return [state is not None for state in found]

    def test_each_kind(self):
        first = [True] + [False] * 7
        for draw, kept in (
            (lambda each, index: each[0].random(), random.Random(1)),
            (lambda each, index: each[0].rand(), numpy.random.RandomState(1)),
            (lambda each, index: each[0].rand(4000), numpy.random.RandomState(1)),
            (lambda each, index: each[0].rand(200_000), numpy.random.RandomState(1)),
            (lambda each, index: each[0].random(), numpy.random.default_rng(1)),
            (
                lambda each, index: torch.rand(2, generator=each[0]),
                torch.Generator().manual_seed(1),
            ),
        ):
            self.assertEqual(self.drawn(draw, kept), first, kept)

    def test_what_an_item_seeds_itself(self):
        kept = random.Random(77), numpy.random.RandomState(77), torch.Generator()
        self.assertEqual(self.drawn(seeded, *kept), [False] * 8)

    def test_nothing_is_drawn(self):
        self.assertEqual(
            self.drawn(lambda each, index: index, random.Random(1)), [False] * 8
        )
        self.assertEqual(self.drawn(lambda each, index: index), [False] * 8)


class RepeatsRows(DataCase):
    NAME = "loader.repeats_rows"

    def loader(self, count, **options):
        data = Subset(self.data, range(count))
        sampler = DistributedSampler(data, num_replicas=2, rank=0, **options)
        return DataLoader(data, batch_size=4, sampler=sampler)

    def evaluate(self, loader):
        with torch.no_grad():
            for x, _ in loader:
                self.net(x)
        return said(self.NAME)

    def test_ranks_that_are_filled_up(self):
        self.assertEqual(self.evaluate(self.loader(31)), [1.0])

    def test_samples_that_all_ranks_can_share(self):
        self.assertEqual(self.evaluate(self.loader(30)), [0.0])

    def test_a_rest_that_is_left_out(self):
        self.assertEqual(self.evaluate(self.loader(31, drop_last=True)), [0.0])

    def test_a_training(self):
        fit(self.net, self.loader(31))
        self.assertEqual(said(self.NAME), [])


class EvaluatesTrainedRows(HooksCase):
    NAME = "loader.evaluates_trained_rows"

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.x, self.y = torch.randn(32, 20), torch.randint(2, (32,))
        self.net = nn.Linear(20, 2)

    def of(self, evaluated, x=None):
        data = TensorDataset(self.x if x is None else x, self.y)
        fit(self.net, DataLoader(data, batch_size=4, shuffle=True), epochs=2)
        evaluate(self.net, evaluated)
        return said(self.NAME)

    def test_two_data_sets_of_one_file(self):
        again = TensorDataset(self.x.clone(), self.y.clone())
        self.assertEqual(self.of(again), [1.0])

    def test_samples_of_its_own(self):
        other = TensorDataset(torch.randn(32, 20), self.y)
        self.assertEqual(self.of(other), [0.0])
        some = torch.cat([self.x[:1], torch.randn(31, 20)])
        self.assertEqual(self.of(TensorDataset(some, self.y)), [0.0, 0.0])

    def test_how_well_the_training_does(self):
        data = TensorDataset(self.x, self.y)
        fit(self.net, DataLoader(data, batch_size=4), epochs=1)
        evaluate(self.net, data)
        evaluate(self.net, Subset(data, range(16)))
        self.assertEqual(said(self.NAME), [])

    def test_rows_that_may_be_equal_by_chance(self):
        few = torch.randint(2, (32, 20)).float()
        self.assertEqual(self.of(TensorDataset(few.clone(), self.y), few), [])


class TargetsAmongInputs(HooksCase):
    NAME = "loader.target_among_inputs"

    def read(self, inputs, targets, batch_size=16):
        for _ in DataLoader(TensorDataset(inputs, targets), batch_size, shuffle=True):
            pass
        return said(self.NAME)

    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.table = torch.randn(64, 5)

    def test_a_column_that_is_the_target(self):
        self.assertEqual(self.read(self.table, self.table[:, 3:4]), [1.0])

    def test_labels_among_the_features(self):
        self.table[:, 2] = torch.randint(4, (64,)).float()
        self.assertEqual(self.read(self.table, self.table[:, 2].long()), [1.0])

    def test_windows_that_end_with_the_target(self):
        series = torch.randn(100).cumsum(0)
        windows = series.unfold(0, 12, 1)[:, :, None]
        self.assertEqual(self.read(windows, windows[:, -1]), [1.0])
        self.setUp()
        self.assertEqual(self.read(windows[:-1], windows[1:, -1]), [0.0])

    def test_what_is_equal_now_and_then(self):
        self.table[:, 2] = torch.randint(4, (64,)).float()
        targets = self.table[:, 2].clone()
        targets[::8] += 1
        self.assertEqual(self.read(self.table, targets), [0.0])

    def test_two_classes_pictures_and_small_batches(self):
        few = (self.table[:, 1] > 0).float()
        self.table[:, 1] = few
        self.assertEqual(self.read(self.table, few), [])
        self.assertEqual(self.read(self.table, self.table), [])
        self.assertEqual(self.read(self.table, self.table[:, 3], batch_size=4), [])


if __name__ == "__main__":
    unittest.main()
