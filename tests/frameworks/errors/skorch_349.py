"""SKORCH-349: a new setting of the loss between calls of partial_fit makes a new optimizer.

A network tells varieties of apple by their measurements, trained in stages by skorch's
partial_fit; each stage softens the labels less, set by set_params on the criterion. That
call makes a new Adam along with the criterion: the moments gathered so far are gone, and
each stage begins with steps of full size in whatever direction the first gradients have.

Source: https://github.com/skorch-dev/skorch/issues/349 (there also for the rate, which
today's skorch sets in place). --fixed changes the criterion that is there.
"""

import argparse

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn

SORTS, TRAITS, BATCH, STAGES = 6, 18, 32, 4


def apples(count, seed):
    world = np.random.default_rng(0)
    middle = 0.9 * world.normal(size=(SORTS, TRAITS))
    bend = world.normal(size=(TRAITS, TRAITS)) / TRAITS**0.5
    rng = np.random.default_rng(seed)
    sort = rng.integers(0, SORTS, count)
    x = middle[sort] + rng.normal(size=(count, TRAITS))
    x = np.tanh(x @ bend) + 0.2 * x
    return x.astype(np.float32), sort.astype(np.int64)


class Sorter(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(TRAITS, width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, SORTS),
        )

    def forward(self, x):
        return self.layers(x)


class Watch(Callback):
    """Prints the loss and compares the optimizer's count of steps with its own."""

    def __init__(self):
        self.done, self.lost = 0, 0

    def on_batch_end(self, net, training=False, **kwargs):
        if not training:
            return
        self.done += 1
        state = next(iter(net.optimizer_.state.values()))
        self.lost = max(self.lost, self.done - int(state["step"]))
        if self.done % 10 == 0:
            loss = net.history[-1, "batches", -1, "train_loss"]
            print(f"step {self.done} loss {loss:.4f}", flush=True)


def soften(net, amount, fixed):
    if fixed:
        net.criterion_.label_smoothing = amount
    else:
        net.set_params(criterion__label_smoothing=amount)


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(19)
    per_stage = max(args.steps // STAGES, 1)
    net = NeuralNetClassifier(
        Sorter,
        criterion=nn.CrossEntropyLoss,
        criterion__label_smoothing=0.2,
        optimizer=torch.optim.Adam,
        optimizer__betas=(0.9, 0.99),
        lr=4e-3,
        batch_size=BATCH,
        iterator_train__shuffle=True,
        train_split=None,
        callbacks=[("watch", Watch())],
        verbose=0,
    ).initialize()
    watch = dict(net.callbacks_)["watch"]
    for stage in range(STAGES):
        if stage > 0:
            soften(net, 0.2 * 0.5**stage, args.fixed)
        net.partial_fit(*apples(per_stage * BATCH, seed=1 + stage), epochs=1)
    x, y = apples(500, seed=100)
    print(f"right of new apples: {(net.predict(x) == y).mean():.3f}")
    if args.prove:
        print(f"steps that the optimizer forgot: {watch.lost}")
        print("fault shows:", "yes" if watch.lost > 0 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    main(parser.parse_args())
