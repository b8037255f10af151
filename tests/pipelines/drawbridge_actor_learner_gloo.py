"""Drawbridge keeper, actor and learner in two gloo processes (IMPALA in the small).

rank 0  learner: owns the optimizer; broadcasts flat weights, receives rollouts, V-trace update
rank 1  actor:   32 bridges in parallel; its network never sees a gradient or an optimizer,
        it is only overwritten by each broadcast
The learner trains on rollout i-1 while the actor already plays rollout i, so the data are one
update old; the clipped V-trace ratios account for that. Bridges never end (no terminations): a
rollout is a window of 20 ticks from a random start, and its last value is always bootstrapped.
"""
import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector

ENVS, HORIZON, OBS, GAMMA = 32, 20, 4, 0.95
ACTOR, LEARNER = 1, 0


class Keeper(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(OBS, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh()
        )
        self.pi, self.v = nn.Linear(48, 2), nn.Linear(48, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.pi(h).log_softmax(-1), self.v(h).squeeze(-1)


class Bridges:
    """Cars queue when the bridge is up, ships when it is down; moving it costs a tick."""

    def __init__(self, n, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.n = n
        self.reset()

    def reset(self):
        """Any mix of queues, bridge up or down: also states a bad policy never leaves."""
        u = torch.rand(3, self.n, generator=self.g)
        self.cars, self.ships = (12 * u[0]).floor(), (4 * u[1]).floor()
        self.up, self.moving = (u[2] < 0.5).float(), torch.zeros(self.n)

    def obs(self):
        return torch.stack([self.cars / 10, self.ships / 3, self.up, self.moving], 1)

    def step(self, action):
        want = action.float()
        self.moving = (want != self.up).float()
        self.up = want
        free = 1 - self.moving
        self.cars += torch.poisson(torch.full((self.n,), 1.2), generator=self.g)
        self.ships += (torch.rand(self.n, generator=self.g) < 0.25).float()
        self.cars = (self.cars - 4 * free * (1 - self.up)).clamp(0, 30)
        self.ships = (self.ships - 2 * free * self.up).clamp(0, 8)
        return -(0.1 * self.cars + 0.5 * self.ships)  # cost of waiting per tick


@torch.no_grad()
def score(choose, seed=999, ticks=100):
    env, total = Bridges(64, seed), 0.0
    for _ in range(ticks):
        total += env.step(choose(env.obs())).mean().item()
    return total / ticks


def greedy_score(model):
    return score(lambda obs: model(obs)[0].argmax(-1))


def load_flat(model, vec):
    with torch.no_grad():
        at = 0
        for p in model.parameters():
            p.copy_(vec[at : at + p.numel()].view_as(p))
            at += p.numel()
    assert at == vec.numel()


def actor(updates):
    torch.manual_seed(100)
    model = Keeper().requires_grad_(False)
    env, gen = Bridges(ENVS, 5), torch.Generator().manual_seed(6)
    vec = torch.empty(sum(p.numel() for p in model.parameters()))
    for _ in range(updates):
        dist.broadcast(vec, LEARNER)
        load_flat(model, vec)
        env.reset()
        obs, acts, mus, rews = [env.obs()], [], [], []
        for _ in range(HORIZON):
            logp, _ = model(obs[-1])
            a = torch.multinomial(logp.exp(), 1, generator=gen).squeeze(1)
            rews.append(env.step(a))
            acts.append(a)
            mus.append(logp.gather(1, a[:, None]).squeeze(1))
            obs.append(env.obs())
        for item in (obs, acts, mus, rews):
            dist.send(torch.stack(item), LEARNER)


def receive():
    obs = torch.empty(HORIZON + 1, ENVS, OBS)
    acts = torch.empty(HORIZON, ENVS, dtype=torch.long)
    mus, rews = torch.empty(HORIZON, ENVS), torch.empty(HORIZON, ENVS)
    for t in (obs, acts, mus, rews):
        dist.recv(t, ACTOR)
    return obs, acts, mus, rews


def vtrace_loss(model, obs, acts, mus, rews):
    logp_all, v = model(obs)
    logp = logp_all[:-1].gather(-1, acts[..., None]).squeeze(-1)
    with torch.no_grad():
        rho = (logp - mus).exp().clamp(max=1.0)
        rews = rews * (1 - GAMMA)  # values on the scale of one tick
        delta = rho * (rews + GAMMA * v[1:] - v[:-1])
        acc, out = torch.zeros(ENVS), []
        for t in reversed(range(HORIZON)):
            acc = delta[t] + GAMMA * rho[t] * acc  # c = rho: both are clipped at 1
            out.append(acc)
        vs = torch.stack(out[::-1]) + v[:-1]
        vs_next = torch.cat([vs[1:], v[-1:]])
        adv = rho * (rews + GAMMA * vs_next - v[:-1])
        adv = adv / (adv.std() + 1e-6)
    policy = -(logp * adv).mean()
    value = F.mse_loss(v[:-1], vs)
    entropy = -(logp_all[:-1].exp() * logp_all[:-1]).sum(-1).mean()
    return policy + 0.5 * value - 0.02 * entropy, value.item(), entropy.item()


def learner(updates):
    torch.manual_seed(0)
    model = Keeper()
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.99, eps=1e-4)
    before, pending, rewards = greedy_score(model), None, []

    def update(data):
        loss, value, ent = vtrace_loss(model, *data)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        rewards.append(data[3].mean().item())
        if len(rewards) % 30 == 0:
            print(
                f"update {len(rewards):4d}  reward/tick {sum(rewards[-30:]) / 30:.3f}  "
                f"value loss {value:.3f}  entropy {ent:.3f}",
                flush=True,
            )

    for _ in range(updates):
        dist.broadcast(
            parameters_to_vector(model.parameters()).detach().clone(), LEARNER
        )
        if pending is not None:
            update(pending)  # the actor is playing the next one meanwhile
        pending = receive()
    update(pending)  # the last rollout is used, too
    after = greedy_score(model)
    always = [score(lambda obs, k=k: torch.full((len(obs),), k)) for k in (0, 1)]
    print(
        f"greedy reward per tick {before:.3f} -> {after:.3f}; always down {always[0]:.3f}, "
        f"always up {always[1]:.3f}",
        flush=True,
    )
    assert len(rewards) == updates
    if updates >= 150:
        assert after > max(before, *always) + 0.2
        assert sum(rewards[-20:]) > sum(rewards[:20])


def main(rank, updates, port):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    learner(updates) if rank == LEARNER else actor(updates)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200, help="learner updates")
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free_port = s.getsockname()[1]
    mp.start_processes(
        main, args=(args.steps, free_port), nprocs=2, start_method="fork"
    )
