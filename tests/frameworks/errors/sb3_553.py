"""SB3-553: the target network of a DQN is put into training mode with the policy.

A greenhouse's heating is learned by stable-baselines3's DQN with dropout and
BatchNorm in its features extractor. The policy's own set_training_mode hands the mode to
all that it holds, and so to the target network: the targets are drawn with dropout, and
normalised by the batch at hand instead of by the statistics kept.

Source: https://github.com/DLR-RM/stable-baselines3/pull/553 (follows #535, #537).
--fixed switches the trained network only.
"""

import argparse

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

LIMIT, QUIET = 48, 120


class Greenhouse(gym.Env):
    """Heating off, half or full; warm plants and little fuel are wanted."""

    def __init__(self):
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(-50.0, 50.0, (4,), np.float32)

    def _seen(self):
        hour = 2 * np.pi * self.turn / 24
        values = [self.inside, self.outside, 5 * np.sin(hour), 5 * np.cos(hour)]
        return np.clip(values, -50, 50).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = int(self.np_random.integers(0, 24))
        self.end = self.turn + LIMIT
        self.inside, self.outside = 18 + self.np_random.normal(), 5.0
        return self._seen(), {}

    def step(self, action):
        self.turn += 1
        day = np.sin(2 * np.pi * self.turn / 24)
        self.outside = 5 + 6 * day + self.np_random.normal()
        self.inside += 0.15 * (self.outside - self.inside) + 1.8 * int(action)
        reward = 1 - 0.05 * abs(self.inside - 20) - 0.1 * int(action)
        return self._seen(), float(reward), False, self.turn >= self.end, {}


class Climate(BaseFeaturesExtractor):
    def __init__(self, observation_space, width=48):
        super().__init__(observation_space, width)
        self.layers = nn.Sequential(
            nn.BatchNorm1d(observation_space.shape[0]),
            nn.Linear(observation_space.shape[0], width),
            nn.ReLU(),
            nn.Dropout(0.1),
        )

    def forward(self, seen):
        return self.layers(seen)


class OwnPolicy(DQNPolicy):
    fixed = False

    def set_training_mode(self, mode):
        if self.fixed:
            self.q_net.set_training_mode(mode)
            self.training = mode
        else:
            self.train(mode)


class Watch(BaseCallback):
    def _on_step(self):
        done = self.model._n_updates
        if done and done % 25 == 0:
            loss = self.model.logger.name_to_value["train/loss"]
            print(f"step {done} loss {loss:.4f}", flush=True)
        return True


class Prover:
    """How far the targets' network is from what it gives in eval mode."""

    def __init__(self, net):
        self.apart = 0.0
        self.inside = False
        net.register_forward_hook(self.compare)

    @torch.no_grad()
    def compare(self, net, inputs, output):
        if self.inside or not net.training:
            return
        self.inside = True
        net.eval()
        calm = net(*inputs)
        net.train()
        self.inside = False
        self.apart = max(self.apart, (calm - output).abs().max().item())


def main(args):
    torch.set_num_threads(1)
    OwnPolicy.fixed = args.fixed
    model = DQN(
        OwnPolicy,
        Greenhouse(),
        learning_rate=1e-3,
        buffer_size=4000,
        learning_starts=QUIET,
        batch_size=64,
        gamma=0.9,
        train_freq=1,
        target_update_interval=50,
        exploration_fraction=0.5,
        seed=23,
        device="cpu",
        policy_kwargs={"features_extractor_class": Climate, "net_arch": [48]},
    )
    prover = Prover(model.q_net_target) if args.prove else None
    model.learn(QUIET + args.steps, callback=Watch(), log_interval=10**9)
    if prover:
        print(f"largest difference of a target from eval mode: {prover.apart:.4f}")
        print("fault shows:", "yes" if prover.apart > 1e-6 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=400)
    main(parser.parse_args())
