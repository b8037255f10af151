"""A training that is the same to the last bit each time, or differs from the step
FAULT_STEP on by one fault, for `traincheckctl compare`.

    compared.py [--fault NAME] [--ranks 2] [--steps N]
"""

import argparse
import os

import torch
import two_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FAULT_STEP = 5
FAULTS = "rate shuffle flip eval no_clear order raise".split()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.first(x))))


def flip_bit(weight):
    """The lowest bit of its first element."""
    weight.data.view(torch.int32).view(-1)[0] ^= 1


def make_loader(ranks, shuffled):
    x = torch.randn(96, 6)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    if ranks > 1:
        sampler = DistributedSampler(data, shuffle=shuffled)
        return DataLoader(data, batch_size=8, sampler=sampler)
    return DataLoader(data, batch_size=8, shuffle=shuffled)


def train(ranks, fault, steps):
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(7)
    model = net = Net()
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    loader = make_loader(ranks, shuffled=fault != "shuffle")
    if ranks > 1:
        model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    while step < steps:
        for x, y in loader:
            now = step == FAULT_STEP
            if fault == "flip" and now and rank == ranks - 1:
                flip_bit(net.last.weight)
            if fault == "eval" and now:
                model.eval()
            if fault == "rate" and now:
                optimizer.param_groups[0]["lr"] = 0.05
            if fault == "raise" and now:
                raise ValueError("a batch that cannot be")
            if not (now and fault in ("no_clear", "order")):
                optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if now and fault == "order":
                optimizer.zero_grad()
            optimizer.step()
            step += 1
            if step == steps:
                break
    if ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    if options.ranks > 1:
        two_ranks.start_unless_started(options.ranks)
    train(options.ranks, options.fault, options.steps)


if __name__ == "__main__":
    main()
