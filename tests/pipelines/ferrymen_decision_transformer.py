"""Offline RL as sequence modelling (Decision Transformer) for a ferry that must hold mid-river.

Logged crossings of good, tipsy and drunk ferrymen -> model p(action | past, wished return).
Context windows that begin before the crossing does are padded on the left.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

T, K, SCALE, ACTIONS = 20, 8, 10.0, torch.tensor([-0.3, 0.0, 0.3])


class River:
    """Many independent crossings at once. reward = -(distance to the middle)."""

    def __init__(self, n, seed):
        self.g = torch.Generator().manual_seed(seed)
        side = torch.randint(0, 2, (n,), generator=self.g) * 2 - 1
        self.x = side * (1 + torch.rand(n, generator=self.g))
        self.current = (torch.rand(n, generator=self.g) - 0.5) * 0.3

    def observe(self):
        return torch.stack([self.x, self.current * 5], 1)

    def step(self, action):
        noise = 0.02 * torch.randn(len(self.x), generator=self.g)
        self.x = self.x + ACTIONS[action] + self.current + noise
        return -self.x.abs()


def log_crossings(n, seed):
    river = River(n, seed)
    g = torch.Generator().manual_seed(seed + 1)
    tipsiness = torch.tensor([0.15, 0.5, 1.0])[torch.randint(0, 3, (n,), generator=g)]
    states, actions, rewards = [], [], []
    for _ in range(T):
        best = (river.x[:, None] + river.current[:, None] + ACTIONS).abs().argmin(1)
        random = torch.randint(0, 3, (n,), generator=g)
        act = torch.where(torch.rand(n, generator=g) < tipsiness, random, best)
        states.append(river.observe())
        actions.append(act)
        rewards.append(river.step(act))
    rewards = torch.stack(rewards, 1)
    to_go = rewards.flip(1).cumsum(1).flip(1)  # with the reward of the step itself
    assert torch.allclose(to_go[:, 0], rewards.sum(1), atol=1e-4)
    return torch.stack(states, 1), torch.stack(actions, 1), to_go


class DecisionTransformer(nn.Module):
    def __init__(self, d=48, heads=3, layers=2):
        super().__init__()
        self.wish, self.state = nn.Linear(1, d), nn.Linear(2, d)
        self.act, self.time = nn.Embedding(3, d), nn.Embedding(T, d)
        self.norm_in = nn.LayerNorm(d)
        layer = nn.TransformerEncoderLayer(
            d, heads, 2 * d, dropout=0.1, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
        )
        self.head = nn.Linear(d, 3)
        self.heads = heads

    def forward(self, to_go, state, action, time, valid):
        b, k = time.shape
        when = self.time(time)
        x = torch.stack(
            [
                self.wish(to_go[..., None] / SCALE) + when,
                self.state(state) + when,
                self.act(action) + when,
            ],
            2,
        ).reshape(b, 3 * k, -1)
        real = valid.repeat_interleave(3, dim=1)
        n = 3 * k
        allowed = torch.ones(n, n, dtype=torch.bool).tril() & real[:, None, :]
        allowed = allowed | torch.eye(n, dtype=torch.bool)  # keeps padded rows finite
        mask = (~allowed).repeat_interleave(self.heads, dim=0)  # True = may not look
        x = self.body(self.norm_in(x), mask=mask)
        return self.head(
            x[:, 1::3]
        )  # read at the state: the action itself comes after it


def windows(states, actions, to_go, rows, ends):
    """Windows of K steps that end at `ends`; what lies before the crossing is padding."""
    time = ends[:, None] - K + 1 + torch.arange(K)
    valid = time >= 0
    time = time.clamp(min=0)
    r = rows[:, None]
    keep = valid.float()
    return (
        to_go[r, time] * keep,
        states[r, time] * keep[..., None],
        actions[r, time] * valid,
        time,
        valid,
    )


@torch.no_grad()
def sail(model, wish, n=128, seed=900):
    """Mean return when `wish` is asked for; always the same crossings."""
    model.eval()
    river = River(n, seed)
    states, actions = torch.zeros(n, T, 2), torch.zeros(n, T, dtype=torch.long)
    to_go, total, rows = torch.zeros(n, T), torch.zeros(n), torch.arange(n)
    remaining = torch.full((n,), float(wish))
    for t in range(T):
        states[:, t], to_go[:, t] = river.observe(), remaining
        logits = model(*windows(states, actions, to_go, rows, torch.full((n,), t)))
        actions[:, t] = logits[:, -1].argmax(-1)
        reward = river.step(actions[:, t])
        remaining, total = remaining - reward, total + reward
    model.train()
    return total.mean().item()


@torch.no_grad()
def action_loss(model, log, seed=77):
    model.eval()
    g = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, len(log[0]), (256,), generator=g)
    batch = windows(*log, rows, torch.randint(0, T, (256,), generator=g))
    valid = batch[-1]
    loss = F.cross_entropy(model(*batch)[valid], batch[2][valid]).item()
    model.train()
    return loss


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    steps = p.parse_args().steps
    torch.manual_seed(8)
    log, fresh = log_crossings(600, seed=1), log_crossings(200, seed=50)
    returns = log[2][:, 0]
    high, low = returns.quantile(0.9).item(), returns.quantile(0.1).item()
    print(f"logged returns: mean {returns.mean():.2f}, 10% {low:.2f}, 90% {high:.2f}")
    model = DecisionTransformer()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    start = action_loss(model, fresh)
    for step in range(1, steps + 1):
        rows, ends = torch.randint(0, len(returns), (48,)), torch.randint(0, T, (48,))
        batch = windows(*log, rows, ends)
        valid = batch[-1]
        assert valid[:, -1].all()
        loss = F.cross_entropy(model(*batch)[valid], batch[2][valid])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        warm.step()
        if step % 40 == 0:
            print(
                f"step {step} loss {loss.item():.3f} fresh log {action_loss(model, fresh):.3f} "
                f"return when asked for {high:.1f}: {sail(model, high):.2f}"
            )
    end, good, bad = action_loss(model, fresh), sail(model, high), sail(model, low)
    print(
        f"action loss {start:.3f} -> {end:.3f}; asked {high:.1f} got {good:.2f}; "
        f"asked {low:.1f} got {bad:.2f}"
    )
    if steps >= 200:
        assert end < 0.9 * start and good > returns.mean().item() + 2 and good > bad


if __name__ == "__main__":
    main()
