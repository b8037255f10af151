"""What a wrapper of several ranks is given in its first two training forwards."""

import collections
import pathlib
import sys
import unittest
import warnings

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase
from torch.testing._internal.distributed import fake_pg  # noqa: F401

NAME = "DistributedDataParallel.inputs"


class AnyArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, *args, **kwargs):
        return self.weight * 2


class WrapperInputs(HooksCase):
    """Rank 0; nobody else is there."""

    def wrap(self, world=2):
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group(
            "fake", store=store, rank=0, world_size=world
        )
        self.addCleanup(torch.distributed.destroy_process_group)
        return nn.parallel.DistributedDataParallel(AnyArguments())

    def recorded(self):
        return [record for record in CORE.of("bytes") if record[2] == NAME]

    def contents(self, *forwards):
        """What is recorded of forwards with these positional arguments."""
        CORE.log.clear()
        model = nn.parallel.DistributedDataParallel(AnyArguments())
        for args in forwards:
            model(*args)
        return [record[3] for record in self.recorded()]

    def test_two_forwards_once(self):
        model = self.wrap()
        batches = [torch.full((4, 5), float(i)) for i in range(4)]
        model(batches[0])
        self.assertEqual(self.recorded(), [])
        for batch in batches[1:]:
            model(batch)
        [(_, point, _, content, _)] = self.recorded()
        self.assertEqual(point, "FORWARD_BEGIN")
        for batch in batches[:2]:
            self.assertIn(batch.numpy().tobytes(), content)
        self.assertEqual(CORE.facts[NAME][0], CORE.VARIABLE_INPUTS)

    def test_all_that_it_is_given_counts(self):
        self.wrap()
        x, y = torch.ones(4, 5), torch.zeros(4, 5)
        Pair = collections.namedtuple("Pair", "a b")
        same = [
            self.contents((x, 1), (y, {"a": [x], "b": Pair("c", None)})) for _ in "12"
        ]
        self.assertEqual(same[0], same[1])
        self.assertEqual(len(same[0]), 1)
        others = [
            ((y, 1), (y, {"a": [x], "b": Pair("c", None)})),
            ((x, 2), (y, {"a": [x], "b": Pair("c", None)})),
            ((x, 1), (y, {"a": [y], "b": Pair("c", None)})),
            ((x, 1), (y, {"a": [x], "b": Pair("d", None)})),
            ((x, 1), (y, {"a": [x], "c": Pair("c", None)})),
        ]
        contents = [content for other in others for content in self.contents(*other)]
        self.assertEqual(len({*contents, *same[0]}), len(others) + 1)

    def test_keyword_arguments(self):
        model = self.wrap()
        for value in (1.0, 2.0):
            model(x=torch.full((16,), value))
        self.assertEqual(len(self.recorded()), 1)

    def test_what_may_be_equal_by_chance_is_not_recorded(self):
        self.wrap()
        x, y = torch.ones(4, 5), torch.zeros(4, 5)
        self.assertEqual(self.contents((x,), (x,), (y,)), [])
        self.assertEqual(self.contents((x[:3],), (y[:3],), (x,)), [])
        self.assertEqual(self.contents((), (), (x,)), [])
        self.assertEqual(self.contents((x,)), [])

    def test_only_what_trains(self):
        model = self.wrap()
        x = torch.rand(3, 16)
        with torch.no_grad():
            model(x)
        model.eval()
        model(x)
        model.train()
        model(x)
        self.assertEqual(self.recorded(), [])
        model(x + 1)
        self.assertEqual(len(self.recorded()), 1)

    def test_one_rank_has_nobody_to_differ_from(self):
        model = self.wrap(world=1)
        for value in (1.0, 2.0):
            model(torch.full((16,), value))
        self.assertEqual(self.recorded(), [])

    def test_what_cannot_be_read(self):
        model = self.wrap()
        x = torch.ones(4, 5)
        for other in (object(), x.to("meta"), [[[[[x]]]]], [1] * 300):
            with self.subTest(type(other).__name__):
                CORE.log.clear()
                model = nn.parallel.DistributedDataParallel(AnyArguments())
                model(x, other)
                model(x + 1)
                self.assertEqual(self.recorded(), [])
                self.assertEqual(
                    [r for r in CORE.of("state") if NAME in r[3]],
                    [("state", "FORWARD_BEGIN", CORE.STATE_DATA, [NAME])],
                )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
