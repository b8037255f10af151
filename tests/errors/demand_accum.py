import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    n_rows: int = 3000
    micro_batch: int = 16
    accumulate: int = 8
    lr: float = 0.01
    clip: float = 1.0
    seed: int = 2023


# Store demand: two categoricals (store, weekday) and six numeric columns.
def load_table(cfg):
    rng = np.random.default_rng(cfg.seed)
    store = rng.integers(0, 25, cfg.n_rows)
    weekday = rng.integers(0, 7, cfg.n_rows)
    num = rng.normal(size=(cfg.n_rows, 6)).astype(np.float32)
    store_level = rng.normal(size=25)
    day_level = np.array([0.0, -0.2, -0.1, 0.1, 0.5, 1.1, 0.8])
    y = (
        store_level[store]
        + day_level[weekday]
        + 0.7 * num[:, 0]
        - 0.5 * num[:, 1] * num[:, 2]
        + 0.3 * np.abs(num[:, 3])
        + 0.2 * rng.normal(size=cfg.n_rows)
    )
    y = (y - y[: cfg.n_rows * 4 // 5].mean()) / y[: cfg.n_rows * 4 // 5].std()
    cat = torch.from_numpy(np.stack([store, weekday], 1))
    return cat, torch.from_numpy(num), torch.from_numpy(y.astype(np.float32))


class TabularNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.store = nn.Embedding(25, 8)
        self.weekday = nn.Embedding(7, 3)
        self.net = nn.Sequential(
            nn.Linear(17, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, cat, num):
        h = torch.cat([self.store(cat[:, 0]), self.weekday(cat[:, 1]), num], 1)
        return self.net(h).squeeze(1)


class Trainer:
    def __init__(self, cfg, args):
        self.cfg, self.args = cfg, args
        torch.manual_seed(cfg.seed)
        self.cat, self.num, self.y = load_table(cfg)
        self.n_train = cfg.n_rows * 4 // 5
        self.model = TabularNet()
        self.opt = torch.optim.SGD(
            self.model.parameters(), lr=cfg.lr, momentum=0.9, nesterov=True
        )
        self.criterion = nn.MSELoss()
        self.order = torch.Generator().manual_seed(cfg.seed + 1)
        self.step = 0
        self.last_group = None
        self.last_grad = None

    def micro_batches(self):
        while True:
            perm = torch.randperm(self.n_train, generator=self.order)
            n = self.n_train // self.cfg.micro_batch
            for i in range(n):
                yield perm[i * self.cfg.micro_batch : (i + 1) * self.cfg.micro_batch]

    def forward_loss(self, idx):
        return self.criterion(self.model(self.cat[idx], self.num[idx]), self.y[idx])

    def backward(self, loss):
        if self.args.fixed:
            loss = loss / self.cfg.accumulate
        loss.backward()

    def optimizer_step(self):
        if self.args.prove and self.step == 0:
            self.last_grad = [p.grad.clone() for p in self.model.parameters()]
            self.start = [p.detach().clone() for p in self.model.parameters()]
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
        self.opt.step()
        self.opt.zero_grad()
        self.step += 1

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        idx = torch.arange(self.n_train, self.cfg.n_rows)
        rmse = self.forward_loss(idx).sqrt().item()
        self.model.train()
        return rmse

    def fit(self):
        group, running = [], 0.0
        self.model.train()
        for k, idx in enumerate(self.micro_batches()):
            loss = self.forward_loss(idx)
            self.backward(loss)
            running += loss.item()
            group.append(idx)
            if (k + 1) % self.cfg.accumulate == 0:
                if self.step == 0:
                    self.last_group = torch.cat(group)
                self.optimizer_step()
                group = []
                if self.step % 20 == 0:
                    print(
                        f"step {self.step:4d} | train mse {running / (20 * self.cfg.accumulate):.4f} "
                        f"| val rmse {self.validate():.4f}"
                    )
                    running = 0.0
            if self.step >= self.args.steps:
                break

    def prove(self):
        # gradient of the big batch of the first step, calculated in one go
        with torch.no_grad():
            for p, s in zip(self.model.parameters(), self.start):
                p.copy_(s)
        self.opt.zero_grad()
        self.forward_loss(self.last_group).backward()
        whole = (
            torch.cat([p.grad.flatten() for p in self.model.parameters()]).norm().item()
        )
        used = torch.cat([g.flatten() for g in self.last_grad]).norm().item()
        print(f"# gradient norm used {used:.4f}, of the whole batch {whole:.4f}")
        print("fault shows:", "yes" if used > 1.5 * whole else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    trainer = Trainer(Config(), args)
    trainer.fit()
    if args.prove:
        trainer.prove()
