"""A draft head that guesses a language model's hidden states; the run is resumed.

The first part wrote no state of its schedule, as an older version did; the second part
makes the schedule anew at the place where the first one stopped.
vllm-project/speculators#900.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 20  # of an epoch


class DraftHead(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.mix = nn.Linear(2 * width, 2 * width)
        self.block = nn.Sequential(
            nn.LayerNorm(2 * width), nn.Linear(2 * width, 4 * width), nn.SiLU()
        )
        self.out = nn.Linear(4 * width, width)

    def forward(self, hidden, token):
        return self.out(self.block(self.mix(torch.cat([hidden, token], -1))))


def states(count, seed, width=32):
    generator = torch.Generator().manual_seed(8)
    wander = torch.randn(2 * width, width, generator=generator) / (2 * width) ** 0.5
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, width, generator=generator)
    token = torch.randn(count, width, generator=generator)
    after = torch.tanh(2 * torch.cat([hidden, token], -1) @ wander)
    return hidden, token, after


def factor(step, warmup, total):
    if step < warmup:
        return step / warmup
    return max(0.0, (total - step) / (total - warmup))


class Trainer:
    def __init__(self, folder, steps, by_global_step):
        self.folder, self.steps = folder, steps
        self.by_global_step = by_global_step
        self.model = DraftHead()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-3)
        self.epoch = self.global_step = 0
        self.path = os.path.join(folder, "checkpoint.pt")
        self.resumed = os.path.exists(self.path)
        if self.resumed:
            self.load()
        self.schedule = self.make_schedule()
        self.gaps = []

    def make_schedule(self):
        warmup = self.steps // 6
        last = -1
        if self.resumed:
            last = self.global_step - 1 if self.by_global_step else self.epoch - 1
        return torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda k: factor(k, warmup, self.steps), last_epoch=last
        )

    def save(self):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "epoch": self.epoch,
                "global_step": self.global_step,
            },
            self.path,
        )

    def load(self):
        file = torch.load(self.path)
        self.model.load_state_dict(file["model"])
        self.optimizer.load_state_dict(file["optimizer"])
        self.epoch, self.global_step = file["epoch"], file["global_step"]

    def run(self, data, until):
        while self.global_step < until:
            generator = torch.Generator().manual_seed(self.epoch)
            loader = DataLoader(data, 64, shuffle=True, generator=generator)
            for hidden, token, after in loader:
                if self.global_step == until:
                    return
                loss = F.smooth_l1_loss(self.model(hidden, token), after)
                self.optimizer.zero_grad()
                loss.backward()
                rate = self.optimizer.param_groups[0]["lr"]
                wanted = 4e-3 * factor(self.global_step, self.steps // 6, self.steps)
                self.gaps.append(abs(rate - wanted))
                self.optimizer.step()
                self.schedule.step()
                if self.global_step % 10 == 0:
                    line = f"step {self.global_step} loss {loss.item():.4f} rate {rate:.5f}"
                    print(line, flush=True)
                self.global_step += 1
            self.epoch += 1


@torch.no_grad()
def validate(model, hidden, token, after):
    model.eval()
    off = F.smooth_l1_loss(model(hidden, token), after).item()
    model.train()
    return off


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(*states(64 * BATCHES, 1))
    valid = states(500, 2)
    with tempfile.TemporaryDirectory() as folder:
        first = Trainer(folder, options.steps, options.fixed)
        first.run(data, options.steps // 2)
        first.save()
        print(f"validation {validate(first.model, *valid):.5f}", flush=True)
        second = Trainer(folder, options.steps, options.fixed)
        second.run(data, options.steps)
        print(f"validation {validate(second.model, *valid):.5f}", flush=True)
    if options.prove:
        gap = max(first.gaps + second.gaps)
        print(f"the rate is off by up to {gap:.6f}", flush=True)
        print("fault shows:", "yes" if gap > 1e-6 else "no", flush=True)


if __name__ == "__main__":
    main()
