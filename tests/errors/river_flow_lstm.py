"""River discharge forecasting from rainfall with an LSTM (one gauge, daily data)."""
import argparse
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    days: int = 4000
    window: int = 60
    hidden: int = 48
    batch_size: int = 48
    lr: float = 0.15
    momentum: float = 0.9
    max_norm: float = 0.25
    log_every: int = 30
    seed: int = 11


def simulate_gauge(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    wet = torch.rand(cfg.days, generator=g) < 0.3
    rain = torch.where(
        wet, -torch.log(torch.rand(cfg.days, generator=g)) * 6, torch.zeros(cfg.days)
    )
    temp = 10 + 9 * torch.sin(torch.arange(cfg.days) * 2 * torch.pi / 365)
    store, flow = 20.0, []
    for t in range(cfg.days):
        evap = 0.04 * max(float(temp[t]), 0.0)
        store = max(store + float(rain[t]) - evap, 0.0)
        q = 0.01 * store**1.25
        store -= min(q, store)
        flow.append(q)
    flow = torch.tensor(flow)
    return torch.stack([rain, temp], 1), flow


class FlowDataset(torch.utils.data.Dataset):
    def __init__(self, x, y, window, start, stop):
        self.x, self.y, self.window = x, y, window
        self.days = range(start + window, stop)

    def __len__(self):
        return len(self.days)

    def __getitem__(self, i):
        t = self.days[i]
        return self.x[t - self.window : t], self.y[t - 1]


class FlowLSTM(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, num_layers=1, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.head(out[:, -1]).squeeze(-1)


class Forecaster:
    def __init__(self, cfg, args):
        self.cfg, self.args = cfg, args
        x, q = simulate_gauge(cfg)
        split = int(0.8 * cfg.days)
        x = (x - x[:split].mean(0)) / x[:split].std(0)
        y = (q - q[:split].mean()) / q[:split].std()
        self.train_set = FlowDataset(x, y, cfg.window, 0, split)
        self.test_set = FlowDataset(x, y, cfg.window, split, cfg.days)
        self.model = FlowLSTM(cfg.hidden)
        self.opt = torch.optim.SGD(
            self.model.parameters(), lr=cfg.lr, momentum=cfg.momentum
        )
        self.applied = []
        if args.prove:
            self.opt.register_step_pre_hook(self._remember)

    def _remember(self, opt, *_):
        sq = sum(p.grad.pow(2).sum() for p in self.model.parameters())
        self.applied.append(sq.sqrt().item())

    def batches(self):
        while True:
            yield from torch.utils.data.DataLoader(
                self.train_set,
                batch_size=self.cfg.batch_size,
                shuffle=True,
                drop_last=True,
            )

    def update(self, loss):
        self.opt.zero_grad()
        loss.backward()
        params = self.model.parameters()
        if self.args.fixed:
            nn.utils.clip_grad_norm_(params, self.cfg.max_norm)
            self.opt.step()
        else:
            self.opt.step()
            nn.utils.clip_grad_norm_(params, self.cfg.max_norm)

    def fit(self):
        self.model.train()
        avg = None
        for step, (x, y) in enumerate(self.batches()):
            if step == self.args.steps:
                break
            loss = nn.functional.mse_loss(self.model(x), y)
            self.update(loss)
            avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
            if (step + 1) % self.cfg.log_every == 0:
                print(f"step {step + 1}: loss {avg:.4f}")

    @torch.no_grad()
    def nash_sutcliffe(self):
        self.model.eval()
        pred, true = [], []
        for x, y in torch.utils.data.DataLoader(self.test_set, batch_size=256):
            pred.append(self.model(x))
            true.append(y)
        pred, true = torch.cat(pred), torch.cat(true)
        return 1 - ((pred - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    f = Forecaster(cfg, args)
    f.fit()
    print(f"test NSE: {f.nash_sutcliffe():.3f}")
    if args.prove:
        print("fault shows:", "yes" if max(f.applied) > cfg.max_norm * 1.01 else "no")
