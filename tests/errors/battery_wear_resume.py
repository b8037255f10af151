"""Battery wear (capacity fade) from charge curves.

The cluster queue only gives short slots, so a job trains up to the end of its
slot, writes a checkpoint, and the next job continues from it.
"""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


def cells(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, 40)
    wear = torch.rand(n, 1, generator=g)
    resist = 0.05 + 0.1 * torch.rand(n, 1, generator=g) + 0.08 * wear
    knee = 0.75 - 0.35 * wear + 0.004 * torch.randn(n, 1, generator=g)
    curve = 3.4 + 0.4 * t + 0.5 * torch.sigmoid((t - knee) * 14) + resist
    curve = curve + 0.015 * torch.randn(n, 40, generator=g)
    return (curve - 3.9) / 0.3, (wear.squeeze(1) - 0.5) / 0.29


class WearNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 16, 5, padding=2),
            nn.SiLU(),
            nn.Conv1d(16, 16, 5, stride=2, padding=2),
            nn.SiLU(),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(16 * 20, 64), nn.SiLU(), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.head(self.conv(x.unsqueeze(1))).squeeze(1)


def make_schedule(optimizer, steps, warmup):
    up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=warmup)
    down = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, steps - warmup, eta_min=1e-5
    )
    return torch.optim.lr_scheduler.SequentialLR(
        optimizer, [up, down], milestones=[warmup]
    )


class Job:
    def __init__(self, args, data):
        self.args = args
        self.x, self.y = data
        torch.manual_seed(args.seed)
        self.model = WearNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = make_schedule(
            self.optimizer, args.steps, warmup=args.steps // 10
        )
        self.step = 0

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "step": self.step,
            },
            path,
        )

    def load(self, path):
        ckpt = torch.load(path)
        self.model.load_state_dict(ckpt["model"])
        if self.args.fixed:
            self.optimizer.load_state_dict(ckpt["optimizer"])
            self.scheduler.load_state_dict(ckpt["scheduler"])
        self.step = ckpt["step"]
        print(f"continuing at step {self.step}")

    def batch(self):
        g = torch.Generator().manual_seed(1000 + self.step)
        rows = torch.randint(0, len(self.x), (self.args.batch,), generator=g)
        return self.x[rows], self.y[rows]

    def train(self, until):
        while self.step < until:
            x, y = self.batch()
            loss = F.smooth_l1_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.step % 30 == 0:
                print(f"step {self.step:4d}  loss {loss.item():.5f}")

    @torch.no_grad()
    def error(self, x, y):
        return (self.model(x) - y).abs().mean().item() * 0.29


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=21)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    data, test = cells(1200, 1), cells(500, 2)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "slot.pt")
        first = Job(args, data)
        first.train(until=args.steps * 3 // 5)
        print(f"end of slot, test error {first.error(*test):.4f}")
        first.save(path)

        second = Job(args, data)
        second.load(path)
        lr = [job.optimizer.param_groups[0]["lr"] for job in (first, second)]
        moments = [len(job.optimizer.state_dict()["state"]) for job in (first, second)]
        second.train(until=args.steps)

    print(f"test error {second.error(*test):.4f} (capacity fraction)")

    if args.prove:
        last = second.optimizer.param_groups[0]["lr"]
        print(
            f"lr at the end of the slot {lr[0]:.6f}, at the start of the next {lr[1]:.6f}, "
            f"at the end {last:.6f}; parameters with moments {moments[0]} and {moments[1]}"
        )
        print(
            "fault shows:",
            "yes" if lr[0] != lr[1] or moments[0] != moments[1] else "no",
        )


if __name__ == "__main__":
    main()
