# Trains a wake word classifier on (synthetic) speech embeddings, 16 frames of 32 numbers per clip.
import argparse
import copy

import numpy as np
import torch
from torch import nn


class FCNBlock(nn.Module):
    def __init__(self, layer_dim):
        super().__init__()
        self.fcn_layer = nn.Linear(layer_dim, layer_dim)
        self.relu = nn.ReLU()
        self.layer_norm = nn.LayerNorm(layer_dim)

    def forward(self, x):
        return self.relu(self.layer_norm(self.fcn_layer(x)))


class Net(nn.Module):
    def __init__(self, input_shape, layer_dim=48, n_blocks=1):
        super().__init__()
        self.flatten = nn.Flatten()
        self.layer1 = nn.Linear(input_shape[0] * input_shape[1], layer_dim)
        self.layernorm1 = nn.LayerNorm(layer_dim)
        self.relu1 = nn.ReLU()
        self.blocks = nn.ModuleList([FCNBlock(layer_dim) for _ in range(n_blocks)])
        self.last_layer = nn.Linear(layer_dim, 1)
        self.last_act = nn.Sigmoid()

    def forward(self, x):
        x = self.relu1(self.layernorm1(self.layer1(self.flatten(x))))
        for block in self.blocks:
            x = block(x)
        return self.last_act(self.last_layer(x))


class ClipGenerator:
    """Batches with few wake words, many other words and noise."""

    def __init__(self, seed, n_positive=16, n_negative=64, shape=(16, 32)):
        self.rng = np.random.default_rng(seed)
        words = np.random.default_rng(99)
        self.wake = words.normal(size=shape)
        self.others = words.normal(size=(25,) + shape)
        self.others[:5] = (
            0.6 * self.wake + 0.8 * self.others[:5]
        )  # words that sound alike
        self.n_positive, self.n_negative, self.shape = n_positive, n_negative, shape

    def clip(self, word):
        shift = self.rng.integers(-2, 3)
        return np.roll(word, shift, axis=0) + 0.9 * self.rng.normal(size=self.shape)

    def __next__(self):
        x = [self.clip(self.wake) for _ in range(self.n_positive)]
        for _ in range(self.n_negative):
            k = self.rng.integers(0, 30)
            x.append(self.clip(self.others[k] if k < 25 else np.zeros(self.shape)))
        y = [1.0] * self.n_positive + [0.0] * self.n_negative
        return torch.tensor(np.stack(x), dtype=torch.float32), torch.tensor(y)[:, None]


class Model(nn.Module):
    def __init__(self, args, input_shape=(16, 32)):
        super().__init__()
        self.args = args
        self.model = Net(input_shape)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.loss = nn.functional.binary_cross_entropy
        self.best_models, self.best_scores = [], []
        self.arrived = torch.zeros_like(self.model.last_layer.weight)
        self.gaps = []

    def lr_warmup_cosine_decay(self, step, warmup_steps, total, target_lr):
        if step < warmup_steps:
            return target_lr * (step + 1) / warmup_steps
        return (
            0.5
            * target_lr
            * (1 + np.cos(np.pi * (step - warmup_steps) / (total - warmup_steps)))
        )

    def validate(self, data):
        self.model.eval()
        with torch.no_grad():
            x, y = data
            p = self.model(x)
        self.model.train()
        recall = (p[y == 1] > 0.5).float().mean().item()
        false_alarms = (p[y == 0] > 0.5).float().mean().item()
        return recall, false_alarms

    def train_model(
        self,
        X,
        max_steps,
        val_data,
        warmup_steps=15,
        negative_weight=3.0,
        lr=2e-3,
        batch_target=128,
    ):
        accumulated_samples, done = 0, 0
        self.model.train()
        while done < max_steps:
            x, y = next(X)
            for g in self.optimizer.param_groups:
                g["lr"] = self.lr_warmup_cosine_decay(
                    done, warmup_steps, max_steps + 1, lr
                )
            if not self.args.fixed or accumulated_samples == 0:
                self.optimizer.zero_grad()

            # Only keep the clips with a high loss
            predictions = self.model(x)
            keep = ((y == 0) & (predictions >= 0.001)) | (
                (y == 1) & (predictions < 0.999)
            )
            predictions, labels = predictions[keep], y[keep]
            if len(predictions) == 0:
                continue
            w = torch.where(labels == 1, 1.0, negative_weight)
            loss = self.loss(predictions, labels, w, reduction="sum") / batch_target
            loss.backward()
            accumulated_samples += len(predictions)

            # Small batches are collected until there are enough samples for an update
            if accumulated_samples < batch_target:
                continue
            if self.args.prove:
                g = self.model.last_layer.weight.grad
                self.gaps.append(
                    (
                        (g - self.arrived).norm() / self.arrived.norm().clamp(min=1e-12)
                    ).item()
                )
                self.arrived.zero_()
            self.optimizer.step()
            accumulated_samples = 0
            done += 1
            if done % 30 == 0:
                recall, fp = self.validate(val_data)
                print(
                    f"step {done} loss {loss.item():.4f} recall {recall:.3f} false alarms {fp:.4f}"
                )
                if not self.best_scores or recall - 5 * fp > max(self.best_scores):
                    self.best_scores.append(recall - 5 * fp)
                    self.best_models.append(copy.deepcopy(self.model.state_dict()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(3)
    oww = Model(args)
    if args.prove:

        def collect(grad):
            oww.arrived += grad

        oww.model.last_layer.weight.register_hook(collect)
    val = next(ClipGenerator(77, n_positive=100, n_negative=400))
    oww.train_model(ClipGenerator(5), args.steps, val)
    if args.prove:
        worst = max(oww.gaps)
        print(
            f"largest relative gap between the collected gradient and the one used: {worst:.2e}"
        )
        print("fault shows:", "yes" if worst > 1e-3 else "no")
