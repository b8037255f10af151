"""Behaviour cloning of action chunks for a simulated 3-joint arm (image features + instruction id).

Small trainer with hooks, gradient accumulation, and a warm-up/cosine schedule.
"""
import argparse
import math
import time
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore", category=UserWarning)

CHUNK, JOINTS, TASKS = 4, 3, 5


class ArmDemos(Dataset):
    """Scripted expert: each task is a target pose; the expert moves proportionally with joint limits."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        poses = (
            torch.randn(TASKS, JOINTS, generator=torch.Generator().manual_seed(77))
            * 0.8
        )
        mix = (
            torch.randn(JOINTS * 2, 32, generator=torch.Generator().manual_seed(78)) / 2
        )
        self.task = torch.randint(0, TASKS, (n,), generator=g)
        q = torch.randn(n, JOINTS, generator=g)
        obj = 0.4 * torch.randn(n, JOINTS, generator=g)
        self.feat = torch.tanh(torch.cat([q, obj], 1) @ mix) + 0.02 * torch.randn(
            n, 32, generator=g
        )
        goal = poses[self.task] + obj
        acts, cur = [], q
        for _ in range(CHUNK):
            a = (0.6 * (goal - cur)).clamp(-0.7, 0.7)
            acts.append(a)
            cur = cur + a
        self.act = torch.stack(acts, 1)

    def __len__(self):
        return len(self.task)

    def __getitem__(self, i):
        return {"feat": self.feat[i], "task": self.task[i], "action": self.act[i]}


class ChunkPolicy(nn.Module):
    def __init__(self, dim=96, depth=3):
        super().__init__()
        self.vision = nn.Linear(32, dim)
        self.lang = nn.Embedding(TASKS, dim)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(dim),
                nn.Linear(dim, 2 * dim),
                nn.GELU(),
                nn.Linear(2 * dim, dim),
            )
            for _ in range(depth)
        )
        self.action_head = nn.Linear(dim, CHUNK * JOINTS)

    def forward(self, feat, task):
        h = self.vision(feat) + self.lang(task)
        for b in self.blocks:
            h = h + b(h)
        return self.action_head(h).view(-1, CHUNK, JOINTS)


def warmup_cosine(warmup, total, floor=0.0):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        p = min(1.0, (step - warmup) / max(1, total - warmup))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * p))

    return factor


class Hook:
    def on_update(self, trainer, loss):
        pass

    def on_end(self, trainer):
        pass


class ConsoleLogger(Hook):
    def __init__(self, every):
        self.every, self.t0 = every, time.time()

    def on_update(self, trainer, loss):
        if trainer.completed_steps % self.every == 0 or trainer.completed_steps == 1:
            print(f"update {trainer.completed_steps:4d}  loss {loss:.5f}")


class Evaluation(Hook):
    def __init__(self, data, every):
        self.batch, self.every = data[:], every

    @torch.no_grad()
    def score(self, trainer):
        trainer.model.eval()
        pred = trainer.model(self.batch["feat"], self.batch["task"])
        trainer.model.train()
        return (pred - self.batch["action"]).abs().mean().item()

    def on_update(self, trainer, loss):
        if trainer.completed_steps % self.every == 0:
            print(f"    held-out action error {self.score(trainer):.4f}")

    def on_end(self, trainer):
        print(f"final held-out action error {self.score(trainer):.4f}")


class RateRecorder(Hook):
    def __init__(self):
        self.rates = []

    def on_end(self, trainer):
        self.rates = list(trainer.used_rates)


class Trainer:
    def __init__(self, model, loader, cfg, hooks):
        self.model, self.loader, self.cfg, self.hooks = model, loader, cfg, hooks
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=cfg.lr, weight_decay=0.01, betas=(0.9, 0.95)
        )
        self.factor = warmup_cosine(cfg.warmup, cfg.steps)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, self.factor
        )
        self.completed_steps, self.micro = 0, 0
        self.used_rates = []

    def batches(self):
        while True:
            yield from self.loader

    def micro_step(self, batch):
        self.micro += 1
        sync = self.micro % self.cfg.accumulate == 0
        pred = self.model(batch["feat"], batch["task"])
        loss = nn.functional.l1_loss(pred, batch["action"])
        (loss / self.cfg.accumulate).backward()
        if sync:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.used_rates.append(self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.optimizer.zero_grad()
        if sync or not self.cfg.fixed:
            self.lr_scheduler.step()
        return loss.item(), sync

    def fit(self):
        self.model.train()
        running = 0.0
        stream = self.batches()
        while self.completed_steps < self.cfg.steps:
            loss, sync = self.micro_step(next(stream))
            running += loss / self.cfg.accumulate
            if sync:
                self.completed_steps += 1
                for h in self.hooks:
                    h.on_update(self, running)
                running = 0.0
        for h in self.hooks:
            h.on_end(self)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240, help="optimizer updates")
    ap.add_argument("--accumulate", type=int, default=4)
    ap.add_argument("--micro-batch", type=int, default=16)
    ap.add_argument("--warmup", type=int, default=20)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=42)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cfg = ap.parse_args()

    torch.manual_seed(cfg.seed)
    loader = DataLoader(
        ArmDemos(2000, cfg.seed),
        batch_size=cfg.micro_batch,
        shuffle=True,
        drop_last=True,
    )
    recorder = RateRecorder()
    hooks = [ConsoleLogger(40), Evaluation(ArmDemos(400, cfg.seed + 1), 80), recorder]
    trainer = Trainer(ChunkPolicy(), loader, cfg, hooks)
    trainer.fit()

    if cfg.prove:
        plan = [cfg.lr * trainer.factor(k) for k in range(cfg.steps)]
        off = [
            k for k, (a, b) in enumerate(zip(recorder.rates, plan)) if abs(a - b) > 1e-9
        ]
        print(
            f"updates whose rate is not the planned one: {len(off)} of {cfg.steps}, first {off[0] if off else None}"
        )
        print(f"summed rate {sum(recorder.rates):.4f}, planned {sum(plan):.4f}")
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    main()
