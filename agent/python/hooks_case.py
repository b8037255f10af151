"""What the tests of the hooks share: hooks installed into a stand-in core."""

import gc
import unittest

import core_for_testing
import torch
from torch import nn

core_for_testing.hooks_package()
from _traincheck import batch_tensors
from _traincheck import graph_nodes
from _traincheck import install

CORE = core_for_testing.RecordingCore()
WATCH = install.install(CORE)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


PARAMS = [
    "Net.body.weight",
    "Net.body.bias",
    "Net.norm.weight",
    "Net.norm.bias",
    "Net.head.weight",
    "Net.head.bias",
]


def train_step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()


class HooksCase(unittest.TestCase):
    def setUp(self):
        gc.collect()
        CORE.clear()
        WATCH.limits.clear()
        WATCH.reset()
        graph_nodes._packed = False
        batch_tensors._on_a_device = False

    def tearDown(self):
        self.assertEqual(CORE.raised, [])
