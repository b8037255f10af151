"""Rides per hour at scooter ranks: a DeepAR-like forecaster that is judged on paths it draws itself.

Training feeds the true counts of the past and maximises a negative binomial likelihood of counts in
each series' own scale; busy ranks are drawn more often. For a forecast the model eats its own draws.
The quantile loss of those draws steers the learning rate and the stopping; the likelihood does not.
"""
import argparse
import copy
import dataclasses
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


@dataclasses.dataclass
class Settings:
    ranks: int = 60
    hours: int = 24 * 12
    context: int = 36
    horizon: int = 12
    hidden: int = 40
    epochs: int = 8
    windows_per_epoch: int = 1280
    batch: int = 64
    lr: float = 6e-3
    paths: int = 40
    patience: int = 4
    seed: int = 61


def rides(s: Settings):
    """Counts with a daily wave, a weekly dip and overdispersion; sizes of ranks differ by a hundredfold."""
    rng = torch.Generator().manual_seed(s.seed)
    level = torch.exp(0.5 + 3.2 * torch.rand(s.ranks, 1, generator=rng))
    peak = 5 * torch.randint(0, 3, (s.ranks, 1), generator=rng) + 8
    hour = torch.arange(s.hours)
    wave = 1 + 0.8 * torch.cos(2 * torch.pi * (hour - peak) / 24)
    weekend = torch.where((hour // 24) % 7 >= 5, 0.6, 1.0)
    mean = level * wave * weekend
    k = 6.0
    rate = mean * torch._standard_gamma(torch.full_like(mean, k), generator=rng) / k
    return torch.poisson(rate, generator=rng)


def calendar(hour):
    a, w = 2 * torch.pi * hour / 24, ((hour // 24) % 7 >= 5).float()
    return torch.stack([torch.sin(a), torch.cos(a), w], -1)


class Windows(Dataset):
    """All windows that end before `end`; the last `horizon` hours before `end` belong to the split."""

    def __init__(self, counts, s: Settings, first, end):
        self.counts, self.s = counts, s
        length = s.context + s.horizon
        self.items = [
            (r, t) for r in range(len(counts)) for t in range(first, end - length + 1)
        ]
        self.weight = torch.tensor(
            [counts[r, t : t + s.context].mean() + 1.0 for r, t in self.items]
        )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        r, t = self.items[i]
        length = self.s.context + self.s.horizon
        z = self.counts[r, t : t + length]
        scale = 1.0 + z[: self.s.context].mean()  # from the past part only
        return z, calendar(torch.arange(t, t + length)), scale


class DeepAR(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.GRU(1 + 3 + 1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, previous, cal, scale, state=None):
        size = scale.log().view(-1, 1, 1).expand(-1, previous.shape[1], 1)
        h, state = self.rnn(
            torch.cat([previous.unsqueeze(2) / scale.view(-1, 1, 1), cal, size], 2),
            state,
        )
        mean, spread = nn.functional.softplus(self.head(h)).unbind(2)
        return scale.unsqueeze(1) * (mean + 1e-4), spread + 1e-3, state  # mean, alpha


def nb_log_prob(z, mean, alpha):
    """Variance mean + alpha * mean^2."""
    inv = 1 / alpha
    return (
        torch.lgamma(z + inv)
        - torch.lgamma(z + 1)
        - torch.lgamma(inv)
        - inv * torch.log1p(alpha * mean)
        + z * (torch.log(alpha * mean) - torch.log1p(alpha * mean))
    )


@torch.no_grad()
def forecast(model, z, cal, scale, s: Settings, gen):
    """Paths x series x horizon; the state after the context is copied for every path."""
    model.eval()
    n, c = len(z), s.context
    _, _, state = model(z[:, : c - 1], cal[:, 1:c], scale)
    state = state.repeat(1, s.paths, 1)
    last, sc = z[:, c - 1].repeat(s.paths), scale.repeat(s.paths)
    out = []
    for h in range(s.horizon):
        mean, alpha, state = model(
            last.unsqueeze(1),
            cal[:, c + h : c + h + 1].repeat(s.paths, 1, 1),
            sc,
            state,
        )
        mean, inv = mean[:, 0], 1 / alpha[:, 0]
        last = torch.poisson(
            torch._standard_gamma(inv, generator=gen) * mean / inv, generator=gen
        )
        out.append(last)
    return torch.stack(out, 1).view(s.paths, n, s.horizon)


def quantile_loss(paths, truth):
    """Weighted: sums over all series, over the sum of the truth."""
    total = 0.0
    for q in (0.1, 0.5, 0.9):
        e = truth - paths.quantile(q, 0)
        total += 2 * torch.maximum(q * e, (q - 1) * e).sum().item() / 3
    return total / truth.sum().item()


def judge(model, counts, s, end):
    """One forecast per rank for the `horizon` hours before `end`; always with the same random numbers."""
    data = Windows(counts, s, end - s.context - s.horizon, end)
    z, cal, scale = (torch.stack(c) for c in zip(*(data[i] for i in range(len(data)))))
    assert len(z) == s.ranks
    paths = forecast(model, z, cal, scale, s, torch.Generator().manual_seed(5))
    truth, day_before = (
        z[:, s.context :],
        z[:, s.context - 24 : s.context - 24 + s.horizon],
    )
    inside = (
        ((truth >= paths.quantile(0.05, 0)) & (truth <= paths.quantile(0.95, 0)))
        .float()
        .mean()
        .item()
    )
    return (
        quantile_loss(paths, truth),
        quantile_loss(day_before.unsqueeze(0), truth),
        inside,
    )


class Forecaster:
    def __init__(self, s: Settings, counts, folder):
        self.s, self.counts, self.path = s, counts, os.path.join(folder, "best.pt")
        self.valid_end, self.test_end = s.hours - s.horizon, s.hours
        train = Windows(
            counts, s, 0, s.hours - 2 * s.horizon
        )  # its targets end where validation begins
        sampler = WeightedRandomSampler(
            train.weight, s.windows_per_epoch, replacement=True
        )
        self.loader = DataLoader(train, s.batch, sampler=sampler)
        self.model = DeepAR(s.hidden)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=s.lr)
        self.sched = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.opt, factor=0.5, patience=1
        )
        self.best, self.bad, self.losses = float("inf"), 0, []

    def fit(self):
        for epoch in range(self.s.epochs):
            self.model.train()
            total = 0.0
            for z, cal, scale in self.loader:
                mean, alpha, _ = self.model(z[:, :-1], cal[:, 1:], scale)
                loss = -nb_log_prob(
                    z[:, 1:], mean, alpha
                ).mean()  # past and horizon alike
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
                self.opt.step()
                total += loss.item() / len(self.loader)
            self.losses.append(total)
            score, naive, inside = judge(
                self.model, self.counts, self.s, self.valid_end
            )
            self.sched.step(score)
            print(
                f"epoch {epoch} NLL {total:.4f} quantile loss {score:.4f} (day before: {naive:.4f}) "
                f"90% band {inside:.3f} lr {self.opt.param_groups[0]['lr']:.4g}"
            )
            if score < self.best:
                self.best, self.bad = score, 0
                torch.save(
                    {
                        "model": copy.deepcopy(self.model.state_dict()),
                        "settings": dataclasses.asdict(self.s),
                    },
                    self.path,
                )
            else:
                self.bad += 1
                if self.bad >= self.s.patience:
                    break


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Settings.epochs)
    s = Settings(epochs=ap.parse_args().epochs)
    torch.manual_seed(s.seed + 1)
    counts = rides(s)
    # the likelihood is a distribution: it sums to one over the counts
    k = torch.arange(0, 3000).float()
    assert (
        abs(
            nb_log_prob(k, torch.tensor(20.0), torch.tensor(0.5)).exp().sum().item() - 1
        )
        < 1e-3
    )
    with tempfile.TemporaryDirectory() as folder:
        f = Forecaster(s, counts, folder)
        start = judge(f.model, counts, s, f.valid_end)[0]
        f.fit()
        kept = torch.load(f.path)
        model = DeepAR(Settings(**kept["settings"]).hidden)
        model.load_state_dict(kept["model"])
        assert (
            judge(model, counts, s, f.valid_end)[0] == f.best
        )  # the file gives what was measured
        score, naive, inside = judge(model, counts, s, f.test_end)
    print(
        f"quantile loss: before {start:.3f}, valid {f.best:.3f}, test {score:.3f}; day before {naive:.3f}; 90% band holds {inside:.3f}"
    )
    if s.epochs >= Settings.epochs:
        assert (
            f.losses[-1] < f.losses[0]
            and f.best < 0.8 * start
            and score < naive
            and 0.75 < inside < 0.99
        )


if __name__ == "__main__":
    main()
