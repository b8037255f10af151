"""A kite pilot learned by differentiating through the simulator (no data set, no policy gradient).

The loss is the mean cost of a rollout; its gradient runs through the physics.  What is done on
purpose: the horizon grows during training, gradients fade as they run back through time, and each
step uses only the DIRECTION of the gradient (its length varies by orders of magnitude between
rollouts), the step's length coming from a cosine schedule.
"""
import argparse
import math

import torch
import torch.nn as nn

DT, FULL, SHORT, FADE, STEPS = 0.1, 40, 10, 0.97, 70


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )
        nn.init.zeros_(self.net[-1].weight)  # starts with hands off
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, angle, speed, goal, wind):
        x = torch.stack([angle, speed, goal, goal - angle, wind], 1)
        return 2 * torch.tanh(self.net(x).squeeze(1))


def hands_off(angle, speed, goal, wind):
    return torch.zeros_like(angle)


def fade(x):
    """Same value, gradient times FADE."""
    return FADE * x + (1 - FADE) * x.detach()


def start(n, g):
    u = torch.rand(n, 4, generator=g)
    angle, speed, goal = 2 * u[:, 0] - 1, u[:, 1] - 0.5, 1.6 * u[:, 2] - 0.8
    return angle, speed, goal, 0.6 + 0.8 * u[:, 3]


def rollout(pilot, n, horizon, g):
    """Mean cost per step. The wind wanders, so the pilot has to look at it."""
    angle, speed, goal, wind = start(n, g)
    cost = 0.0
    for _ in range(horizon):
        pull = pilot(angle, speed, goal, wind)
        force = 2 * wind * pull - 1.5 * torch.sin(angle) - 0.5 * speed
        speed = fade(speed) + DT * force
        angle = fade(angle) + DT * speed  # semi-implicit Euler
        gust = torch.randn(n, generator=g)
        wind = (wind + 0.1 * (1.0 - wind) + 0.05 * gust).clamp(0.4, 1.6)
        cost = cost + ((angle - goal).square() + 0.01 * pull.square()).mean()
    return cost / horizon


@torch.no_grad()
def test_cost(pilot):
    """Full horizon, always the same starts and gusts."""
    return rollout(pilot, 256, FULL, torch.Generator().manual_seed(123)).item()


class DirectionDescent(torch.optim.Optimizer):
    """p <- p - lr * m, with m a running mean of unit-length gradients (one length for all)."""

    def __init__(self, params, lr, momentum=0.7):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        live = [
            p
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        length = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in live]))
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("mean", torch.zeros_like(p))
                m.mul_(group["momentum"]).add_(
                    p.grad / (length + 1e-12), alpha=1 - group["momentum"]
                )
                p.sub_(m, alpha=group["lr"])
        return loss


def horizon_at(step, steps):
    grown = SHORT + (FULL - SHORT) * step / max(1, int(0.6 * steps))
    return min(FULL, int(grown))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=STEPS)
    steps = ap.parse_args().steps
    torch.manual_seed(6)
    g = torch.Generator().manual_seed(7)
    pilot = Policy()
    assert test_cost(pilot) == test_cost(
        hands_off
    ), "an untrained pilot keeps hands off"

    # fading changes the gradient only, never the value
    x = torch.tensor([0.3], requires_grad=True)
    y = fade(x)
    y.backward()
    assert torch.allclose(y, x) and math.isclose(x.grad.item(), FADE, rel_tol=1e-5)

    opt = DirectionDescent(pilot.parameters(), lr=0.1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps, eta_min=0.005)
    base, best = test_cost(hands_off), math.inf
    for step in range(steps):
        horizon = horizon_at(step, steps)
        cost = rollout(pilot, 64, horizon, g)
        opt.zero_grad()
        cost.backward()
        opt.step()
        cosine.step()
        if step % 15 == 0 or step == steps - 1:
            now = test_cost(pilot)
            best = min(best, now)
            print(
                f"step {step:3d} horizon {horizon:2d} cost {cost.item():.4f} test {now:.4f} "
                f"lr {cosine.get_last_lr()[0]:.3f}"
            )
    final = test_cost(pilot)
    print(f"test cost: hands off {base:.4f}, learned {final:.4f}")
    if steps >= STEPS:
        assert horizon == FULL and final < 0.5 * base and final < 1.2 * best


if __name__ == "__main__":
    main()
