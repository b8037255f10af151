import argparse
import torch
import torch.nn as nn
from torch.distributions import Normal


class Balance:
    """A batch of unstable carts that must be held near a moving mark; episodes are cut by a time limit."""

    def __init__(self, num_envs, max_steps, seed):
        self.num_envs, self.max_steps = num_envs, max_steps
        self.gen = torch.Generator().manual_seed(seed)
        self.s = torch.zeros(num_envs, 3)
        self.t = torch.zeros(num_envs, dtype=torch.long)

    def reset(self, mask=None):
        mask = torch.ones(self.num_envs, dtype=torch.bool) if mask is None else mask
        n = int(mask.sum())
        self.s[mask] = torch.stack(
            [
                (torch.rand(n, generator=self.gen) * 2 - 1) * 2.0,
                (torch.rand(n, generator=self.gen) * 2 - 1) * 0.5,
                torch.rand(n, generator=self.gen) * 2 - 1,
            ],
            1,
        )
        self.t[mask] = 0
        return self.s.clone()

    def step(self, a):
        x, v, mark = self.s.unbind(1)
        v = v + 0.15 * (a.squeeze(1).clamp(-2, 2) + 0.3 * x)
        x = x + 0.15 * v
        self.s = torch.stack([x, 0.98 * v, mark], 1)
        self.t += 1
        terminated = x.abs() > 4.0
        reward = (
            1.0
            - 0.25 * (x - mark).pow(2).clamp(max=8.0)
            - 0.02 * a.squeeze(1).pow(2).clamp(max=4.0)
            - 4.0 * terminated
        )
        truncated = (self.t >= self.max_steps) & ~terminated
        final = self.s.clone()
        ended = terminated | truncated
        if ended.any():
            self.reset(ended)
        return self.s.clone(), reward, terminated, truncated, final


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, 48), nn.ELU(), nn.Linear(48, 48), nn.ELU(), nn.Linear(48, 1)
        )
        self.log_std = nn.Parameter(torch.zeros(1))

    def dist(self, s):
        return Normal(self.net(s), self.log_std.exp())


class Value(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, 48), nn.ELU(), nn.Linear(48, 48), nn.ELU(), nn.Linear(48, 1)
        )

    def forward(self, s):
        return self.net(s).squeeze(-1)


def compute_gae(rewards, terminated, ends, values, next_values, gamma, lam):
    advantage = 0
    advantages = torch.zeros_like(rewards)
    alive, keep = terminated.logical_not(), ends.logical_not()
    for i in reversed(range(rewards.shape[0])):
        delta = rewards[i] + gamma * alive[i] * next_values[i] - values[i]
        advantage = delta + gamma * lam * keep[i] * advantage
        advantages[i] = advantage
    return advantages


class PPO:
    def __init__(self, cfg):
        self.cfg = cfg
        self.policy, self.value = Policy(), Value()
        self.optimizer = torch.optim.Adam(
            [*self.policy.parameters(), *self.value.parameters()], lr=cfg.lr
        )
        self.updates = 0

    @torch.no_grad()
    def collect(self, env, s):
        keys = (
            "states",
            "actions",
            "log_prob",
            "rewards",
            "values",
            "terminated",
            "truncated",
            "next_values",
        )
        mem = {k: [] for k in keys}
        for _ in range(self.cfg.rollouts):
            d = self.policy.dist(s)
            a = d.sample()
            v = self.value(s)
            nxt, r, term, trunc, final = env.step(a)
            row = (s, a, d.log_prob(a).squeeze(1), r, v, term, trunc, self.value(final))
            for k, x in zip(keys, row):
                mem[k].append(x)
            s = nxt
        return s, {k: torch.stack(x) for k, x in mem.items()}

    def update(self, mem):
        c = self.cfg
        ends = mem["terminated"]
        if c.fixed:
            ends = ends | mem["truncated"]
        adv = compute_gae(
            mem["rewards"],
            mem["terminated"],
            ends,
            mem["values"],
            mem["next_values"],
            c.gamma,
            c.lam,
        )
        ret = adv + mem["values"]
        norm = (adv - adv.mean()) / (adv.std() + 1e-8)
        flat = [
            mem["states"].flatten(0, 1),
            mem["actions"].flatten(0, 1),
            mem["log_prob"].flatten(),
            norm.flatten(),
            ret.flatten(),
        ]
        n, sums = len(flat[0]), [0.0, 0.0]
        for _ in range(c.learning_epochs):
            for idx in torch.randperm(n).chunk(c.mini_batches):
                s, a, lp, ad, rt = (x[idx] for x in flat)
                d = self.policy.dist(s)
                ratio = (d.log_prob(a).squeeze(1) - lp).exp()
                pl = -torch.min(
                    ratio * ad, ratio.clamp(1 - c.clip, 1 + c.clip) * ad
                ).mean()
                vl = nn.functional.mse_loss(self.value(s), rt)
                loss = pl + 0.5 * vl - 0.003 * d.entropy().mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(
                    [*self.policy.parameters(), *self.value.parameters()], 1.0
                )
                self.optimizer.step()
                self.updates += 1
                sums[0] += pl.item()
                sums[1] += vl.item()
        k = c.learning_epochs * c.mini_batches
        return adv, sums[0] / k, sums[1] / k


def episodewise(mem, gamma, lam):
    T, N = mem["rewards"].shape
    out = torch.zeros(T, N)
    for e in range(N):
        begin = 0
        for t in range(T):
            if mem["terminated"][t, e] or mem["truncated"][t, e] or t == T - 1:
                acc = 0.0
                for k in reversed(range(begin, t + 1)):
                    nxt = (
                        0.0
                        if mem["terminated"][k, e]
                        else mem["next_values"][k, e].item()
                    )
                    acc = (
                        mem["rewards"][k, e].item()
                        + gamma * nxt
                        - mem["values"][k, e].item()
                        + gamma * lam * acc
                    )
                    out[k, e] = acc
                begin = t + 1
    return out


@torch.no_grad()
def evaluate(agent, horizon):
    env = Balance(128, horizon + 1, 4242)
    s, alive, total = env.reset(), torch.ones(128), torch.zeros(128)
    for _ in range(horizon):
        s, r, term, _, _ = env.step(agent.policy.net(s))
        total += alive * r
        alive = alive * (~term)
    return total.mean().item(), alive.mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iterations", "--epochs", type=int, default=25)
    p.add_argument("--num_envs", type=int, default=32)
    p.add_argument("--rollouts", type=int, default=32)
    p.add_argument("--max_steps", type=int, default=10)
    p.add_argument("--learning_epochs", type=int, default=5)
    p.add_argument("--mini_batches", type=int, default=4)
    p.add_argument("--gamma", type=float, default=0.97)
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    cfg = p.parse_args()
    torch.manual_seed(cfg.seed)
    env, agent, worst = Balance(cfg.num_envs, cfg.max_steps, cfg.seed), PPO(cfg), 0.0
    s = env.reset()
    for it in range(cfg.iterations):
        s, mem = agent.collect(env, s)
        adv, pl, vl = agent.update(mem)
        if cfg.prove and it < 3:
            worst = max(
                worst, (adv - episodewise(mem, cfg.gamma, cfg.lam)).abs().max().item()
            )
        if it % 5 == 4:
            score, kept = evaluate(agent, 60)
            print(
                f"iteration {it + 1:3d} updates {agent.updates:4d} reward/step {mem['rewards'].mean():.3f} policy {pl:+.4f} value {vl:.3f} eval {score:.2f} kept {kept:.2f}"
            )
    if cfg.prove:
        print(
            f"largest difference to advantages computed episode by episode: {worst:.4f}"
        )
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
