# PPO in one file, in the manner of CleanRL: a picker on a conveyor catches berries.
import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical


@dataclass
class Args:
    seed: int = 1
    num_iterations: int = 60
    learning_rate: float = 3e-3
    num_envs: int = 16
    num_steps: int = 32
    anneal_lr: bool = True
    gamma: float = 0.95
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    norm_adv: bool = True
    clip_coef: float = 0.2
    clip_vloss: bool = True
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float = 0.02


class BerryEnvs:
    """Berries fall nine rows over seven columns with some drift; actions left, stay, right."""

    width, height = 7, 9

    def __init__(self, num_envs, seed):
        self.rng = np.random.default_rng(seed)
        self.n = num_envs
        self.state = np.zeros((num_envs, 4))  # picker, berry column, row, drift

    def _restart(self, which):
        k = int(which.sum())
        self.state[which, 0] = self.rng.integers(0, self.width, k)
        self.state[which, 1] = self.rng.integers(0, self.width, k)
        self.state[which, 2] = 0
        self.state[which, 3] = self.rng.integers(-1, 2, k)

    def _obs(self):
        scale = np.array([self.width - 1, self.width - 1, self.height - 1, 1])
        return (self.state / scale).astype(np.float32)

    def reset(self):
        self._restart(np.ones(self.n, dtype=bool))
        return self._obs()

    def step(self, action):
        s = self.state
        s[:, 0] = np.clip(s[:, 0] + action - 1, 0, self.width - 1)
        moved = s[:, 1] + s[:, 3] * (self.rng.random(self.n) < 0.5)
        s[:, 1] = np.clip(moved, 0, self.width - 1)
        s[:, 2] += 1
        done = s[:, 2] == self.height - 1
        reward = np.where(done, np.where(s[:, 0] == s[:, 1], 1.0, -1.0), 0.0)
        self._restart(done)
        return self._obs(), reward, done


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
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
            layer_init(nn.Linear(64, 3), std=0.01),
        )

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60, help="iterations of PPO")
    args = Args(num_iterations=parser.parse_args().steps)
    batch_size = args.num_envs * args.num_steps
    minibatch_size = batch_size // args.num_minibatches

    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = BerryEnvs(args.num_envs, args.seed)
    agent = Agent()
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    obs = torch.zeros((args.num_steps, args.num_envs, 4))
    actions = torch.zeros((args.num_steps, args.num_envs))
    logprobs = torch.zeros((args.num_steps, args.num_envs))
    rewards = torch.zeros((args.num_steps, args.num_envs))
    dones = torch.zeros((args.num_steps, args.num_envs))
    values = torch.zeros((args.num_steps, args.num_envs))

    start_time = time.time()
    next_obs = torch.Tensor(envs.reset())
    next_done = torch.zeros(args.num_envs)

    for iteration in range(1, args.num_iterations + 1):
        if args.anneal_lr:
            frac = 1.0 - (iteration - 1.0) / args.num_iterations
            optimizer.param_groups[0]["lr"] = frac * args.learning_rate

        for step in range(0, args.num_steps):
            obs[step] = next_obs
            dones[step] = next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step] = action
            logprobs[step] = logprob
            next_obs, reward, done = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = torch.Tensor(next_obs), torch.Tensor(done)

        # bootstrap value if not done
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards)
            lastgaelam = 0
            for t in reversed(range(args.num_steps)):
                if t == args.num_steps - 1:
                    nextnonterminal = 1.0 - next_done
                    nextvalues = next_value
                else:
                    nextnonterminal = 1.0 - dones[t + 1]
                    nextvalues = values[t + 1]
                delta = (
                    rewards[t] + args.gamma * nextvalues * nextnonterminal - values[t]
                )
                lastgaelam = (
                    delta + args.gamma * args.gae_lambda * nextnonterminal * lastgaelam
                )
                advantages[t] = lastgaelam
            returns = advantages + values

        b_obs = obs.reshape((-1, 4))
        b_logprobs, b_actions = logprobs.reshape(-1), actions.reshape(-1)
        b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
        b_values = values.reshape(-1)

        b_inds = np.arange(batch_size)
        clipfracs = []
        for epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for start in range(0, batch_size, minibatch_size):
                mb_inds = b_inds[start : start + minibatch_size]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                    b_obs[mb_inds], b_actions.long()[mb_inds]
                )
                logratio = newlogprob - b_logprobs[mb_inds]
                ratio = logratio.exp()
                with torch.no_grad():
                    # http://joschu.net/blog/kl-approx.html
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipped = (ratio - 1.0).abs() > args.clip_coef
                    clipfracs += [clipped.float().mean().item()]

                mb_advantages = b_advantages[mb_inds]
                if args.norm_adv:
                    mb_advantages = (mb_advantages - mb_advantages.mean()) / (
                        mb_advantages.std() + 1e-8
                    )
                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(
                    ratio, 1 - args.clip_coef, 1 + args.clip_coef
                )
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()

                newvalue = newvalue.view(-1)
                v_loss = (newvalue - b_returns[mb_inds]) ** 2
                if args.clip_vloss:
                    v_clipped = b_values[mb_inds] + torch.clamp(
                        newvalue - b_values[mb_inds], -args.clip_coef, args.clip_coef
                    )
                    v_loss = torch.max(v_loss, (v_clipped - b_returns[mb_inds]) ** 2)
                v_loss = 0.5 * v_loss.mean()

                entropy_loss = entropy.mean()
                loss = pg_loss - args.ent_coef * entropy_loss + v_loss * args.vf_coef
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

            if args.target_kl is not None and approx_kl > args.target_kl:
                break

        if iteration % 5 == 0 or iteration == 1:
            y_pred, y_true = b_values.numpy(), b_returns.numpy()
            explained_var = 1 - np.var(y_true - y_pred) / np.var(y_true)
            landed = rewards[rewards != 0]
            sps = int(iteration * batch_size / (time.time() - start_time))
            print(
                f"iteration={iteration} caught={(landed > 0).float().mean():.3f} "
                f"v_loss={v_loss.item():.4f} kl={approx_kl.item():.4f} "
                f"epochs={epoch + 1} explained_var={explained_var:.3f} "
                f"clipfrac={np.mean(clipfracs):.3f} SPS={sps}"
            )
