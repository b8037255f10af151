"""TD3 with many parallel environments and multi-step returns on a reach task."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class ReachEnv:
    """n point masses in the plane, each must get to its own goal."""

    obs_dim, act_dim, limit = 6, 2, 60

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)
        self.pos, self.vel, self.goal = (torch.zeros(n, 2) for _ in range(3))
        self.t = torch.zeros(n, dtype=torch.long)
        self._reset(torch.ones(n, dtype=torch.bool))

    def _reset(self, mask):
        k = int(mask.sum())
        self.pos[mask] = torch.rand(k, 2, generator=self.g) * 2 - 1
        self.goal[mask] = torch.rand(k, 2, generator=self.g) * 2 - 1
        self.vel[mask] = 0.0
        self.t[mask] = 0

    def obs(self):
        return torch.cat([self.pos, self.vel, self.goal - self.pos], 1)

    def step(self, act):
        self.vel = 0.8 * self.vel + 0.08 * act.clamp(-1, 1)
        self.pos = (self.pos + self.vel).clamp(-1.5, 1.5)
        self.t += 1
        dist = (self.goal - self.pos).norm(dim=1)
        reached = dist < 0.08
        reward = -dist - 0.05 * act.pow(2).sum(1) + 2.0 * reached
        timeout = (self.t >= self.limit) & ~reached
        final = self.obs()
        over = reached | timeout
        if over.any():
            self._reset(over)
        return self.obs(), reward, reached.float(), timeout.float(), final


class ReplayBuffer:
    def __init__(self, n_env, size, obs_dim, act_dim, n_steps, gamma):
        self.n_env, self.size, self.n_steps, self.gamma = n_env, size, n_steps, gamma
        self.obs, self.next_obs = torch.zeros(n_env, size, obs_dim), torch.zeros(
            n_env, size, obs_dim
        )
        self.act = torch.zeros(n_env, size, act_dim)
        self.rew, self.done, self.trunc = (torch.zeros(n_env, size) for _ in range(3))
        self.ptr = 0

    def extend(self, obs, act, rew, done, trunc, next_obs):
        i = self.ptr % self.size
        self.obs[:, i], self.act[:, i], self.rew[:, i] = obs, act, rew
        self.done[:, i], self.trunc[:, i], self.next_obs[:, i] = done, trunc, next_obs
        self.ptr += 1

    def sample(self, batch, g):
        filled = min(self.ptr, self.size)
        oldest = self.ptr - filled
        start = oldest + torch.randint(
            0, filled - self.n_steps + 1, (batch,), generator=g
        )
        env = torch.randint(0, self.n_env, (batch,), generator=g)
        total = torch.zeros(batch)
        alive = torch.ones(batch)
        last = start.clone()
        used = torch.zeros(batch)
        for k in range(self.n_steps):
            i = (start + k) % self.size
            total += alive * self.gamma**k * self.rew[env, i]
            last = torch.where(alive > 0, start + k, last)
            used += alive
            alive = alive * (1 - self.done[env, i]) * (1 - self.trunc[env, i])
        first, last = start % self.size, last % self.size
        return {
            "obs": self.obs[env, first],
            "act": self.act[env, first],
            "rew": total,
            "n": used,
            "next_obs": self.next_obs[env, last],
            "done": self.done[env, last],
        }


def mlp(i, o, h=64):
    return nn.Sequential(
        nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o)
    )


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.net = mlp(obs_dim, act_dim)

    def forward(self, o):
        return torch.tanh(self.net(o))


class TwinCritic(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.q1, self.q2 = mlp(obs_dim + act_dim, 1), mlp(obs_dim + act_dim, 1)

    def forward(self, o, a):
        x = torch.cat([o, a], 1)
        return self.q1(x).squeeze(1), self.q2(x).squeeze(1)


class Agent:
    def __init__(self, args):
        self.args = args
        self.actor, self.critic = Actor(ReachEnv.obs_dim, ReachEnv.act_dim), TwinCritic(
            ReachEnv.obs_dim, ReachEnv.act_dim
        )
        self.actor_t, self.critic_t = copy.deepcopy(self.actor), copy.deepcopy(
            self.critic
        )
        self.a_opt = torch.optim.AdamW(self.actor.parameters(), lr=args.lr)
        self.c_opt = torch.optim.AdamW(self.critic.parameters(), lr=args.lr)

    @torch.no_grad()
    def target(self, b):
        noise = (0.2 * torch.randn_like(b["act"])).clamp(-0.4, 0.4)
        a = (self.actor_t(b["next_obs"]) + noise).clamp(-1, 1)
        q = torch.min(*self.critic_t(b["next_obs"], a))
        discount = self.args.gamma
        if self.args.fixed:
            discount = self.args.gamma ** b["n"]
        return b["rew"] + discount * (1 - b["done"]) * q, q

    def update(self, b, k):
        y, q_next = self.target(b)
        q1, q2 = self.critic(b["obs"], b["act"])
        c_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        self.c_opt.zero_grad()
        c_loss.backward()
        self.c_opt.step()
        if k % 2 == 0:
            a_loss = -self.critic(b["obs"], self.actor(b["obs"]))[0].mean()
            self.a_opt.zero_grad()
            a_loss.backward()
            self.a_opt.step()
            with torch.no_grad():
                for net, tgt in (
                    (self.actor, self.actor_t),
                    (self.critic, self.critic_t),
                ):
                    for p, pt in zip(net.parameters(), tgt.parameters()):
                        pt.lerp_(p, 2 * self.args.tau)
        return c_loss.item(), y, q_next


@torch.no_grad()
def evaluate(agent, gamma, n=64):
    env = ReachEnv(n, 999)
    o = env.obs()
    q0 = agent.critic(o, agent.actor(o))[0].mean().item()
    alive, ret, disc, won = (
        torch.ones(n),
        torch.zeros(n),
        torch.zeros(n),
        torch.zeros(n),
    )
    for t in range(ReachEnv.limit):
        o, r, done, trunc, _ = env.step(agent.actor(o))
        ret += alive * r
        disc += alive * gamma**t * r
        won += alive * done
        alive = alive * (1 - done) * (1 - trunc)
    return ret.mean().item(), won.mean().item(), q0, disc.mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--steps", type=int, default=240, help="environment steps after warm-up"
    )
    p.add_argument("--updates", type=int, default=3)
    p.add_argument("--num-envs", type=int, default=16)
    p.add_argument("--n-steps", type=int, default=3)
    p.add_argument("--gamma", type=float, default=0.95)
    p.add_argument("--tau", type=float, default=0.01)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed)

    env, agent = ReachEnv(args.num_envs, args.seed), Agent(args)
    rb = ReplayBuffer(
        args.num_envs, 200, env.obs_dim, env.act_dim, args.n_steps, args.gamma
    )
    obs, k, worst, warm = env.obs(), 0, 0.0, 40
    for t in range(warm + args.steps):
        with torch.no_grad():
            act = (
                torch.rand(args.num_envs, 2) * 2 - 1
                if t < warm
                else (agent.actor(obs) + 0.2 * torch.randn(args.num_envs, 2)).clamp(
                    -1, 1
                )
            )
        nxt, r, done, trunc, final = env.step(act)
        rb.extend(obs, act, r, done, trunc, final)
        obs = nxt
        if t < warm:
            continue
        for _ in range(args.updates):
            b = rb.sample(args.batch, g)
            loss, y, q_next = agent.update(b, k)
            if args.prove:
                worst = max(
                    worst,
                    (y - (b["rew"] + args.gamma ** b["n"] * (1 - b["done"]) * q_next))
                    .abs()
                    .max()
                    .item(),
                )
            k += 1
        if (t - warm + 1) % 60 == 0:
            ret, won, q0, mc = evaluate(agent, args.gamma)
            print(
                f"env step {t + 1:4d} update {k:4d} critic loss {loss:.4f} return {ret:7.2f} success {won:.2f} Q(s0) {q0:7.2f} discounted return {mc:7.2f}"
            )
    if args.prove:
        print(
            f"largest difference between the used and the {args.n_steps}-step target: {worst:.4f}"
        )
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
