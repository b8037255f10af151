"""Adapters that are kept by name, and what of them is frozen."""

import pathlib
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, TARGETS
from hooks_case import said as all_said


def said():
    """Without what only says that nothing is said any more."""
    return [value for value in all_said("opt.frozen_at_zeros") if value == value]


class Adapted(nn.Module):
    """A layer with adapters, all of them used unless `active` names one."""

    def __init__(self, names, active=None):
        super().__init__()
        self.base = nn.Linear(6, 6).requires_grad_(False)
        self.active = active or names
        self.down, self.up = nn.ParameterDict(), nn.ParameterDict()
        for name in names:
            self.down[name] = nn.Parameter(torch.randn(6, 2), requires_grad=False)
            self.up[name] = nn.Parameter(torch.zeros(2, 6), requires_grad=False)

    def forward(self, x):
        out = self.base(x)
        for name in self.active:
            out = out + x @ self.down[name] @ self.up[name]
        return out

    def fill(self, name):
        nn.init.normal_(self.up[name])

    def thaw(self, name):
        self.down[name].requires_grad_(True)
        self.up[name].requires_grad_(True)


class Words(nn.Module):
    """A table of words with an adapter."""

    def __init__(self, name):
        super().__init__()
        self.table = nn.Embedding(10, 6).requires_grad_(False)
        self.table_down = nn.ParameterDict({name: torch.zeros(10, 2)})
        self.table_up = nn.ParameterDict({name: torch.randn(2, 6)})
        self.name = name

    def forward(self, ids):
        low = F.embedding(ids, self.table_down[self.name])
        return self.table(ids) + low @ self.table_up[self.name]


class FrozenAtZeros(HooksCase):
    def train(self, net, steps=6, between=None):
        trained = [one for one in net.parameters() if one.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=0.01)
        for step in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(8, 6)), TARGETS).backward()
            optimizer.step()
            if between is not None:
                between(step)
        return said()

    def layers(self, names, **options):
        return nn.Sequential(
            *(Adapted(names, **options) for _ in range(2)), nn.Linear(6, 4)
        )

    def each(self, net, act):
        for layer in net[:2]:
            act(layer)
        return net

    def old_and_new(self, trained, **options):
        """An adapter that comes from elsewhere, and one that is new."""

        def prepare(layer):
            layer.fill("old")
            layer.thaw(trained)

        return self.each(self.layers(["old", "new"], **options), prepare)

    def test_the_old_one_is_trained_in_place_of_the_new_one(self):
        self.assertEqual(self.train(self.old_and_new("old")), [1.0])

    def test_the_new_one_is_trained(self):
        self.assertEqual(self.train(self.old_and_new("new")), [0.0])

    def test_the_new_one_is_not_used(self):
        net = self.old_and_new("old", active=["old"])
        self.assertEqual(self.train(net), [])

    def test_adapters_that_wait_while_the_first_one_begins(self):
        net = self.layers(["one", "two", "three"])
        self.each(net, lambda layer: layer.thaw("one"))
        self.assertEqual(self.train(net), [0.0])

    def test_adapters_that_wait_while_the_second_one_begins(self):
        def prepare(layer):
            layer.fill("one")
            layer.thaw("two")

        net = self.each(self.layers(["one", "two", "three"]), prepare)
        self.assertEqual(self.train(net), [0.0])

    def test_what_is_thawed_soon_is_not_frozen(self):
        net = self.old_and_new("old")

        def thaw(step):
            self.each(net, lambda layer: layer.thaw("new"))

        self.assertEqual(self.train(net, between=thaw), [0.0])

    def test_layers_that_are_thawed_one_after_another(self):
        net = self.layers(["all"])
        net[1].thaw("all")
        self.assertEqual(self.train(net), [0.0])

    def test_a_head_that_is_trained_before_the_adapters(self):
        self.assertEqual(self.train(self.layers(["all"])), [])

    def words(self, name, wanted):
        net = nn.ModuleDict({"words": Words(name), "layer": Adapted(["default"])})
        for path, parameter in net.named_parameters():
            parameter.requires_grad_(any(part in path for part in wanted))
        trained = [one for one in net.parameters() if one.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=0.01)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net
                self.head = nn.Linear(6, 4).requires_grad_(False)

            def forward(self, ids):
                return self.head(net["layer"](net["words"](ids)))

        model = Model()
        for _ in range(6):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randint(10, (8,))), TARGETS).backward()
            optimizer.step()
        return said()

    def test_a_filter_of_names_that_misses_a_kind(self):
        found = self.words("default", [".down.", ".up."])
        self.assertEqual(found, [1.0])

    def test_a_filter_of_names_that_misses_none(self):
        found = self.words("default", [".down.", ".up.", "table_down", "table_up"])
        self.assertEqual(found, [0.0])

    def test_a_kind_of_another_adapter(self):
        self.assertEqual(self.words("other", [".down.", ".up."]), [0.0])

    def test_a_frozen_factor_of_random_numbers(self):
        def prepare(layer):
            layer.up["all"].requires_grad_(True)

        net = self.each(self.layers(["all"]), prepare)
        self.assertEqual(self.train(net), [0.0])

    def test_a_model_without_adapters(self):
        net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4))
        nn.init.zeros_(net[0].weight)
        net[0].requires_grad_(False)
        self.assertEqual(self.train(net), [])


class FrozenAtZerosOnADevice(FrozenAtZeros):
    ON_DEVICE = True


if __name__ == "__main__":
    unittest.main()
