# PPO on a vectorised cart-pole written in numpy (cleanrl-like single file)
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--steps",
        type=int,
        default=400,
        help="number of optimizer steps (rounded up to whole updates)",
    )
    p.add_argument("--num-envs", type=int, default=8)
    p.add_argument("--num-steps", type=int, default=128)
    p.add_argument("--update-epochs", type=int, default=4)
    p.add_argument("--num-minibatches", type=int, default=4)
    p.add_argument("--learning-rate", type=float, default=2.5e-3)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--gae-lambda", type=float, default=0.95)
    p.add_argument("--clip-coef", type=float, default=0.2)
    p.add_argument("--ent-coef", type=float, default=0.01)
    p.add_argument("--vf-coef", type=float, default=0.5)
    p.add_argument("--max-grad-norm", type=float, default=0.5)
    p.add_argument(
        "--reward-scale",
        type=float,
        default=0.1,
        help="keeps the value targets near one",
    )
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


class VecCartPole:
    """classic cart-pole dynamics, environments reset themselves; failing ends the episode"""

    MAX_LEN = 200

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.state, self.length = np.zeros((n, 4)), np.zeros(n, dtype=int)

    def _fresh(self, k):
        return self.rng.uniform(-0.05, 0.05, (k, 4))

    def reset(self):
        self.state = self._fresh(self.n)
        self.length[:] = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, xd, th, thd = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        tmp = (force + 0.05 * thd**2 * np.sin(th)) / 1.1
        thacc = (9.8 * np.sin(th) - np.cos(th) * tmp) / (
            0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1)
        )
        xacc = tmp - 0.05 * thacc * np.cos(th) / 1.1
        self.state = np.stack(
            [x + 0.02 * xd, xd + 0.02 * xacc, th + 0.02 * thd, thd + 0.02 * thacc], 1
        )
        self.length += 1
        terminated = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > 0.2095)
        truncated = (self.length >= self.MAX_LEN) & ~terminated
        final_obs = self.state.astype(np.float32)
        done = terminated | truncated
        finished = self.length[done].tolist()
        self.state[done] = self._fresh(done.sum())
        self.length[done] = 0
        return (
            self.state.astype(np.float32),
            np.ones(self.n, np.float32),
            terminated,
            truncated,
            final_obs,
            finished,
        )


def layer_init(layer, std=np.sqrt(2), bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(4, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(4, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 2), std=0.01),
        )

    def value(self, x):
        return self.critic(x).squeeze(-1)

    def act(self, x, action=None):
        dist = Categorical(logits=self.actor(x))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.value(x)


def evaluate(agent, seed, n=16):
    env = VecCartPole(n, seed)
    obs, alive, total = env.reset(), np.ones(n, bool), np.zeros(n)
    for _ in range(env.MAX_LEN):
        with torch.no_grad():
            a = agent.actor(torch.from_numpy(obs)).argmax(-1).numpy()
        obs, r, term, trunc, _, _ = env.step(a)
        total += r * alive
        alive &= ~(term | trunc)
    return total.mean()


if __name__ == "__main__":
    args = parse_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    batch_size = args.num_envs * args.num_steps
    mb_size = batch_size // args.num_minibatches
    num_updates = -(-args.steps // (args.update_epochs * args.num_minibatches))

    envs = VecCartPole(args.num_envs, args.seed)
    agent = Agent()
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs_buf = torch.zeros(shape + (4,))
    actions = torch.zeros(shape, dtype=torch.long)
    logprobs, rewards, values, dones = (torch.zeros(shape) for _ in range(4))

    next_obs = torch.from_numpy(envs.reset())
    recent, start = [], time.time()
    print("greedy return before training:", evaluate(agent, seed=100))
    for update in range(num_updates):
        optimizer.param_groups[0]["lr"] = (
            1.0 - update / num_updates
        ) * args.learning_rate

        for t in range(args.num_steps):
            obs_buf[t] = next_obs
            with torch.no_grad():
                action, logp, _, value = agent.act(next_obs)
            actions[t], logprobs[t], values[t] = action, logp, value
            obs, reward, term, trunc, final_obs, finished = envs.step(action.numpy())
            r = args.reward_scale * torch.from_numpy(reward)
            if trunc.any():  # time limit: bootstrap from the state in which it was cut
                with torch.no_grad():
                    r = (
                        r
                        + args.gamma
                        * agent.value(torch.from_numpy(final_obs))
                        * torch.from_numpy(trunc).float()
                    )
            rewards[t] = r
            dones[t] = torch.from_numpy(term | trunc).float()
            next_obs = torch.from_numpy(obs)
            recent = (recent + finished)[-30:]

        with torch.no_grad():
            next_value, last, advantages = (
                agent.value(next_obs),
                0.0,
                torch.zeros(shape),
            )
            for t in reversed(range(args.num_steps)):
                nonterminal = 1.0 - dones[t]
                delta = rewards[t] + args.gamma * next_value * nonterminal - values[t]
                last = delta + args.gamma * args.gae_lambda * nonterminal * last
                advantages[t], next_value = last, values[t]
            returns = advantages + values

        b_obs, b_act, b_logp = (
            obs_buf.reshape(-1, 4),
            actions.reshape(-1),
            logprobs.reshape(-1),
        )
        b_adv, b_ret = advantages.reshape(-1), returns.reshape(-1)
        for epoch in range(args.update_epochs):
            for mb in torch.randperm(batch_size).split(mb_size):
                _, newlogp, entropy, newvalue = agent.act(b_obs[mb], b_act[mb])
                ratio = (newlogp - b_logp[mb]).exp()
                adv = (b_adv[mb] - b_adv[mb].mean()) / (b_adv[mb].std() + 1e-8)
                pg_loss = torch.max(
                    -adv * ratio,
                    -adv * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef),
                ).mean()
                v_loss = 0.5 * ((newvalue - b_ret[mb]) ** 2).mean()
                loss = pg_loss - args.ent_coef * entropy.mean() + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        if update % 5 == 0 or update == num_updates - 1:
            ev = 1 - (b_ret - values.reshape(-1)).var() / (b_ret.var() + 1e-8)
            print(
                f"update {update} return {np.mean(recent) if recent else float('nan'):.1f} pg {pg_loss.item():.4f} "
                f"v {v_loss.item():.2f} ent {entropy.mean().item():.3f} ev {ev:.2f} {time.time() - start:.1f}s"
            )
    print("greedy return after training:", evaluate(agent, seed=100))
