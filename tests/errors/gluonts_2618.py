"""DeepAR-like probabilistic forecaster on simulated hourly demand (many related series)."""
import argparse
import math

import torch
from torch import nn
from torch.distributions import Normal


def lagged_sequence_values(lags, prior_input, input):
    """values of `input` seen `lag` places back; `prior_input` is what came before `input`"""
    full = torch.cat([prior_input, input], dim=1)
    n = input.size(1)
    cols = []
    for lag in lags:
        begin = full.size(1) - n - lag
        cols.append(full[:, begin : begin + n])
    return torch.stack(cols, dim=-1)


class MeanScaler(nn.Module):
    def forward(self, x):
        scale = x.abs().mean(dim=1, keepdim=True).clamp_min(1e-3)
        return x / scale, scale


class DeepARModel(nn.Module):
    def __init__(
        self, n_series, lags_seq, shift_lags, context=36, horizon=8, hidden=32
    ):
        super().__init__()
        if shift_lags:
            lags_seq = [lag - 1 for lag in lags_seq]
        self.lags_seq = lags_seq
        self.past_length = context + max(lags_seq) + 1
        self.context, self.horizon = context, horizon
        self.embed = nn.Embedding(n_series, 4)
        self.scaler = MeanScaler()
        self.rnn = nn.LSTM(
            len(lags_seq) + 4 + 2 + 1, hidden, num_layers=1, batch_first=True
        )
        self.proj = nn.Linear(hidden, 2)

    def rnn_input(self, series_id, scaled, scale, hour, n):
        # scaled holds data up to t; the row for t is used to predict t + 1
        prior, recent = scaled[:, :-n], scaled[:, -n:]
        lags = lagged_sequence_values(self.lags_seq, prior, recent)
        stat = torch.cat([self.embed(series_id), scale.log()], -1)[:, None].expand(
            -1, n, -1
        )
        nxt = (hour[:, -n:] + 1) * (2 * math.pi / 24)
        return torch.cat([lags, stat, nxt.sin()[..., None], nxt.cos()[..., None]], -1)

    def output(self, h, scale):
        mu, sigma = self.proj(h).unbind(-1)
        return Normal(mu * scale, (nn.functional.softplus(sigma) + 1e-3) * scale)

    def forward(self, series_id, past, hour):
        """past: (batch, past_length) -> distribution of past[t+1] for the last `context` places"""
        _, scale = self.scaler(past[:, -self.context :])
        h, _ = self.rnn(
            self.rnn_input(series_id, past / scale, scale, hour, self.context)
        )
        return self.output(h, scale)

    @torch.no_grad()
    def forecast(self, series_id, past, hour):
        draws = []
        for _ in range(self.horizon):
            mean = self(series_id, past, hour).mean[:, -1:]
            draws.append(mean)
            past = torch.cat([past[:, 1:], mean], 1)
            hour = torch.cat([hour[:, 1:], hour[:, -1:] + 1], 1)
        return torch.cat(draws, 1)


def simulate(n_series=40, length=420, seed=0):
    g = torch.Generator().manual_seed(seed)
    level = torch.rand(n_series, generator=g) * 20 + 5
    phase = torch.rand(n_series, generator=g) * 6.28
    x = torch.zeros(n_series, length)
    walk = torch.zeros(n_series)
    for t in range(length):
        walk = 0.9 * walk + 0.15 * torch.randn(n_series, generator=g)
        x[:, t] = level * (
            1.5 + 0.5 * torch.sin(torch.tensor(2 * math.pi * t / 24) + phase) + walk
        )
    return x


def windows(data, model, n, gen, low, high):
    """random training windows, one extra value at the end for the shifted target"""
    sid = torch.randint(len(data), (n,), generator=gen)
    start = torch.randint(low, high - model.past_length - 1, (n,), generator=gen)
    pos = start[:, None] + torch.arange(model.past_length + 1)
    return sid, data[sid[:, None], pos], pos.float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(44)
    data = simulate()
    split = 340
    model = DeepARModel(len(data), [1, 2, 3, 24, 25], shift_lags=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-6)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    running = None
    for step in range(args.steps):
        sid, values, hour = windows(data, model, args.batch_size, gen, 0, split)
        dist = model(sid, values[:, :-1], hour[:, :-1])
        loss = -dist.log_prob(values[:, -model.context :]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        scheduler.step()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if (step + 1) % 25 == 0:
            print(f"step {step + 1:4d}  nll {running:.4f}")

    model.eval()
    sid = torch.arange(len(data))
    begin = split - model.past_length
    past = data[:, begin:split]
    hour = torch.arange(begin, split).float().expand(len(data), -1)
    pred = model.forecast(sid, past, hour)
    truth = data[:, split : split + model.horizon]
    print(
        f"normalised deviation of the forecast {((pred - truth).abs().sum() / truth.abs().sum()).item():.4f}"
    )

    if args.prove:
        probe = past.clone()
        base = model(sid, probe, hour).mean[:, -1]
        probe[:, -1] += 1.0
        _, scale = model.scaler(past[:, -model.context :])
        inp = model.rnn_input(sid, past / scale, scale, hour, model.context)
        inp2 = model.rnn_input(sid, probe / scale, scale, hour, model.context)
        moved = (inp - inp2).abs().max().item()
        print(
            f"change of the network input when the newest known value changes: {moved:.4f} (forecast level {base.mean().item():.2f})"
        )
        print("fault shows:", "yes" if moved == 0 else "no")


if __name__ == "__main__":
    main()
