"""Warns of disruptions in a tokamak. A run is cut off in the middle of an epoch and goes
on from its checkpoint in new objects; its losses are those of a run without a break.

    python tokamak_resume.py
"""

import argparse
import io

import torch
from torch import nn
import torch.nn.functional as F

CHANNELS, LENGTH = 5, 40


def shots(count, seed):
    """Currents and fields over time; some shots lock a mode before they end."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, LENGTH, CHANNELS, generator=generator)
    signal = noise.cumsum(1) * 0.15 + 0.3 * noise
    bad = torch.rand(count, generator=generator) < 0.4
    begin = torch.randint(8, 30, (count, 1), generator=generator)
    time = torch.arange(LENGTH)
    growth = (0.08 * (time - begin)).clamp_min(0) * bad[:, None]
    signal[..., 1] += growth * torch.sin(0.9 * time)
    signal[..., 3] -= 0.4 * growth
    return signal, bad.float()


class Warner(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm = nn.BatchNorm1d(CHANNELS)
        self.gru = nn.GRU(CHANNELS, width, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.out = nn.Linear(2 * width, 1)

    def forward(self, signal):
        hidden, last = self.gru(self.norm(signal.transpose(1, 2)).transpose(1, 2))
        pooled = torch.cat([hidden.amax(1), last[0]], 1)
        return self.out(self.dropout(pooled))[:, 0]


class Order:
    """An endless order of rows, which can be saved and taken up again."""

    def __init__(self, rows, batch, seed):
        self.rows, self.batch = rows, batch
        self.generator = torch.Generator().manual_seed(seed)
        self.left = torch.empty(0, dtype=torch.long)

    def take(self):
        if len(self.left) < self.batch:
            self.left = torch.randperm(self.rows, generator=self.generator)
        now, self.left = self.left[: self.batch], self.left[self.batch :]
        return now

    def state_dict(self):
        return {"left": self.left.clone(), "generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.left = state["left"]
        self.generator.set_state(state["generator"])


class Run:
    def __init__(self, data, seed, total):
        torch.manual_seed(seed)
        self.signal, self.bad = data
        self.net = Warner()
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=6e-3, weight_decay=0.01
        )
        self.schedule = torch.optim.lr_scheduler.SequentialLR(
            self.optimizer,
            [
                torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.2, 1.0, 5),
                torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, total - 5),
            ],
            milestones=[5],
        )
        self.order = Order(len(self.bad), 32, seed)
        self.weight = (1 - self.bad).sum() / self.bad.sum()
        self.step = 0

    def parts(self):
        return {
            "net": self.net,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "order": self.order,
        }

    def save(self):
        file = io.BytesIO()
        state = {name: part.state_dict() for name, part in self.parts().items()}
        torch.save({**state, "step": self.step, "random": torch.get_rng_state()}, file)
        return file.getvalue()

    def restore(self, saved):
        state = torch.load(io.BytesIO(saved), weights_only=False)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        self.step = state["step"]
        torch.set_rng_state(state["random"])

    def go(self, until):
        self.net.train()
        losses = []
        while self.step < until:
            rows = self.order.take()
            logits = self.net(self.signal[rows])
            loss = F.binary_cross_entropy_with_logits(
                logits, self.bad[rows], pos_weight=self.weight
            )
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(self.net.parameters(), 0.5)
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
            print(f"step {self.step} loss {loss.item():.4f}", flush=True)
            self.step += 1
        return losses

    @torch.no_grad()
    def accuracy(self, signal, bad):
        self.net.eval()
        return ((self.net(signal) > 0).float() == bad).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--cut", type=int, default=17)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data, held = shots(320, args.seed), shots(300, args.seed + 1)
    print("without a break")
    whole = Run(data, args.seed, args.steps)
    expected = whole.go(args.steps)
    print("cut off and resumed")
    first = Run(data, args.seed, args.steps)
    losses = first.go(args.cut)
    saved = first.save()
    del first
    second = Run(data, args.seed + 1, args.steps)
    second.restore(saved)
    losses += second.go(args.steps)
    assert losses == expected
    print(f"accuracy {second.accuracy(*held):.3f} of {whole.accuracy(*held):.3f}")


if __name__ == "__main__":
    main()
