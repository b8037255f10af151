"""Fine-tuning with two rates: a careful one for the backbone, ten times that for the head.

Pictures are made up: stripes of four directions under noise. The backbone comes from
a file of an earlier task. deepspeedai/DeepSpeed#8171.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class WarmupLR:
    """Linear warm-up to a maximum that is then kept.

    The maximum is one number, a list with one for each group, or, if it is not given,
    what the optimizer was made with.
    """

    def __init__(self, optimizer, warmup_steps, max_lr=None, min_lr=0.0, fixed=True):
        self.optimizer = optimizer
        self.warmup_steps = warmup_steps
        if max_lr is None:
            inherited = [group["lr"] for group in optimizer.param_groups]
            max_lr = inherited if fixed else inherited[0]
        self.max_lrs = self.per_group(max_lr, "max_lr")
        self.min_lrs = self.per_group(min_lr, "min_lr")
        self.last_step = -1
        self.step()

    def per_group(self, value, name):
        groups = len(self.optimizer.param_groups)
        if isinstance(value, (list, tuple)):
            if len(value) != groups:
                raise ValueError(f"expected {groups} values for {name}")
            return list(value)
        return [value] * groups

    def get_lr(self):
        done = min(1.0, (self.last_step + 1) / self.warmup_steps)
        return [
            low + done * (top - low) for low, top in zip(self.min_lrs, self.max_lrs)
        ]

    def step(self):
        self.last_step += 1
        for group, rate in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = rate

    def state_dict(self):
        return {"last_step": self.last_step}

    def load_state_dict(self, state):
        self.last_step = state["last_step"]


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.GELU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.GroupNorm(4, width),
            nn.GELU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GELU(),
        )

    def forward(self, x):
        return self.layers(x).mean((2, 3))


class Classifier(nn.Module):
    def __init__(self, classes=4, width=16):
        super().__init__()
        self.backbone = Backbone(width)
        self.head = nn.Sequential(
            nn.LayerNorm(2 * width), nn.Linear(2 * width, classes)
        )

    def forward(self, x):
        return self.head(self.backbone(x))


def stripes(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    angle = labels * torch.pi / 4
    phase = 6 * torch.rand(count, 1, 1, generator=generator)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    noise = 0.8 * torch.randn(count, 16, 16, generator=generator)
    return TensorDataset((torch.sin(1.2 * along + phase) + noise)[:, None], labels)


def earlier_task(folder):
    """Stands in for a download: a backbone with filters that were trained elsewhere."""
    path = os.path.join(folder, "backbone.pt")
    with torch.random.fork_rng():
        torch.manual_seed(21)
        torch.save(Backbone().state_dict(), path)
    return path


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(stripes(640, 1), batch_size=32, shuffle=True)
    valid = DataLoader(stripes(256, 2), batch_size=64)
    model = Classifier()
    rates = {"backbone": 5e-4, "head": 5e-3}
    groups = [
        {"params": getattr(model, name).parameters(), "lr": rate, "name": name}
        for name, rate in rates.items()
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    schedule = WarmupLR(optimizer, warmup_steps=15, fixed=options.fixed)
    with tempfile.TemporaryDirectory() as folder:
        model.backbone.load_state_dict(torch.load(earlier_task(folder)))
        step = 0
        while step < options.steps:
            for images, labels in train:
                if step == options.steps:
                    break
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                if step % 10 == 0:
                    print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
            print(f"accuracy {accuracy(model, valid):.3f}", flush=True)
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
            }
            torch.save(state, os.path.join(folder, "last.pt"))
    if options.prove:
        schedule.last_step = schedule.warmup_steps
        reached = dict(zip(rates, schedule.get_lr()))
        print(f"wanted {rates}, reached {reached}", flush=True)
        print("fault shows:", "yes" if reached != rates else "no")


if __name__ == "__main__":
    main()
