"""Advantage actor-critic on a small grid maze, two worker processes.

Each process plays its own episodes, the gradients are exchanged by hand with
all_reduce (no DDP wrapper, since the model is called many times per update).
"""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributions import Categorical

SIDE = 6
MOVES = torch.tensor([[-1, 0], [1, 0], [0, -1], [0, 1]])


class VectorMaze:
    """n agents walk to a goal, both placed at random; -0.05 per move, +1 at the goal."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen
        self.agent = torch.zeros(n, 2, dtype=torch.long)
        self.goal = torch.zeros(n, 2, dtype=torch.long)
        self.age = torch.zeros(n, dtype=torch.long)
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        k = int(which.sum())
        if k:
            self.agent[which] = torch.randint(0, SIDE, (k, 2), generator=self.gen)
            self.goal[which] = torch.randint(0, SIDE, (k, 2), generator=self.gen)
            self.age[which] = 0

    def observe(self):
        a = nn.functional.one_hot(self.agent, SIDE).flatten(1)
        g = nn.functional.one_hot(self.goal, SIDE).flatten(1)
        return torch.cat([a, g, self.age[:, None] / 25.0], 1)

    def step(self, action):
        self.agent = (self.agent + MOVES[action]).clamp(0, SIDE - 1)
        self.age += 1
        at_goal = (self.agent == self.goal).all(1)
        reward = torch.where(at_goal, 1.0, -0.05)
        done = at_goal | (self.age >= 25)
        self.reset(done)
        return self.observe(), reward, done, at_goal


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4 * SIDE + 1, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
        )
        self.policy = nn.Linear(hidden, 4)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


def rollout(model, env, obs, horizon, gamma):
    logp, values, rewards, dones, entropy = [], [], [], [], []
    goals = 0
    for _ in range(horizon):
        pi, v = model(obs)
        action = torch.multinomial(pi.probs.detach(), 1, generator=env.gen).squeeze(1)
        logp.append(pi.log_prob(action))
        entropy.append(pi.entropy())
        values.append(v)
        obs, r, d, g = env.step(action)
        rewards.append(r)
        dones.append(d.float())
        goals += int(g.sum())
    with torch.no_grad():
        ret = model(obs)[1]
        returns = []
        for r, d in zip(reversed(rewards), reversed(dones)):
            ret = r + gamma * (1 - d) * ret
            returns.insert(0, ret)
    returns, values = torch.stack(returns), torch.stack(values)
    advantage = (returns - values).detach()
    actor = -(torch.stack(logp) * advantage).mean()
    critic = 0.5 * (returns - values).pow(2).mean()
    return (
        actor + critic - 0.01 * torch.stack(entropy).mean(),
        obs,
        goals,
        sum(d.sum() for d in dones).item(),
    )


def exchange_gradients(model, world_size, fixed):
    """one all_reduce over the flattened gradients"""
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    if fixed:
        flat /= world_size
    start = 0
    for g in grads:
        g.copy_(flat[start : start + g.numel()].view_as(g))
        start += g.numel()


def flat_grad(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def run(rank, world_size, init_file, args):
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=rank, world_size=world_size
    )
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)  # same start weights everywhere
    model = ActorCritic()
    env = VectorMaze(args.envs, torch.Generator().manual_seed(args.seed * 100 + rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    obs = env.observe()
    goals = episodes = 0
    ratio = 1.0

    for step in range(1, args.steps + 1):
        loss, obs, g, e = rollout(model, env, obs, args.horizon, args.gamma)
        optimizer.zero_grad()
        loss.backward()
        own = flat_grad(model) if args.prove and step == 1 else None
        exchange_gradients(model, world_size, args.fixed)
        if own is not None:
            both = [torch.zeros_like(own) for _ in range(world_size)]
            dist.all_gather(both, own)
            ratio = (flat_grad(model).norm() / torch.stack(both).mean(0).norm()).item()
        optimizer.step()
        goals, episodes = goals + g, episodes + e
        if step % 40 == 0 or step == args.steps:
            stats = torch.tensor([float(goals), float(episodes)])
            dist.all_reduce(stats)
            if rank == 0:
                print(
                    f"update {step:4d}  loss {loss.item():+.4f}  reached goal {stats[0] / stats[1]:.3f} "
                    f"of {int(stats[1])} episodes",
                    flush=True,
                )
            goals = episodes = 0

    if rank == 0 and args.prove:
        print("fault shows:", "yes" if abs(ratio - 1) > 0.1 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--envs", type=int, default=32)
    ap.add_argument("--horizon", type=int, default=10)
    ap.add_argument("--gamma", type=float, default=0.95)
    ap.add_argument("--lr", type=float, default=0.25)
    ap.add_argument("--seed", type=int, default=4)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(2, os.path.join(folder, "rendezvous"), args), nprocs=2)
