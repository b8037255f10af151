"""Ranks that average their gradients by hand, and wait for each other.

    stalls.py CASE [--ranks N]

order    after 25 steps the last rank takes two collectives in the other order
shape    ... gives a tensor of another shape: its transport ends the process
missing  ... leaves out to average, and trains on
late     it comes a minute late to its first collective, then all goes well
busy     after 25 steps it evaluates alone for 15 s while the others wait
"""

import argparse
import datetime
import sys
import time

import two_ranks

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("case")
parser.add_argument("--ranks", type=int, default=2)
arguments = parser.parse_args()

if __name__ == "__main__":
    two_ranks.start_unless_started(arguments.ranks)

import torch
import torch.distributed as dist
from torch import nn

STEPS = 30
ODD_STEP = 25
# Behind the moment at which it is to be said, for a machine that is busy.
PATIENCE = datetime.timedelta(seconds=35)


def average(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def tell_loss(loss: torch.Tensor) -> None:
    """The first rank's loss is what all of them log."""
    dist.broadcast(loss, 0)


def evaluate(model: nn.Module, rows: torch.Tensor, seconds: float) -> None:
    end = time.monotonic() + seconds
    model.eval()
    with torch.no_grad():
        while time.monotonic() < end:
            model(rows)
            time.sleep(0.2)
    model.train()


def healthy(model: nn.Module, loss: torch.Tensor, rows: torch.Tensor) -> None:
    average(model)
    tell_loss(loss)


def order(model: nn.Module, loss: torch.Tensor, rows: torch.Tensor) -> None:
    tell_loss(loss)
    average(model)


def shape(model: nn.Module, loss: torch.Tensor, rows: torch.Tensor) -> None:
    dist.all_reduce(torch.ones(3))
    tell_loss(loss)


def missing(model: nn.Module, loss: torch.Tensor, rows: torch.Tensor) -> None:
    tell_loss(loss)


def late(model: nn.Module, loss: torch.Tensor, rows: torch.Tensor) -> None:
    time.sleep(66)
    healthy(model, loss, rows)


def busy(model: nn.Module, loss: torch.Tensor, rows: torch.Tensor) -> None:
    evaluate(model, rows, 15)
    healthy(model, loss, rows)


CASES = {case.__name__: case for case in (order, shape, missing, late, busy)}


def train(case: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    last = dist.get_rank() == dist.get_world_size() - 1
    odd_step = 0 if case == "late" else ODD_STEP
    for step in range(STEPS):
        rows = torch.randn(12, 6, generator=generator)
        optimizer.zero_grad()
        loss = model(rows).square().mean()
        loss.backward()
        share = CASES[case] if last and step == odd_step else healthy
        share(model, loss.detach(), rows)
        optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    patience = datetime.timedelta(minutes=5) if arguments.case == "late" else PATIENCE
    dist.init_process_group("gloo", timeout=patience)
    try:
        train(arguments.case)
    except RuntimeError as hung:
        print(f"rank {dist.get_rank()}: {hung}", file=sys.stderr)
        return
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
