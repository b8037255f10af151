"""Passengers through the turnstiles in the next hour; two stations' servers on a thin line.

Two gloo ranks without DDP.  Each one sends one byte a weight (its sign) and one float a tensor
instead of the gradients; what the rounding lost is kept in an error memory and sent later
(error-feedback signSGD, Karimireddy et al. 2019).  The first steps go uncompressed, as in 1-bit
Adam, until the sizes have settled.  The gradients therefore differ between the ranks and are
never averaged, but the *updates* are the same, and the weights stay bit-equal.
"""
import argparse
import math
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD, WINDOW = 2, 24


class ErrorFeedbackSign(torch.optim.Optimizer):
    """p <- p - mean over ranks of scale_r * sign(lr * m_r + e_r);   e_r keeps the rest."""

    def __init__(self, params, lr, momentum=0.9, dense_steps=10):
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.dense_steps, self.calls, self.bytes_sent = dense_steps, 0, 0

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is None
        dense = self.calls < self.dense_steps
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                    state["error"] = torch.zeros_like(p)
                state["momentum"].mul_(group["momentum"]).add_(p.grad)
                if dense:
                    update = group["lr"] * state["momentum"]
                    dist.all_reduce(update)
                    update /= dist.get_world_size()
                    self.bytes_sent += 4 * p.numel()
                else:
                    update = self.exchange(
                        group["lr"] * state["momentum"], state["error"]
                    )
                p.sub_(update)
        self.calls += 1

    def exchange(self, wanted, error):
        corrected = wanted + error
        scale = corrected.abs().mean().reshape(1)
        signs = torch.where(corrected >= 0, 1, -1).to(torch.int8)
        error.copy_(corrected - scale * signs)
        all_signs = [torch.empty_like(signs) for _ in range(dist.get_world_size())]
        all_scales = [torch.empty_like(scale) for _ in range(dist.get_world_size())]
        dist.all_gather(all_signs, signs)
        dist.all_gather(all_scales, scale)
        self.bytes_sent += signs.numel() + 4
        # the same order of summation on all ranks: bit-equal results
        return sum(c * s for c, s in zip(all_scales, all_signs)) / len(all_signs)


class CausalCounts(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.a = nn.Conv1d(3, 2 * channels, 5)
        self.b = nn.Conv1d(channels, 2 * channels, 5, dilation=2)
        self.out = nn.Linear(channels, 1)

    def forward(self, x):
        x = nn.functional.glu(self.a(x), dim=1)
        x = nn.functional.glu(self.b(x), dim=1)
        return self.out(x.mean(-1) + x[..., -1]).squeeze(-1)


def station(seed, hours):
    gen = torch.Generator().manual_seed(seed)
    t = torch.arange(hours).float()
    day = 2 * torch.pi * t / 24
    level = 3.0 + 0.9 * torch.sin(day) + 0.5 * torch.sin(2 * day + 1)
    level = level - 0.8 * ((t // 24) % 7 >= 5).float()
    drift = torch.zeros(hours)
    shocks = 0.05 * torch.randn(hours, generator=gen)
    for i in range(1, hours):
        drift[i] = 0.95 * drift[i - 1] + shocks[i]
    counts = torch.poisson((level + drift).exp(), generator=gen)
    series = torch.stack([counts.log1p() / 3, day.sin(), day.cos()])
    windows = series.unfold(1, WINDOW, 1)[:, :-1].permute(1, 0, 2).contiguous()
    return windows, counts[WINDOW:]


def loss_fn(log_rate, counts, unit):
    """Poisson deviance in units of the mean count, so that it is about one at the start."""
    ratio = torch.where(
        counts > 0, counts * (counts.clamp_min(1).log() - log_rate), 0.0
    )
    return 2 * (ratio - counts + log_rate.exp()).mean() / unit


@torch.no_grad()
def global_metrics(model, x, y, unit):
    """Sums over both stations: the two test sets are not of the same size."""
    model.eval()
    out = model(x)
    totals = torch.tensor(
        [loss_fn(out, y, unit) * len(y), (out.exp() - y).abs().sum(), len(y)],
        dtype=torch.float64,
    )
    dist.all_reduce(totals)
    model.train()
    return (totals[0] / totals[2]).item(), (totals[1] / totals[2]).item()


def worker(rank, steps, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD
    )
    torch.manual_seed(100 + rank)  # different on purpose; the weights come from rank 0
    x, y = station(seed=50 + rank, hours=1600 + 200 * rank)
    cut = len(x) * 4 // 5
    x_train, y_train, x_test, y_test = x[:cut], y[:cut], x[cut:], y[cut:]

    model = CausalCounts()
    mean_rate = torch.stack([y_train.sum(), torch.tensor(float(len(y_train)))])
    dist.all_reduce(mean_rate)
    with torch.no_grad():
        unit = (mean_rate[0] / mean_rate[1]).item()
        model.out.bias.fill_(math.log(unit))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)

    optimizer = ErrorFeedbackSign(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.05, total_iters=steps
    )
    dev0, mae0 = global_metrics(model, x_test, y_test, unit)
    gen = torch.Generator().manual_seed(7 + rank)
    history = []
    for step in range(steps):
        rows = torch.randint(0, cut, (64,), generator=gen)
        loss = loss_fn(model(x_train[rows]), y_train[rows], unit)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)  # local, before the vote
        optimizer.step()
        schedule.step()
        history.append(loss.item())
        if (step + 1) % 50 == 0:
            dev, mae = global_metrics(model, x_test, y_test, unit)
            if rank == 0:
                print(
                    f"step {step + 1:3d} local loss {history[-1]:.3f} "
                    f"both stations: deviance {dev:.3f} mae {mae:.2f}",
                    flush=True,
                )

    mine = nn.utils.parameters_to_vector(model.parameters()).detach()
    rank0 = mine.clone()
    dist.broadcast(rank0, src=0)
    assert torch.equal(mine, rank0), "the ranks have drifted apart"
    dev, mae = global_metrics(model, x_test, y_test, unit)
    if rank == 0:
        share = optimizer.bytes_sent / (4 * mine.numel() * steps)
        print(
            f"deviance {dev0:.3f} -> {dev:.3f}, mae {mae0:.2f} -> {mae:.2f}, traffic {share:.0%}"
        )
        assert sum(history[-10:]) < sum(history[:10])
        if steps >= 150:
            assert dev < 0.7 * dev0 and mae < 0.8 * mae0 and share < 0.4
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(
            worker,
            (arguments.steps, os.path.join(folder, "meet")),
            nprocs=WORLD,
            start_method="fork",
        )
