"""GFlowNet that lays parquet strips (6 places, 3 woods) in proportion to a taste score.

Trajectory balance:  (log Z + sum log P_F - log R - sum log P_B)^2
* places may be filled in any order, so P_B is uniform over the filled places: 1/t at size t
* log Z is a single number of its own parameter group with a far larger learning rate
* the behaviour policy mixes in some uniform play; TB is off-policy, so P_F in the loss is the
  pure model policy
The space has 729 strips, so Z and the whole sampling distribution can be checked exactly.
"""
import argparse
import itertools
import math
from dataclasses import dataclass

import torch
from torch import nn

SLOTS, WOODS = 6, 3
EMPTY = WOODS
ACTIONS = SLOTS * WOODS
LOG_PB = -math.lgamma(SLOTS + 1)  # sum over t of log(1/t)


@dataclass
class Config:
    steps: int = 500
    batch: int = 96
    lr: float = 2e-3
    lr_logz: float = 1.5e-1
    explore0: float = 0.2
    seed: int = 3


def log_reward(strips):
    """Neighbours should differ, mirrored places should match, dark wood (2) is liked twice."""
    differ = (strips[:, 1:] != strips[:, :-1]).float().sum(1)
    mirror = (strips == strips.flip(1)).float().sum(1) / 2
    dark = -((strips == 2).float().sum(1) - 2).abs()
    return 0.8 * differ + 1.0 * mirror + 0.7 * dark


class Layer(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(SLOTS * (WOODS + 1), width),
            nn.LeakyReLU(),
            nn.Linear(width, width),
            nn.LeakyReLU(),
            nn.Linear(width, ACTIONS),
        )
        self.log_z = nn.Parameter(torch.zeros(()))

    def log_policy(self, state):
        hot = nn.functional.one_hot(state, WOODS + 1).flatten(1).float()
        allowed = (state == EMPTY).repeat_interleave(WOODS, dim=1)
        logits = self.net(hot).masked_fill(~allowed, float("-inf"))
        return logits.log_softmax(-1), allowed


def roll(model, n, explore, gen):
    """Lay n strips; returns them and the model's own log P_F of the moves."""
    state = torch.full((n, SLOTS), EMPTY)
    log_pf = torch.zeros(n)
    rows = torch.arange(n)
    for _ in range(SLOTS):
        logp, allowed = model.log_policy(state)
        with torch.no_grad():
            uniform = allowed.float() / allowed.sum(1, keepdim=True)
            behaviour = (1 - explore) * logp.exp() + explore * uniform
            move = torch.multinomial(behaviour, 1, generator=gen).squeeze(1)
        log_pf = log_pf + logp[rows, move]
        state = state.clone()
        state[rows, move // WOODS] = move % WOODS
    return state, log_pf


def all_strips():
    return torch.tensor(list(itertools.product(range(WOODS), repeat=SLOTS)))


@torch.no_grad()
def exact_sampling_distribution(model):
    """Push probability through the whole lattice of part-laid strips (4^6 states)."""
    states = torch.tensor(list(itertools.product(range(WOODS + 1), repeat=SLOTS)))
    base = (WOODS + 1) ** torch.arange(SLOTS - 1, -1, -1)
    mass = torch.zeros(len(states))
    mass[(torch.full((SLOTS,), EMPTY) * base).sum()] = 1.0
    filled = (states != EMPTY).sum(1)
    for t in range(SLOTS):
        here = (filled == t).nonzero().squeeze(1)
        logp, _ = model.log_policy(states[here])
        flow = mass[here, None] * logp.exp()
        for slot in range(SLOTS):
            for wood in range(WOODS):
                can = states[here, slot] == EMPTY
                child = here[can] + (wood - EMPTY) * base[slot]
                mass.index_add_(0, child, flow[can, slot * WOODS + wood])
    keys = (all_strips() * base).sum(1)
    return mass[keys]


def total_variation(model, target):
    sampled = exact_sampling_distribution(model)
    assert (
        abs(sampled.sum().item() - 1) < 1e-3
    ), "the policy's mass must reach full strips"
    return 0.5 * (sampled - target).abs().sum().item()


def train(cfg):
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed + 1)
    strips = all_strips()
    true_log_z = log_reward(strips).logsumexp(0)
    target = (log_reward(strips) - true_log_z).exp()

    model = Layer()
    opt = torch.optim.Adam(
        [
            {"params": model.net.parameters(), "lr": cfg.lr},
            {"params": [model.log_z], "lr": cfg.lr_logz},
        ]
    )
    anneal = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=cfg.steps)
    tv0 = total_variation(model, target)
    print(f"true log Z {true_log_z:.3f}; total variation at the start {tv0:.3f}")
    losses = []
    for step in range(1, cfg.steps + 1):
        explore = cfg.explore0 * (1 - step / cfg.steps)
        laid, log_pf = roll(model, cfg.batch, explore, gen)
        residual = model.log_z + log_pf - log_reward(laid) - LOG_PB
        loss = residual.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        anneal.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(
                f"step {step:4d}  tb {sum(losses[-50:]) / 50:8.4f}  log Z "
                f"{model.log_z.item():.3f}  mean log R {log_reward(laid).mean():.3f}"
            )
    tv1 = total_variation(model, target)
    print(f"total variation at the end {tv1:.3f}, log Z {model.log_z.item():.3f}")
    return tv0, tv1, losses, abs(model.log_z.item() - true_log_z.item())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    cfg = Config(steps=ap.parse_args().steps)
    tv0, tv1, losses, off = train(cfg)
    if cfg.steps >= 400:
        assert tv1 < 0.6 * tv0 and off < 0.3, (tv0, tv1, off)
        assert sum(losses[-20:]) < 0.1 * sum(losses[:20])
