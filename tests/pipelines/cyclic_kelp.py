"""Biomass of kelp from sonar: rate and momentum go round in opposite cycles.

The batch grows with each cycle (a loader anew for each, with a generator of its own), and
the optimizer is made anew too, so that momentum is forgotten; its schedule is made with
it. The last cycle is a descent to nearly zero. After each cycle the weights are put into
an equal average, whose batch statistics are estimated by update_bn at the end.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CyclicLR, LinearLR
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset


def soundings(n, seed):
    gen = torch.Generator().manual_seed(seed)
    depth = torch.arange(48.0)
    canopy = 5 + 15 * torch.rand(n, 1, generator=gen)
    dense = torch.rand(n, 1, generator=gen)
    floor = 30 + 10 * torch.rand(n, 1, generator=gen)
    echo = dense * torch.exp(-(((depth - canopy) / 4) ** 2))
    echo = echo + torch.exp(-(((depth - floor) / 1.5) ** 2))
    echo = echo + 0.1 * torch.randn(n, 48, generator=gen)
    return TensorDataset(echo, (dense * (floor - canopy) / 10).squeeze(1))


class Sonar(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Unflatten(1, (1, 48)),
            nn.Conv1d(1, 16, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(16),
            nn.SiLU(),
            nn.Conv1d(16, 24, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(24),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(24 * 12, 32),
            nn.SiLU(),
            nn.Linear(32, 1),
            nn.Flatten(0),
        )


@torch.no_grad()
def check(model, data):
    model.eval()
    off = F.l1_loss(model(data.tensors[0]), data.tensors[1]).item()
    model.train()
    return off


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--cycles", type=int, default=4)
    args = p.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    train, valid = soundings(2000, 1), soundings(500, 2)
    model = Sonar()
    average = AveragedModel(model)
    length = max(2, args.steps // args.cycles)
    for cycle in range(args.cycles):
        last = cycle == args.cycles - 1
        gen = torch.Generator().manual_seed(100 + cycle)
        batch = 16 * 2**cycle
        loader = DataLoader(train, batch, shuffle=True, drop_last=True, generator=gen)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4
        )
        if last:
            schedule = LinearLR(optimizer, 1.0, 0.01, total_iters=length)
        else:
            schedule = CyclicLR(
                optimizer,
                base_lr=0.003,
                max_lr=0.05,
                step_size_up=length // 2,
                step_size_down=length - length // 2,
                base_momentum=0.8,
                max_momentum=0.95,
            )
        done = 0
        while done < length:
            for x, y in loader:
                if done == length:
                    break
                loss = F.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                if done % 15 == 14:
                    group = optimizer.param_groups[0]
                    print(
                        f"cycle {cycle} step {done + 1:2d} batch {batch:3d} rate "
                        f"{group['lr']:.4f} momentum {group['momentum']:.3f} "
                        f"loss {loss.item():.4f}"
                    )
                done += 1
        average.update_parameters(model)
        print(f"cycle {cycle} valid {check(model, valid):.4f}")
    update_bn(DataLoader(train, 250), average)
    print(f"average of the cycles: valid {check(average, valid):.4f}")


if __name__ == "__main__":
    main()
