"""As built_in.py: mistakes in losses, in steps, in what is frozen and in the order
of the data.

    built_in_steps.py [--right] [CASE...]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS = 8
CLASSES = 4


class Classifier(nn.Module):
    def __init__(self, last: nn.Module | None = None, out: int = CLASSES):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, out)
        self.last = last or nn.Identity()

    def forward(self, x):
        return self.last(self.head(self.body(x)))


def samples(count: int):
    x = torch.randn(count, 8)
    return TensorDataset(x, x[:, :CLASSES].argmax(1))


def train(model, loss, optimizer=None, steps: int = STEPS, after_step=None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        x, y = samples(16).tensors
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        if after_step is not None:
            after_step()


def softmax_twice(right: bool) -> None:
    """cross_entropy of probabilities."""
    train(Classifier(None if right else nn.Softmax(dim=1)), F.cross_entropy)


def sigmoid_twice(right: bool) -> None:
    """A loss that takes scores is given what a sigmoid returned."""

    def loss(scores, y):
        given = scores if right else scores.sigmoid()
        return F.binary_cross_entropy_with_logits(given, F.one_hot(y, CLASSES).float())

    train(Classifier(), loss)


def nll_of_scores(right: bool) -> None:
    """nll_loss without log_softmax."""
    train(Classifier(nn.LogSoftmax(dim=1) if right else None), F.nll_loss)


def each_with_each(right: bool) -> None:
    """Predictions [n, 1] minus targets [n]."""

    def loss(prediction, y):
        return (
            (prediction - (y.float()[:, None] if right else y.float())).square().mean()
        )

    train(Classifier(out=1), loss)


def unequal_means(right: bool) -> None:
    """Accumulated means, each over another number of targets."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for count in (16, 16) if right else (24, 8):
            x, y = samples(count).tensors
            (F.cross_entropy(model(x), y) / 2).backward()
        optimizer.step()


def never_cleared(right: bool) -> None:
    """Nobody calls zero_grad."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y = samples(16).tensors
        if right:
            optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def clipped_after_the_step(right: bool) -> None:
    """Gradients are clipped when the optimizer has used them."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16).tensors
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if right:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not right:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def counter_in_bfloat16(right: bool) -> None:
    """The state of the optimizer was made in bfloat16, its counter as well."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(model, F.cross_entropy, optimizer, 2)
    if not right:
        for state in optimizer.state.values():
            state["step"] = state["step"].to(torch.bfloat16)
    train(model, F.cross_entropy, optimizer, 3)


def schedule_that_ended(right: bool) -> None:
    """The schedule is over long before the training is."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=1.0, end_factor=0.0, total_iters=16 if right else 4
    )
    train(model, F.cross_entropy, optimizer, 16, scheduler.step)


def frozen_that_moves(right: bool) -> None:
    """A part is frozen, its gradients stay zeros, and momentum goes on."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(STEPS):
        if number == 4:
            model.body.requires_grad_(False)
        x, y = samples(16).tensors
        optimizer.zero_grad(set_to_none=right)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def frozen_in_training(right: bool) -> None:
    """After an evaluation the frozen part is put into training mode."""
    model = Classifier()
    model.body.requires_grad_(False)
    model.body.eval()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05)
    train(model, F.cross_entropy, optimizer, 4)
    model.eval()
    with torch.no_grad():
        model(samples(16).tensors[0])
    model.train()
    if right:
        model.body.eval()
    train(model, F.cross_entropy, optimizer, 4)


def one_order(right: bool) -> None:
    """The sampler draws the same order in each epoch."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = samples(64)
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=1, rank=0)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(3):
        if right:
            sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


CASES = (
    softmax_twice,
    sigmoid_twice,
    nll_of_scores,
    each_with_each,
    unequal_means,
    never_cleared,
    clipped_after_the_step,
    counter_in_bfloat16,
    schedule_that_ended,
    frozen_that_moves,
    frozen_in_training,
    one_order,
)


def main() -> None:
    cases = {case.__name__: case for case in CASES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--right", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for name in arguments.cases or cases:
        cases[name](arguments.right)


if __name__ == "__main__":
    main()
