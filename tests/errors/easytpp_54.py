"""A neural point process predicts when and what the next event of a user will be.

A runner with a configuration of its data loaders trains it.
After EasyTemporalPointProcess, issue 54.
"""

import argparse
from dataclasses import dataclass, field

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

KINDS, LENGTH, HABITS = 6, 20, 4


@dataclass
class LoaderConfig:
    batch_size: int = 32
    shuffle: bool = True
    ordered: tuple = field(default=("train", "valid"))

    def options(self, split):
        shuffle = self.shuffle and split not in self.ordered
        return {"batch_size": self.batch_size, "shuffle": shuffle}


class PointProcess(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.kind = nn.Embedding(KINDS, width)
        self.gap = nn.Linear(1, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.next_kind = nn.Linear(width, KINDS)
        self.next_rate = nn.Linear(width, 1)

    def forward(self, kinds, gaps):
        hidden = self.kind(kinds) + self.gap(gaps.log1p()[..., None])
        state = self.memory(hidden)[0]
        return self.next_kind(state), self.next_rate(state).squeeze(-1)

    def loss(self, kinds, gaps):
        """The negative log likelihood of the events after the first."""
        logits, log_rate = self(kinds[:, :-1], gaps[:, :-1])
        kind = F.cross_entropy(logits.flatten(0, 1), kinds[:, 1:].flatten())
        time = (log_rate.exp() * gaps[:, 1:] - log_rate).mean()
        return kind + time


def logs(users, seed):
    """Each user has a habit: what follows what, and how fast. A log for each habit."""
    generator = torch.Generator().manual_seed(seed)
    habit = torch.arange(HABITS).repeat_interleave(users // HABITS)
    kinds = torch.randint(KINDS, (len(habit), LENGTH), generator=generator)
    for place in range(1, LENGTH):
        stay = torch.rand(len(habit), generator=generator) < 0.85
        after = (kinds[:, place - 1] + habit + 1) % KINDS
        kinds[:, place] = torch.where(stay, after, kinds[:, place])
    rate = 0.5 * 2.0 ** habit[:, None] * (1 + 0.3 * (kinds % 2))
    waits = -torch.rand(kinds.shape, generator=generator).clamp_min(1e-6).log()
    return TensorDataset(kinds, waits / rate)


class Runner:
    def __init__(self, config, args):
        self.args = args
        self.train_loader = DataLoader(logs(640, args.seed), **config.options("train"))
        self.valid_loader = DataLoader(
            logs(160, args.seed + 1), **config.options("valid")
        )
        self.model = PointProcess()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.seen, self.step = [], 0

    def epoch(self):
        self.model.train()
        self.seen.append([])
        for kinds, gaps in self.train_loader:
            loss = self.model.loss(kinds, gaps)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            print(f"step {self.step} loss {loss.item():.4f}", flush=True)
            self.seen[-1].append(gaps.sum().item())
            self.step += 1

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [self.model.loss(kinds, gaps) for kinds, gaps in self.valid_loader]
        return torch.stack(losses).mean().item()

    def run(self):
        for epoch in range(self.args.epochs):
            self.epoch()
            print(f"epoch {epoch} validation {self.validate():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    config = LoaderConfig(ordered=("valid",)) if args.fixed else LoaderConfig()
    runner = Runner(config, args)
    runner.run()
    if args.prove:
        same = all(order == runner.seen[0] for order in runner.seen)
        print("all epochs have the same batches in the same order:", same)
        print("fault shows:", "yes" if same else "no", flush=True)


if __name__ == "__main__":
    main()
