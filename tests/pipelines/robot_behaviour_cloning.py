# Behaviour cloning for a planar two-link arm.
# The demonstrator reaches elbow-up or elbow-down at will, so the policy head is a
# mixture of Gaussians. Evaluation (likelihood and roll-outs) uses the EMA weights.
import argparse
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

L1 = L2 = 1.0
MAX_STEP = 0.25


def forward_kinematics(q):
    x = L1 * np.cos(q[..., 0]) + L2 * np.cos(q[..., 0] + q[..., 1])
    y = L1 * np.sin(q[..., 0]) + L2 * np.sin(q[..., 0] + q[..., 1])
    return np.stack([x, y], -1)


def inverse_kinematics(target, elbow):
    d2 = (target**2).sum()
    q2 = elbow * math.acos(np.clip((d2 - L1**2 - L2**2) / (2 * L1 * L2), -1, 1))
    q1 = math.atan2(target[1], target[0]) - math.atan2(
        L2 * math.sin(q2), L1 + L2 * math.cos(q2)
    )
    return np.array([q1, q2])


def wrap(a):
    return (a + np.pi) % (2 * np.pi) - np.pi


def observe(q, target):
    return np.concatenate(
        [np.cos(q), np.sin(q), forward_kinematics(q), target], -1
    ).astype(np.float32)


def random_target(rng):
    radius, angle = rng.uniform(0.6, 1.8), rng.uniform(-np.pi, np.pi)
    return np.array([radius * np.cos(angle), radius * np.sin(angle)])


def collect_demo(rng, horizon=25):
    q = rng.uniform([-np.pi, -2.5], [np.pi, 2.5])
    target = random_target(rng)
    # mostly the elbow side the arm is already on
    side = 1.0 if q[1] > 0 else -1.0
    goal = inverse_kinematics(target, side if rng.random() < 0.85 else -side)
    obs, act = [], []
    for _ in range(horizon):
        a = np.clip(0.5 * wrap(goal - q), -MAX_STEP, MAX_STEP)
        obs.append(observe(q, target))
        act.append(a.astype(np.float32))
        q = q + a + rng.normal(0, 0.02, 2)
    return np.stack(obs), np.stack(act)


class MixturePolicy(nn.Module):
    def __init__(self, obs_dim, act_dim, components=4, hidden=128):
        super().__init__()
        self.k, self.act_dim = components, act_dim
        self.register_buffer("obs_mean", torch.zeros(obs_dim))
        self.register_buffer("obs_std", torch.ones(obs_dim))
        self.trunk = nn.Sequential(
            nn.Linear(obs_dim, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Dropout(0.05),
        )
        self.head = nn.Linear(hidden, components * (1 + 2 * act_dim))

    def fit_normaliser(self, obs):
        self.obs_mean.copy_(obs.mean(0))
        self.obs_std.copy_(obs.std(0).clamp_min(1e-3))

    def forward(self, obs):
        h = self.head(self.trunk((obs - self.obs_mean) / self.obs_std))
        logits, mean, log_std = h.split(
            [self.k, self.k * self.act_dim, self.k * self.act_dim], -1
        )
        mean = MAX_STEP * torch.tanh(mean.view(-1, self.k, self.act_dim))
        log_std = log_std.view(-1, self.k, self.act_dim).clamp(-3.5, 0.0)
        return F.log_softmax(logits, -1), mean, log_std

    def log_prob(self, obs, act):
        log_pi, mean, log_std = self(obs)
        z = (act.unsqueeze(1) - mean) * torch.exp(-log_std)
        comp = -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)
        return torch.logsumexp(log_pi + comp.sum(-1), dim=-1)

    def act(self, obs):
        log_pi, mean, _ = self(obs)
        return mean[torch.arange(len(obs)), log_pi.argmax(-1)]


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.updates = 0
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - d)
        for s, b in zip(self.shadow.buffers(), model.buffers()):
            s.copy_(b)


@torch.no_grad()
def rollouts(policy, n, seed, horizon=40):
    rng = np.random.default_rng(seed)
    q = rng.uniform([-np.pi, -2.5], [np.pi, 2.5], size=(n, 2))
    target = np.stack([random_target(rng) for _ in range(n)])
    for _ in range(horizon):
        q = q + policy.act(torch.from_numpy(observe(q, target))).numpy()
    return float(
        (np.linalg.norm(forward_kinematics(q) - target, axis=-1) < 0.15).mean()
    )


def main(args):
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    demos = [collect_demo(rng) for _ in range(240)]
    held_out = demos[200:]
    obs = torch.from_numpy(np.concatenate([o for o, _ in demos[:200]]))
    act = torch.from_numpy(np.concatenate([a for _, a in demos[:200]]))
    val_obs = torch.from_numpy(np.concatenate([o for o, _ in held_out]))
    val_act = torch.from_numpy(np.concatenate([a for _, a in held_out]))

    policy = MixturePolicy(obs.size(1), act.size(1))
    policy.fit_normaliser(obs)
    ema = EMA(policy, decay=0.99)
    optim = torch.optim.AdamW(policy.parameters(), lr=2e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, T_max=args.steps)

    step = 0
    while step < args.steps:
        for idx in torch.randperm(len(obs)).split(args.batch):
            policy.train()
            noisy = obs[idx] + 0.01 * torch.randn_like(obs[idx])
            loss = -policy.log_prob(noisy, act[idx]).mean()
            optim.zero_grad(set_to_none=True)
            loss.backward()
            grad_norm = nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
            optim.step()
            sched.step()
            ema.update(policy)
            step += 1
            if step % 50 == 0 or step == args.steps:
                with torch.no_grad():
                    val_nll = -ema.shadow.log_prob(val_obs, val_act).mean().item()
                print(
                    f"{step:4d} train nll {loss.item():.3f} val nll {val_nll:.3f} grad {grad_norm:.2f} "
                    f"success {rollouts(ema.shadow, 100, seed=99):.2f}"
                )
            if step == args.steps:
                break


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
