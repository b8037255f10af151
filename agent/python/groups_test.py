"""Options of parameter groups, parameters that rounding keeps where they are, and tables of
classes: each mistake, and right programs that come close to it."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import TARGETS, HooksCase, last, said


class GroupsCase(HooksCase):
    NAME: str

    def setUp(self):
        super().setUp()
        self.net = nn.Sequential(nn.Linear(5, 20), nn.LayerNorm(20), nn.Linear(20, 4))

    def fit(self, optimizer, steps=3):
        kind = next(self.net.parameters()).dtype
        for _ in range(steps):
            optimizer.zero_grad()
            scores = self.net(torch.randn(8, 5).to(kind))
            F.cross_entropy(scores.float(), TARGETS).backward()
            optimizer.step()
        return said(self.NAME)


class Tables(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.table = nn.Embedding(9, 20)
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 20))
        self.body = body

    def forward(self, x):
        words = self.table((x.abs() * 3).long().clamp(max=8))
        return self.body((words + self.pos_embed).mean(1))


class DecaysVectors(GroupsCase):
    NAME = "opt.decays_vectors_only"

    def of(self, decayed, decay=0.1):
        parameters = list(self.net.parameters())
        groups = [
            {"params": [p for p in parameters if decayed(p)], "weight_decay": decay},
            {"params": [p for p in parameters if not decayed(p)], "weight_decay": 0},
        ]
        return self.fit(torch.optim.AdamW(groups, lr=0.01), steps=1)

    def test_swapped_groups(self):
        self.assertEqual(self.of(lambda p: p.dim() == 1), [1.0])

    def test_swapped_groups_of_which_one_has_the_tables(self):
        body = nn.Sequential(nn.Linear(20, 20), nn.LayerNorm(20), nn.Linear(20, 4))
        self.net = Tables(body)
        table, positions = self.net.table.weight, self.net.pos_embed
        swapped = lambda p: p.dim() == 1 or p is table or p is positions
        self.assertEqual(self.of(swapped), [1.0])
        HooksCase.setUp(self)
        self.assertEqual(
            self.of(lambda p: p is not table and p is not positions), [0.0]
        )
        HooksCase.setUp(self)
        last_layer = body[2].weight
        self.assertEqual(self.of(lambda p: swapped(p) or p is last_layer), [0.0])

    def test_weights_decay(self):
        self.assertEqual(self.of(lambda p: p.dim() > 1), [0.0])

    def test_some_scales_do(self):
        scale = self.net[1].weight
        self.assertEqual(self.of(lambda p: p is scale), [0.0])

    def test_all_or_nothing(self):
        self.assertEqual(self.of(lambda p: True), [])
        self.assertEqual(self.of(lambda p: p.dim() == 1, decay=0), [])

    def test_one_matrix_says_nothing(self):
        self.net = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4))
        self.assertEqual(self.of(lambda p: p.dim() == 1), [])

    def test_a_decay_that_is_a_tensor_on_a_device(self):
        decay = torch.tensor(0.1, device="meta")
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        optimizer.param_groups[0]["weight_decay"] = decay
        optimizer.step = lambda: None
        self.assertEqual(self.fit(optimizer), [])


class ScaleUnused(GroupsCase):
    NAME = "opt.rate_scale_unused"

    def groups(self, option="lr_scale", scales=(0.1, 1.0), rates=(0.01, 0.01)):
        halves = (self.net[:1], self.net[1:])
        return [
            {"params": list(half.parameters()), option: scale, "lr": rate}
            for half, scale, rate in zip(halves, scales, rates)
        ]

    def test_one_rate(self):
        optimizer = torch.optim.AdamW(self.groups(), lr=0.01)
        self.assertEqual(self.fit(optimizer), [1.0])
        optimizer = torch.optim.AdamW(self.groups("learning_rate_mult"), lr=0.01)
        self.assertEqual(self.fit(optimizer)[1:], [1.0])

    def test_rates_that_differ(self):
        optimizer = torch.optim.AdamW(self.groups(rates=(0.001, 0.01)), lr=0.01)
        self.assertEqual(self.fit(optimizer, steps=1), [0.0])

    def test_a_schedule_sets_them_after_the_first_step(self):
        optimizer = torch.optim.SGD(self.groups(), lr=0.01)
        self.fit(optimizer, steps=1)
        for group in optimizer.param_groups:
            group["lr"] *= group["lr_scale"]
        self.assertEqual(self.fit(optimizer, steps=1), [0.0])

    def test_what_is_no_scale_of_the_rate(self):
        for groups in (
            self.groups(scales=(1.0, 1.0)),
            self.groups("name", scales=("body", "head")),
            self.groups("loss_scale"),
            self.groups(rates=(0.0, 0.0)),
        ):
            optimizer = torch.optim.SGD(groups, lr=0.01)
            self.assertEqual(self.fit(optimizer), [])

    def test_an_optimizer_that_reads_it(self):
        class Own(torch.optim.SGD):
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.grad *= group["lr_scale"]
                super().step(closure)

        self.assertEqual(self.fit(Own(self.groups(), lr=0.01)), [])


class ParameterRoundedAway(GroupsCase):
    NAME = "opt.parameter_rounded_away"

    def of(self, rate, dtype=torch.bfloat16):
        self.net.to(dtype)
        for layer in (self.net[0], self.net[2]):
            nn.init.uniform_(layer.weight, -0.01, 0.01)
        return self.fit(torch.optim.AdamW(self.net.parameters(), lr=rate))

    def test_scales_that_begin_at_one(self):
        self.assertEqual(self.of(0.001), [0.0, 1.0, 1.0])
        self.assertEqual(last("opt.rounded_away"), 0.0)

    def test_steps_that_are_long_enough(self):
        self.assertEqual(set(self.of(0.05)), {0.0})

    def test_float32(self):
        self.assertEqual(self.of(0.001, torch.float32), [])


class LoadedAlone(GroupsCase):
    NAME = "opt.loaded_state_lost"

    def of(self, made_anew):
        state = {"0.weight": torch.randn(20, 5)}
        self.net.load_state_dict(state, strict=False)
        if made_anew:
            nn.init.normal_(self.net[0].weight)
        return self.fit(torch.optim.SGD(self.net.parameters(), lr=0.1), steps=1)

    def test_one_layer_that_was_loaded(self):
        self.assertEqual(self.of(made_anew=True), [1.0])
        self.assertEqual(self.of(made_anew=False)[1:], [0.0])

    def test_words_may_be_made_anew(self):
        words = nn.Embedding(20, 5)
        net = nn.Sequential(words, nn.Linear(5, 4))
        net.load_state_dict({"0.weight": torch.randn(20, 5)}, strict=False)
        nn.init.zeros_(words.weight[0].data)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        F.cross_entropy(net(torch.arange(8)), TARGETS).backward()
        optimizer.step()
        self.assertEqual(said(self.NAME), [])


class MixedBatches(HooksCase):
    NAME = "loss.mixes_rows"
    SAMPLES, STEPS, WIDTH = 8, 5, 3

    def of(self, layer, view):
        HooksCase.setUp(self)
        x = torch.randn(self.SAMPLES, self.STEPS, self.WIDTH)
        states = layer(view(x))[0]
        nn.Linear(4, 2)(states).square().mean().backward()
        return said(self.NAME)

    def test_a_view_in_place_of_a_transposition(self):
        order = self.STEPS, self.SAMPLES, self.WIDTH
        for kind in (nn.GRU, nn.LSTM):
            layer = kind(self.WIDTH, 4)
            self.assertEqual(self.of(layer, lambda x: x.reshape(order)), [1.0])
            self.assertNotIn(1.0, self.of(layer, lambda x: x.transpose(0, 1)))
            layer = kind(self.WIDTH, 4, batch_first=True)
            self.assertNotIn(1.0, self.of(layer, lambda x: x))

    def test_steps_of_a_loop(self):
        """A layer reads all steps at once, and a loop goes through what it gives."""
        below = nn.Linear(self.WIDTH, 4)
        for steps in (
            lambda x: below(x).unbind(1),
            lambda x: below(x).mT.unbind(2),
            lambda x: below(x).transpose(0, 1).unbind(0),
        ):
            self.assertEqual(self.of(lambda parts: [sum(parts)], steps), [])

    def classify(self, view, samples=8, steps=4):
        HooksCase.setUp(self)
        tokens = nn.Linear(self.WIDTH, 4)(torch.randn(samples, steps, self.WIDTH))
        mixed = view(tokens)
        scores = nn.Linear(4, 3)(mixed.square().mean(tuple(range(mixed.dim() - 2))))
        targets = torch.arange(len(scores)) % 3
        F.cross_entropy(scores, targets).backward()
        return said(self.NAME)

    def test_rows_of_several_samples(self):
        """[samples, tokens] is taken for [tokens, samples] by a view, and back."""

        def swap(x):
            first, second, size = x.shape
            mixed = x.view(second, first, size)
            return mixed.tanh().view(first, second, size).transpose(0, 1)

        self.assertIn(1.0, self.classify(swap))
        self.assertNotIn(1.0, self.classify(lambda x: x.transpose(0, 1)))

    def test_windows_of_samples(self):
        """Samples of eight tokens, each cut into two windows of four."""

        def cut(x):
            return x.view(8, 4, 4).mean(1).view(4, 2, 4).transpose(0, 1)

        self.assertNotIn(1.0, self.classify(cut, samples=4, steps=8))

    def test_of_what_was_computed(self):
        order, layer = (self.STEPS, self.SAMPLES, 4), nn.GRU(4, 4)
        below = nn.Linear(self.WIDTH, 4)
        self.assertEqual(self.of(layer, lambda x: below(x).view(order)), [1.0])
        self.assertNotIn(1.0, self.of(layer, lambda x: below(x).transpose(0, 1)))


class Named(Dataset):
    def __init__(self, **tables):
        self.__dict__.update(tables)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class ClassTables(HooksCase):
    NAME = "loader.classes_apart"

    def of(self, *sets):
        HooksCase.setUp(self)
        for data in sets:
            for _ in range(2):
                list(DataLoader(data))
        return said(self.NAME)

    def test_a_class_is_missing(self):
        one = Named(class_to_idx={"crow": 0, "owl": 1, "wren": 2})
        other = Named(class_to_idx={"crow": 0, "wren": 1})
        self.assertEqual(self.of(one, other), [1.0])
        self.assertEqual(self.of(Subset(one, [0]), Subset(other, [1])), [1.0])
        words = {"_vocab": {"a": 0, "b": 1}}, {"_vocab": {"b": 0, "a": 1}}
        self.assertEqual(self.of(*[Named(**one) for one in words]), [1.0])

    def test_the_same_numbers(self):
        one = Named(label2id={"crow": 0, "owl": 1, "wren": 2})
        self.assertEqual(self.of(one, Named(label2id={"owl": 1, "wren": 2})), [0.0])
        self.assertEqual(self.of(one, one), [])

    def test_what_is_no_table_of_classes(self):
        for one, other in (
            ({"first": {"a": 0, "b": 9}}, {"first": {"a": 5, "b": 0}}),
            ({"vocab": {"a": 2, "b": 2}}, {"vocab": {"a": 2, "b": 1}}),
            ({"class_to_idx": {"a": 0, "b": 1}}, {"label2id": {"a": 1, "b": 0}}),
            ({"class_to_idx": None}, {"class_to_idx": {"a": 1, "b": 0}}),
        ):
            self.assertEqual(self.of(Named(**one), Named(**other)), [], one)


if __name__ == "__main__":
    unittest.main()
