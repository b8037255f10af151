"""What the tests of the hooks share: hooks installed into a stand-in core."""

import gc
import random
import unittest

import core_for_testing
import torch
from torch import nn
from torch.nn import functional as F

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
    # Is this process's memory a device's, whose values come later?
    ON_DEVICE = False
    # Is the source of the test looked at where an optimizer steps first? That takes
    # half of the time of a short training.
    READS_SOURCE = False

    @classmethod
    def setUpClass(cls):
        # The modules are not looked through again before each test: 75 ms of torch's.
        gc.collect()
        gc.freeze()

    def setUp(self):
        torch.manual_seed(0)
        random.seed(0)
        gc.collect()
        CORE.clear()
        CORE.device = self.ON_DEVICE
        WATCH.limits.clear()
        WATCH.reset()
        WATCH.source_looks.are_over = not self.READS_SOURCE
        graph_nodes._packed = False
        batch_tensors._on_a_device = False

    def backward(self, loss):
        """Until what the graph says of it is known."""
        for again in (True, False) if self.ON_DEVICE else (False,):
            loss.backward(retain_graph=again)

    def tearDown(self):
        self.assertEqual(CORE.raised, [])


TARGETS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])


def said(name):
    """The values that were written, the last ones at the end."""
    return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]


def last(name):
    return (said(name) or [None])[-1]


class GraphCase(HooksCase):
    NAME: str

    def of(self, loss):
        """Values of the scalar that a backward of the loss wrote."""
        HooksCase.setUp(self)  # only the first backwards are looked at
        self.backward(loss)
        return said(self.NAME)


class SignsCase(HooksCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.net = nn.Linear(5, 4)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def loss(self, net=None):
        return F.cross_entropy((net or self.net)(torch.randn(8, 5)), TARGETS)

    def step(self, net=None, optimizer=None):
        optimizer = optimizer or self.optimizer
        optimizer.zero_grad()
        self.loss(net).backward()
        optimizer.step()


class KeepCase(HooksCase):
    """States of a small model are kept between its steps, which one line makes."""

    KEPT: str  # the scalar that says what of

    def setUp(self):
        super().setUp()
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.step()

    def step(self):
        train_step(self.model, self.optimizer)

    def said(self, name=None):
        self.step()
        self.step()  # only what changes is written
        return [one for one in said(name or self.KEPT) if one == one]
