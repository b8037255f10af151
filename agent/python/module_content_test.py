"""Classes of the user's whose parameters() and the like are not torch's."""

import pathlib
import sys
import unittest

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import HooksCase, said
from _traincheck import module_content


class Learner(nn.Module):
    """As of meta-learning: its weights are a list, which parameters() returns."""

    def __init__(self):
        super().__init__()
        self.vars = nn.ParameterList([nn.Parameter(torch.ones(4, 3))])
        self.norm = nn.BatchNorm1d(4)
        self.asked = 0

    def forward(self, x):
        return self.norm(x @ self.vars[0].t())

    def parameters(self):
        self.asked += 1
        return self.vars

    def named_parameters(self, only=None):
        self.asked += 1
        return []

    def named_buffers(self, only=None):
        self.asked += 1
        return None

    def modules(self):
        self.asked += 1
        return []


class ModuleContent(HooksCase):
    def test_what_torch_sees(self):
        learner = Learner()
        names = ["vars.0", "norm.weight", "norm.bias"]
        parameters = list(module_content.named_parameters_in(learner))
        self.assertEqual([name for name, _ in parameters], names)
        self.assertEqual(len(list(module_content.parameters_in(learner))), 3)
        self.assertEqual(len(list(module_content.named_buffers_in(learner))), 3)
        self.assertEqual(len(list(module_content.modules_in(learner))), 3)
        self.assertEqual(learner.asked, 0)

    def test_a_training_calls_none_of_them(self):
        learner = Learner()
        optimizer = torch.optim.Adam([*learner.vars], lr=0.1)
        for _ in range(3):
            for x in torch.randn(3, 8, 3):
                optimizer.zero_grad()
                learner(x).square().sum().backward()
                optimizer.step()
            learner.eval()
            with torch.no_grad():
                learner(torch.randn(8, 3))
            learner.train()
        self.assertEqual(learner.asked, 0)
        self.assertTrue(said("lr"))  # something was written, and nothing was raised


if __name__ == "__main__":
    unittest.main()
