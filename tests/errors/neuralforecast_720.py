"""Window-based forecasting of shop sales with a hierarchical MLP.

Every window is scaled by its own history before it enters the network.  The
model that is best on the last part of the series is the one that forecasts.
"""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


def sales_panel(n_series, length, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(length)
    panel = []
    for _ in range(n_series):
        level = rng.uniform(60, 900)
        week = rng.normal(0, 0.25, 7)
        trend = rng.normal(0, 2e-4)
        year = 0.2 * np.sin(2 * np.pi * (t / 180 + rng.uniform()))
        noise = np.zeros(length)
        for i in range(1, length):
            noise[i] = 0.6 * noise[i - 1] + rng.normal(0, 0.06)
        y = level * np.clip(1 + week[t % 7] + year + trend * t + noise, 0.05, None)
        panel.append(y)
    return torch.tensor(np.stack(panel), dtype=torch.float32)


class TemporalNorm(nn.Module):
    """Scales a window by statistics of its input part."""

    def __init__(self, kind="robust", eps=1e-4):
        super().__init__()
        self.kind, self.eps = kind, eps

    def transform(self, insample):
        if self.kind == "robust":
            shift = insample.median(dim=-1, keepdim=True).values
            mad = (insample - shift).abs().median(dim=-1, keepdim=True).values
            scale = mad + self.eps
        else:
            shift = insample.mean(dim=-1, keepdim=True)
            scale = insample.std(dim=-1, keepdim=True) + self.eps
        return (insample - shift) / scale, shift, scale

    @staticmethod
    def inverse_transform(z, shift, scale):
        return z * scale + shift


class Stack(nn.Module):
    def __init__(self, input_size, h, pool, n_knots, width, dropout):
        super().__init__()
        self.h = h
        self.pool = nn.MaxPool1d(pool, stride=pool, ceil_mode=True)
        n_in = -(-input_size // pool)
        self.n_back = input_size
        self.mlp = nn.Sequential(
            nn.Linear(n_in, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, input_size + n_knots),
        )

    def forward(self, x):
        theta = self.mlp(self.pool(x.unsqueeze(1)).squeeze(1))
        back, knots = theta[:, : self.n_back], theta[:, self.n_back :]
        fore = nn.functional.interpolate(
            knots.unsqueeze(1), size=self.h, mode="linear", align_corners=True
        )
        return back, fore.squeeze(1)


class HierarchicalMLP(nn.Module):
    def __init__(self, h, input_size, scaler="robust", width=96, dropout=0.1, lr=2e-3):
        super().__init__()
        self.h, self.input_size, self.lr = h, input_size, lr
        self.scaler = TemporalNorm(scaler)
        shape = dict(width=width, dropout=dropout)
        self.stacks = nn.ModuleList(
            [
                Stack(input_size, h, 4, h // 4, **shape),
                Stack(input_size, h, 2, h // 2, **shape),
                Stack(input_size, h, 1, h, **shape),
            ]
        )
        self.inverse_valid = False

    def forward(self, insample):
        residual, forecast = insample, 0.0
        for stack in self.stacks:
            back, fore = stack(residual)
            residual, forecast = residual - back, forecast + fore
        return forecast

    def split(self, windows):
        return windows[:, : self.input_size], windows[:, self.input_size :]

    def training_step(self, windows):
        insample, outsample = self.split(windows)
        z, shift, scale = self.scaler.transform(insample)
        return (self(z) - (outsample - shift) / scale).abs().mean()

    @torch.no_grad()
    def validation_step(self, windows):
        insample, outsample = self.split(windows)
        z, shift, scale = self.scaler.transform(insample)
        y_hat = self(z)
        if self.inverse_valid:
            y_hat = self.scaler.inverse_transform(y_hat, shift, scale)
        return (y_hat - outsample).abs().mean().item()

    @torch.no_grad()
    def predict(self, insample):
        z, shift, scale = self.scaler.transform(insample)
        return self.scaler.inverse_transform(self(z), shift, scale)

    def configure_optimizers(self, max_steps):
        opt = torch.optim.Adam(self.parameters(), lr=self.lr)
        return opt, torch.optim.lr_scheduler.StepLR(opt, max(1, max_steps // 3), 0.5)


class WindowsDataset:
    """All windows of a panel; the last `val_size` + `h` points are held back."""

    def __init__(self, panel, input_size, h, val_size):
        size = input_size + h
        fit_part = panel[:, : panel.shape[1] - val_size - h]
        val_part = panel[:, panel.shape[1] - val_size - h - input_size : -h]
        self.train = fit_part.unfold(1, size, 1).reshape(-1, size)
        self.valid = val_part.unfold(1, size, 3).reshape(-1, size)
        self.test_insample = panel[:, -size:-h]
        self.test_outsample = panel[:, -h:]


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.wait = patience, float("inf"), 0

    def update(self, value):
        improved = value < self.best
        self.best = min(self.best, value)
        self.wait = 0 if improved else self.wait + 1
        return improved

    @property
    def stop(self):
        return self.wait >= self.patience


class Trainer:
    def __init__(self, max_steps, val_check_steps, patience, batch_size, ckpt, seed):
        self.max_steps, self.val_check_steps = max_steps, val_check_steps
        self.batch_size, self.ckpt = batch_size, ckpt
        self.stopper = EarlyStopping(patience)
        self.gen = torch.Generator().manual_seed(seed)

    def validate(self, model, data):
        model.eval()
        value = model.validation_step(data.valid)
        model.train()
        return value

    def fit(self, model, data):
        opt, sched = model.configure_optimizers(self.max_steps)
        model.train()
        smooth = None
        for step in range(1, self.max_steps + 1):
            pick = torch.randint(
                len(data.train), (self.batch_size,), generator=self.gen
            )
            loss = model.training_step(data.train[pick])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            value = loss.item()
            smooth = value if smooth is None else 0.9 * smooth + 0.1 * value
            if step % self.val_check_steps == 0 or step == self.max_steps:
                valid = self.validate(model, data)
                if self.stopper.update(valid):
                    state = {"step": step, "ptl/val_loss": valid}
                    torch.save({**state, "model": model.state_dict()}, self.ckpt)
                print(f"step {step:4d} train_loss={smooth:.3f} valid_loss={valid:.3f}")
                if self.stopper.stop:
                    print(f"no improvement since {self.stopper.patience} checks")
                    break
        best = torch.load(self.ckpt)
        model.load_state_dict(best["model"])
        model.eval()
        return best


def prove(model, data):
    """Compares the monitored number with the MAE of the model's own forecasts."""
    insample, outsample = model.split(data.valid)
    mae = (model.predict(insample) - outsample).abs().mean().item()
    monitored = model.validation_step(data.valid)
    print(f"monitored {monitored:.3f}, MAE of the forecasts {mae:.3f}")
    print("fault shows:", "yes" if abs(monitored - mae) > 0.01 * mae else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--h", type=int, default=12)
    parser.add_argument("--input_size", type=int, default=42)
    parser.add_argument("--val_check_steps", type=int, default=30)
    parser.add_argument("--early_stop_patience_steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    panel = sales_panel(24, 420, args.seed)
    data = WindowsDataset(panel, args.input_size, args.h, val_size=56)
    model = HierarchicalMLP(args.h, args.input_size)
    if args.fixed:
        model.inverse_valid = True
    with tempfile.TemporaryDirectory() as tmp:
        trainer = Trainer(
            max_steps=args.steps,
            val_check_steps=args.val_check_steps,
            patience=args.early_stop_patience_steps,
            batch_size=64,
            ckpt=os.path.join(tmp, "best.ckpt"),
            seed=args.seed,
        )
        best = trainer.fit(model, data)
    test_mae = (model.predict(data.test_insample) - data.test_outsample).abs().mean()
    print(f"chosen step {best['step']}, test MAE {test_mae:.3f}")
    if args.prove:
        prove(model, data)


if __name__ == "__main__":
    main()
