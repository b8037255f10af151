"""Proximal policy optimization of points that reach a goal, in reset environments.

After RLinf/RLinf, issue 661.
"""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ReachEnv:
    """A point on a line: reward 1 and the end at +1, a time limit of some steps."""

    def __init__(self, count, limit, seed):
        self.count, self.limit = count, limit
        self.rng = np.random.default_rng(seed)
        self.position, self.time = np.zeros(count), np.zeros(count, dtype=int)

    def reset(self, which=None):
        which = np.ones(self.count, dtype=bool) if which is None else which
        self.position[which] = self.rng.uniform(-0.8, 0.6, which.sum())
        self.time[which] = 0
        return self.observe()

    def observe(self):
        state = np.stack([self.position, self.time / self.limit], 1)
        return torch.tensor(state, dtype=torch.float32)

    def step(self, action):
        move = np.where(action == 1, 0.15, -0.15)
        self.position = self.position + move + self.rng.normal(0, 0.03, self.count)
        self.position = np.maximum(self.position, -1.0)
        self.time += 1
        terminated = self.position >= 1.0
        truncated = ~terminated & (self.time >= self.limit)
        reward = torch.tensor(terminated, dtype=torch.float32)
        final = self.observe()
        obs = self.reset(terminated | truncated)
        return obs, reward, torch.tensor(terminated), torch.tensor(truncated), final


class ActorCritic(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2)
        )
        self.critic = nn.Sequential(
            nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    def value(self, obs):
        return self.critic(obs).squeeze(-1)

    def policy(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs))


class Runner:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args = args
        self.env = ReachEnv(args.envs, args.limit, args.seed)
        self.model = ActorCritic()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.obs = self.env.reset()

    def bootstrap(self, reward, final, terminated, truncated):
        dones = terminated | truncated
        return reward + self.args.gamma * self.model.value(final) * dones

    @torch.no_grad()
    def rollout(self):
        keys = ("obs", "action", "logprob", "value", "reward", "done")
        data = {key: [] for key in keys}
        successes = ends = 0
        for _ in range(self.args.horizon):
            dist = self.model.policy(self.obs)
            action = dist.sample()
            logprob, value = dist.log_prob(action), self.model.value(self.obs)
            nxt, reward, terminated, truncated, final = self.env.step(action.numpy())
            done = terminated | truncated
            successes += int(terminated.sum())
            ends += int(done.sum())
            reward = self.bootstrap(reward, final, terminated, truncated)
            row = (self.obs, action, logprob, value, reward, done.float())
            for key, item in zip(keys, row):
                data[key].append(item)
            self.obs = nxt
        data = {key: torch.stack(items) for key, items in data.items()}
        return data, self.model.value(self.obs), successes / max(ends, 1)

    def gae(self, data, last_value):
        advantage = torch.zeros_like(data["reward"])
        running = torch.zeros(self.args.envs)
        for t in reversed(range(self.args.horizon)):
            last = t == self.args.horizon - 1
            nxt = last_value if last else data["value"][t + 1]
            alive = 1 - data["done"][t]
            target = data["reward"][t] + self.args.gamma * nxt * alive
            delta = target - data["value"][t]
            running = delta + self.args.gamma * self.args.lam * alive * running
            advantage[t] = running
        return advantage, advantage + data["value"]

    def loss(self, obs, action, logprob, advantage, returns):
        dist = self.model.policy(obs)
        ratio = (dist.log_prob(action) - logprob).exp()
        clipped = ratio.clamp(0.8, 1.2) * advantage
        surrogate = torch.min(ratio * advantage, clipped).mean()
        critic_loss = F.mse_loss(self.model.value(obs), returns)
        loss = -surrogate + 0.5 * critic_loss - 0.01 * dist.entropy().mean()
        return loss, critic_loss

    def update(self, data, advantage, returns):
        flat = [data[key].flatten(0, 1) for key in ("obs", "action", "logprob")]
        advantage, returns = advantage.flatten(), returns.flatten()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        flat += [advantage, returns]
        for _ in range(self.args.epochs):
            for index in torch.randperm(len(advantage)).chunk(self.args.minibatches):
                loss, critic_loss = self.loss(*(column[index] for column in flat))
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
                self.optimizer.step()
        return critic_loss.item()

    def run(self):
        for step in range(self.args.steps):
            data, last_value, success = self.rollout()
            advantage, returns = self.gae(data, last_value)
            critic_loss = self.update(data, advantage, returns)
            if step % 10 == 0 or step == self.args.steps - 1:
                print(
                    f"rollout {step} success {success:.2f} critic loss "
                    f"{critic_loss:.4f} mean return {returns.mean().item():.3f}",
                    flush=True,
                )


class TruncationRunner(Runner):
    def bootstrap(self, reward, final, terminated, truncated):
        return reward + self.args.gamma * self.model.value(final) * truncated


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40, help="rollouts")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=32)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=3, help="of a rollout")
    parser.add_argument("--minibatches", type=int, default=2)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--lam", type=float, default=0.95)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    runner = (TruncationRunner if args.fixed else Runner)(args)
    runner.run()
    if args.prove:
        value = runner.model.value(torch.tensor([[0.9, 0.2]])).item()
        print(f"value next to the goal {value:.3f}; no return is above 1")
        print("fault shows:", "yes" if value > 1.3 else "no", flush=True)


if __name__ == "__main__":
    main()
