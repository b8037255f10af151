"""Ties of weights that a load or new memory has cut."""

import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, WATCH, said as scalars
from _traincheck import naming


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


class Ties(HooksCase):
    def train(self, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.tensor([1])).sum().backward()
            optimizer.step()
        said = scalars("ties_lost")
        CORE.log.clear()
        return said

    def apart(self):
        model = Tied()
        model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
        return model

    def test_of_a_state_that_is_loaded(self):
        state = Tied().state_dict()
        for model, lost in ((Tied(), [0.0]), (self.apart(), [1.0])):
            model.load_state_dict(state)
            self.assertEqual(self.train(model), lost)

    def test_tied_again_before_the_first_step(self):
        model = self.apart()
        model.load_state_dict(Tied().state_dict())
        model.head.weight = model.embed.weight
        self.assertEqual(self.train(model), [0.0])

    def test_of_a_model_that_gets_memory(self):
        with torch.device("meta"):
            model = Tied()
        model.to_empty(device="cpu")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        tied = model.head.weight is model.embed.weight
        self.assertEqual(self.train(model), [0.0 if tied else 1.0])

    def test_models_of_others_are_looked_at_once(self):
        kept = Tied()
        kept.load_state_dict(Tied().state_dict())  # and nobody trains it
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        looks = []
        walk = naming.walk
        self.addCleanup(setattr, naming, "walk", walk)
        naming.walk = lambda module: looks.append(module is kept) or walk(module)
        for _ in range(3):
            WATCH.ties.lost(optimizer)
        self.assertEqual(looks.count(True), 1)

    def test_nothing_is_said_without_ties(self):
        model = self.apart()
        model.load_state_dict(self.apart().state_dict())
        self.assertEqual(self.train(model), [])


if __name__ == "__main__":
    unittest.main()
