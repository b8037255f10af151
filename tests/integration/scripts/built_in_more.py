"""As built_in_signs.py: mistakes in what is computed again, loaded, drawn by workers
or stepped too seldom.

    built_in_more.py [--right] [CASE...]
"""

import copy
import functools
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from built_in_signs import CLASSES, STEPS, Classifier, main, samples, train


def drawn_again(right: bool) -> None:
    """Nobody puts the generators back, and dropout draws a second time."""

    class Checkpointed(Classifier):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            region = self.body if right else nn.Sequential(self.body, self.drop)
            x = checkpoint(region, x, use_reentrant=False, preserve_rng_state=False)
            return self.head(torch.relu(self.drop(x) if right else x))

    train(Checkpointed())


def counted_again(right: bool) -> None:
    """A region counts what it is given, once more when it is computed again."""

    class Counting(Classifier):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(()))

        def region(self, x):
            if not right:
                self.rows += len(x)
            return torch.relu(self.body(x))

        def forward(self, x):
            if right:
                self.rows += len(x)
            return self.head(checkpoint(self.region, x, use_reentrant=False))

    train(Counting())


class Tied(nn.Module):
    """Both layers have one weight."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)
        self.tie()

    def tie(self):
        self.head.weight = self.body.weight

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def tied_no_more(right: bool) -> None:
    """Each layer gets memory of its own before the weights are loaded."""
    state = Tied().state_dict()
    with torch.device("meta"):
        model = Tied()
    for layer in model.children():
        layer.to_empty(device="cpu")
    if right:
        model.tie()
    model.load_state_dict(state)
    train(model)


def loaded_and_changed(right: bool) -> None:
    """A hook that runs after each load makes the head anew."""
    model = Classifier()
    train(model, steps=2)
    if not right:
        model.register_load_state_dict_post_hook(
            lambda module, names: module.head.reset_parameters()
        )
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    train(model, steps=2)


def average_left_in(right: bool) -> None:
    """An average is put into the model for an evaluation, and stays there."""
    model = Classifier()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train(model, optimizer=optimizer)
    own = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, mean in zip(model.parameters(), average.parameters()):
            parameter.copy_(mean)
        model(samples(16)[0])
        for parameter, value in zip(model.parameters(), own.parameters()):
            if right:
                parameter.copy_(value)
    train(model, optimizer=optimizer)


def norm_that_decays(right: bool) -> None:
    """Biases are spared the decay, the norm's scale is forgotten."""
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, CLASSES))
    spared = [model[0].bias, model[1].bias, model[2].bias]
    decayed = [model[0].weight, model[2].weight]
    (spared if right else decayed).append(model[1].weight)
    groups = [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]
    train(model, optimizer=torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1))


def schedule_of_the_former(right: bool) -> None:
    """The optimizer is made anew, and its scheduler is that of the former one."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    if not right:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2 * STEPS):
        train(model, optimizer=optimizer, steps=1)
        scheduler.step()


def stepped_twice(right: bool) -> None:
    """The scheduler is stepped by the step and by the loop."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 100)
    for _ in range(2 * STEPS):
        train(model, optimizer=optimizer, steps=1)
        for _ in range(1 if right else 2):
            scheduler.step()


def steps_that_wait(right: bool) -> None:
    """The number of micro-batches was meant to be that of samples."""
    model = nn.Linear(8, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = samples(4)
    micro_batches = 8 if right else 600
    for number in range(1, 602 if right else 1202):
        (F.cross_entropy(model(x), y) / micro_batches).backward()
        if number == 1 or number % micro_batches == 0:
            optimizer.step()
            optimizer.zero_grad()


def layers_in_full_precision(right: bool) -> None:
    """Layers are called in a way of their own, which leaves the region."""

    def full_precision(call, x):
        with torch.autocast("cpu", enabled=False):
            return call(x.float())

    convolution, head = nn.Conv2d(1, 4, 3), nn.Linear(64, CLASSES)
    model = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), head)
    if not right:
        for layer in (convolution, head):
            layer.forward = functools.partial(full_precision, layer.forward)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(F.pad(x, (0, 28)).view(16, 1, 6, 6))
        F.cross_entropy(scores.float(), y).backward()
        optimizer.step()


class Drawn(Dataset):
    """Samples of random numbers, of torch's generator and of python's."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.randn(8) + random.random()
        return x, x[:CLASSES].argmax()


def _train_with(worker_init_fn) -> None:
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(
        Drawn(), batch_size=8, num_workers=2, worker_init_fn=worker_init_fn
    )
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def one_seed_of_torch(right: bool) -> None:
    """All workers are seeded alike, torch's generator among them."""
    _train_with(lambda worker: torch.manual_seed(7 + worker if right else 7))


def one_seed_of_python(right: bool) -> None:
    """All workers are seeded alike, python's generator among them."""
    _train_with(lambda worker: random.seed(7 + worker if right else 7))


CASES = (
    tied_no_more,
    loaded_and_changed,
    average_left_in,
    norm_that_decays,
    schedule_of_the_former,
    stepped_twice,
    steps_that_wait,
    layers_in_full_precision,
    one_seed_of_torch,
    one_seed_of_python,
    # Of regions that are computed again: what they keep hides other graphs.
    counted_again,
    drawn_again,
)


if __name__ == "__main__":
    main(CASES)
