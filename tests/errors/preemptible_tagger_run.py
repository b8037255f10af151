"""Sequence tagger for a preemptible machine: the job is stopped half way and continued.

`main` plays both halves one after the other, each with fresh objects, as on the cluster.
"""
import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    vocab: int = 60
    tags: int = 5
    length: int = 20
    dim: int = 32
    hidden: int = 48
    batch: int = 32
    lr: float = 4e-3
    betas: tuple = (0.9, 0.98)
    seed: int = 19


class TagData:
    """Tag of a word depends on the word and on the one before it."""

    def __init__(self, cfg, n):
        g = torch.Generator().manual_seed(cfg.seed)
        rule = torch.randint(0, cfg.tags, (cfg.vocab, 4), generator=g)
        self.x = torch.randint(0, cfg.vocab, (n, cfg.length), generator=g)
        prev = torch.roll(self.x, 1, dims=1) % 4
        prev[:, 0] = 0
        self.y = rule[self.x, prev]

    def batch(self, step, size):
        g = torch.Generator().manual_seed(10_000 + step)
        i = torch.randint(0, len(self.x), (size,), generator=g)
        return self.x[i], self.y[i]


class GruTagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.rnn = nn.GRU(cfg.dim, cfg.hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * cfg.hidden, cfg.tags)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class Job:
    def __init__(self, cfg, args, path):
        torch.manual_seed(cfg.seed)
        self.cfg, self.args, self.path = cfg, args, path
        self.data = TagData(cfg, 3000)
        self.model = GruTagger(cfg)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=cfg.lr, betas=cfg.betas
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: max(0.05, 1.0 - s / max(1, args.steps))
        )
        self.step = 0
        if os.path.exists(path):
            self.load()

    def save(self):
        torch.save(
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
            },
            self.path,
        )
        print(f"saved at step {self.step}")

    def load(self):
        ckpt = torch.load(self.path, map_location="cpu")
        self.model.load_state_dict(ckpt["model"])
        if self.args.fixed:
            self.optimizer.load_state_dict(ckpt["optimizer"])
        self.scheduler.load_state_dict(ckpt["scheduler"])
        for group, lr in zip(self.optimizer.param_groups, self.scheduler.get_last_lr()):
            group["lr"] = lr
        self.step = ckpt["step"]
        print(
            f"resumed at step {self.step}, lr {self.optimizer.param_groups[0]['lr']:.5f}"
        )

    def train_until(self, last):
        self.model.train()
        running = []
        while self.step < last:
            x, y = self.data.batch(self.step, self.cfg.batch)
            loss = nn.functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            running.append(loss.item())
            if self.step % 25 == 0:
                print(f"step {self.step} loss {sum(running) / len(running):.4f}")
                running = []
        self.save()

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        x, y = self.data.batch(999_999, 500)
        return (self.model(x).argmax(-1) == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cfg = Config()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        first = Job(cfg, args, path)
        first.train_until(args.steps // 2)
        second = Job(cfg, args, path)
        second.train_until(args.steps)
    print(f"tag accuracy {second.accuracy():.4f}")

    if args.prove:
        counts = {int(s["step"]) for s in second.optimizer.state.values()}
        print("update count in the optimizer:", counts, "job step:", second.step)
        print("fault shows:", "no" if counts == {second.step} else "yes")


if __name__ == "__main__":
    main()
