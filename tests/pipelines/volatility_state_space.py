"""Next-day volatility with a small diagonal state-space model (S4D style).

Chronological split with an embargo between the parts; scaling is fitted on the
training period only. Early stopping on the validation period, one look at test.
"""
import argparse
import copy
import math

import numpy as np
import torch
from torch import nn

CONTEXT, BURN_IN, EMBARGO = 96, 16, 20


def simulate_returns(n_assets, n_days, seed):
    """GARCH(1,1) with a leverage term and Student-t shocks."""
    rng = np.random.default_rng(seed)
    omega, alpha, gamma, beta = 2e-6, 0.06, 0.08, 0.87
    r = np.zeros((n_assets, n_days))
    var = np.full(n_assets, omega / (1 - alpha - gamma / 2 - beta))
    scale = rng.uniform(0.7, 1.6, n_assets)
    for t in range(n_days):
        z = rng.standard_t(6, n_assets) / math.sqrt(6 / 4)
        eps = np.sqrt(var) * z
        r[:, t] = scale * eps
        var = omega + alpha * eps**2 + gamma * eps**2 * (eps < 0) + beta * var
    return r


def build_arrays(returns, train_end):
    std = returns[:, :train_end].std(axis=1, keepdims=True)
    r = returns / std
    feats = np.stack(
        [r, np.abs(r), np.log(np.abs(r) + 0.05), np.minimum(r, 0)], axis=-1
    )
    mu = feats[:, :train_end].mean(axis=(0, 1))
    sd = feats[:, :train_end].std(axis=(0, 1))
    return torch.tensor((feats - mu) / sd, dtype=torch.float32), torch.tensor(
        r, dtype=torch.float32
    )


def windows(feats, r, start, stop, stride):
    """Inputs are days [s, s+CONTEXT); the target at each position is the following day's return."""
    xs, ys = [], []
    for s in range(start, stop - CONTEXT, stride):
        xs.append(feats[:, s : s + CONTEXT])
        ys.append(r[:, s + 1 : s + CONTEXT + 1])
    return torch.cat(xs), torch.cat(ys)


class DiagonalSSM(nn.Module):
    def __init__(self, width, states=16):
        super().__init__()
        self.log_dt = nn.Parameter(
            torch.empty(width).uniform_(math.log(0.005), math.log(0.2))
        )
        self.log_a_real = nn.Parameter(torch.full((width, states), math.log(0.5)))
        self.a_imag = nn.Parameter(
            math.pi * torch.arange(states).repeat(width, 1).float()
        )
        self.c = nn.Parameter(torch.randn(width, states, 2) * 0.5**0.5)
        self.skip = nn.Parameter(torch.randn(width))

    def kernel(self, length):
        a = torch.complex(-self.log_a_real.exp(), self.a_imag)
        dta = a * self.log_dt.exp().unsqueeze(-1)
        c = torch.view_as_complex(self.c) * (torch.exp(dta) - 1) / a
        powers = torch.exp(dta.unsqueeze(-1) * torch.arange(length))
        return 2 * torch.einsum("hn,hnl->hl", c, powers).real

    def forward(self, u):  # (batch, length, width)
        length = u.size(1)
        u = u.transpose(1, 2)
        k = torch.fft.rfft(self.kernel(length), n=2 * length)
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * length) * k, n=2 * length)[
            ..., :length
        ]
        return (y + self.skip.unsqueeze(-1) * u).transpose(1, 2)


class VolModel(nn.Module):
    def __init__(self, n_feats, width=24, depth=2, dropout=0.1):
        super().__init__()
        self.inp = nn.Linear(n_feats, width)
        self.ssm = nn.ModuleList(DiagonalSSM(width) for _ in range(depth))
        self.mix = nn.ModuleList(
            nn.Sequential(
                nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 2 * width), nn.GLU()
            )
            for _ in range(depth)
        )
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        h = self.inp(x)
        for ssm, mix, norm in zip(self.ssm, self.mix, self.norm):
            h = h + mix(ssm(norm(h)))
        return self.out(h).squeeze(-1)  # log variance


def gaussian_nll(log_var, r):
    log_var, r = log_var[:, BURN_IN:], r[:, BURN_IN:]
    return 0.5 * (log_var + r**2 * torch.exp(-log_var)).mean()


def score(model, x, y):
    model.eval()
    with torch.inference_mode():
        return gaussian_nll(model(x), y).item()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--epochs", type=int, default=15)
    cli.add_argument("--patience", type=int, default=5)
    cli.add_argument("--seed", type=int, default=5)
    opt = cli.parse_args()
    torch.manual_seed(opt.seed)

    returns = simulate_returns(n_assets=12, n_days=1700, seed=opt.seed)
    train_end, valid_end = 1100, 1400
    feats, r = build_arrays(returns, train_end)
    x_train, y_train = windows(feats, r, 0, train_end, stride=16)
    x_valid, y_valid = windows(
        feats, r, train_end + EMBARGO, valid_end, stride=CONTEXT - BURN_IN
    )
    x_test, y_test = windows(
        feats, r, valid_end + EMBARGO, returns.shape[1], stride=CONTEXT - BURN_IN
    )

    model = VolModel(feats.size(-1))
    ssm_params = [p for m in model.ssm for p in (m.log_dt, m.log_a_real, m.a_imag)]
    ids = {id(p) for p in ssm_params}
    others = [p for p in model.parameters() if id(p) not in ids]
    optimizer = torch.optim.AdamW(
        [
            {"params": others, "lr": 4e-3, "weight_decay": 0.01},
            {"params": ssm_params, "lr": 1e-3, "weight_decay": 0.0},
        ]
    )
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=2
    )

    best, best_state, stale = float("inf"), None, 0
    for epoch in range(opt.epochs):
        model.train()
        order = torch.randperm(len(x_train))
        running = 0.0
        for idx in order.split(64):
            loss = gaussian_nll(model(x_train[idx]), y_train[idx])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item() * len(idx)
        valid = score(model, x_valid, y_valid)
        plateau.step(valid)
        print(
            f"epoch {epoch:2d} | train {running / len(order):.4f} | valid {valid:.4f} | lr {optimizer.param_groups[0]['lr']:.1e}"
        )
        if valid < best:
            best, best_state, stale = valid, copy.deepcopy(model.state_dict()), 0
        else:
            stale += 1
            if stale >= opt.patience:
                print("no improvement, stopping")
                break

    model.load_state_dict(best_state)
    constant = gaussian_nll(torch.zeros_like(y_test), y_test).item()
    print(
        f"test NLL {score(model, x_test, y_test):.4f} (constant volatility: {constant:.4f})"
    )
