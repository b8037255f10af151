"""An elevator learns to serve the floors where people wait: stable-baselines3's PPO with
its own features extractor on a small Gymnasium environment, rewards and observations
normalised, learning rate and clip range falling linearly, evaluated in an environment
of its own that shares the normalisation; saved and loaded at the end.

    python sb3_elevator.py --steps 240
"""

import argparse
import tempfile

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize, sync_envs_normalization
from torch import nn

FLOORS, LIMIT, ENVS, ROLLOUT = 6, 60, 4, 64
BATCH, EPOCHS = 64, 4


class Elevator(gym.Env):
    """Down, stay and open, up; everybody waiting costs a little each turn."""

    def __init__(self):
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(0.0, 9.0, (2 * FLOORS,), np.float32)

    def _seen(self):
        floor = np.eye(FLOORS)[self.floor]
        return np.concatenate([floor, self.waiting]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.floor, self.turn = 0, 0
        self.waiting = self.np_random.integers(0, 2, FLOORS).astype(float)
        return self._seen(), {}

    def step(self, action):
        served = 0.0
        if action == 1:
            served, self.waiting[self.floor] = self.waiting[self.floor], 0.0
        else:
            self.floor = int(np.clip(self.floor + int(action) - 1, 0, FLOORS - 1))
        self.turn += 1
        arrive = self.np_random.random(FLOORS) < 0.06
        self.waiting = np.minimum(self.waiting + arrive, 9.0)
        reward = served - 0.05 * self.waiting.sum()
        return self._seen(), float(reward), False, self.turn >= LIMIT, {}


class Floors(BaseFeaturesExtractor):
    def __init__(self, observation_space, width=48):
        super().__init__(observation_space, width)
        self.layers = nn.Sequential(
            nn.Linear(observation_space.shape[0], width), nn.LayerNorm(width), nn.Tanh()
        )

    def forward(self, seen):
        return self.layers(seen)


def falling(start):
    return lambda left: start * (0.1 + 0.9 * left)


class Watch(BaseCallback):
    def __init__(self, test):
        super().__init__()
        self.test = test

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        if self.num_timesteps == 0:
            return
        seen = self.model.logger.name_to_value
        loss = seen["train/loss"], seen["train/value_loss"]
        reward = np.mean([e["r"] for e in self.model.ep_info_buffer or [{"r": 0}]])
        text = f"updates {self.model._n_updates * ENVS * ROLLOUT // BATCH}"
        print(f"{text} loss {loss[0]:.4f} value {loss[1]:.4f} reward {reward:.2f}")

    def score(self):
        sync_envs_normalization(self.training_env, self.test)
        return evaluate_policy(
            self.model, self.test, n_eval_episodes=4, deterministic=False, warn=False
        )


def environment(seed, training):
    envs = make_vec_env(Elevator, n_envs=ENVS if training else 1, seed=seed)
    return VecNormalize(envs, training=training, norm_reward=training, gamma=0.97)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train, test = environment(args.seed, True), environment(args.seed + 50, False)
    model = PPO(
        "MlpPolicy",
        train,
        learning_rate=falling(2e-3),
        clip_range=falling(0.2),
        n_steps=ROLLOUT,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        gamma=0.97,
        ent_coef=0.005,
        seed=args.seed,
        device="cpu",
        policy_kwargs={
            "features_extractor_class": Floors,
            "net_arch": {"pi": [48], "vf": [48]},
        },
    )
    watch = Watch(test)
    per_rollout = EPOCHS * ENVS * ROLLOUT // BATCH
    rollouts = max(args.steps // per_rollout, 1)
    model.learn(rollouts * ENVS * ROLLOUT, callback=watch)
    reward, spread = watch.score()
    print(f"reward in evaluation {reward:.2f} +- {spread:.2f}")
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/elevator")
        again = PPO.load(f"{folder}/elevator", device="cpu")
    seen = test.reset()
    same = (model.predict(seen, True)[0] == again.predict(seen, True)[0]).all()
    print(f"the loaded policy acts the same: {bool(same)}")


if __name__ == "__main__":
    main()
