"""Finds worn bearings in spectra of their vibration, with skorch: a NeuralNetClassifier
in a scikit-learn pipeline, class weights for the rare kinds, cosine annealing per batch,
gradient clipping, checkpoint of the best epoch and early stopping.

    python skorch_bearings.py --steps 160
"""

import argparse
import tempfile

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    GradientNormClipping,
    LRScheduler,
)
from skorch.dataset import ValidSplit
from torch import nn

BINS, KINDS, BATCH = 80, 5, 32
SHARES = [0.5, 0.2, 0.12, 0.1, 0.08]


def spectra(count, seed):
    rng = np.random.default_rng(seed)
    kind = rng.choice(KINDS, size=count, p=SHARES)
    bins = np.arange(BINS)
    x = rng.gamma(2.0, 0.3, size=(count, BINS))
    for harmonic in (1, 2, 3):
        centre = harmonic * (8 + 4 * kind[:, None]) + rng.normal(0, 0.7, (count, 1))
        strength = rng.uniform(0.4, 2.0, (count, 1)) / harmonic
        x = x + strength * np.exp(-0.5 * ((bins - centre) / 1.2) ** 2)
    return np.log1p(x).astype(np.float32), kind.astype(np.int64)


class Bearing(nn.Module):
    def __init__(self, width=96, dropout=0.2):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(BINS, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(width, KINDS),
        )

    def forward(self, x):
        return self.layers(x)


class StopAt(Callback):
    """Ends the training after so many updates, within an epoch if need be."""

    def __init__(self, steps):
        self.steps = steps

    def on_train_begin(self, net, **kwargs):
        self.done_ = 0

    def on_batch_end(self, net, training=False, **kwargs):
        self.done_ += training
        if training and self.done_ >= self.steps:
            print(f"{self.done_} updates done")
            raise KeyboardInterrupt


def classifier(steps, folder, weights):
    callbacks = [
        ("clip", GradientNormClipping(1.0)),
        ("anneal", LRScheduler("CosineAnnealingLR", T_max=steps, step_every="batch")),
        (
            "balanced",
            EpochScoring(
                "balanced_accuracy", lower_is_better=False, name="valid_balanced"
            ),
        ),
        ("best", Checkpoint(monitor="valid_loss_best", dirname=folder, load_best=True)),
        ("stop", EarlyStopping(patience=6)),
        ("steps", StopAt(steps)),
    ]
    return NeuralNetClassifier(
        Bearing,
        criterion=nn.CrossEntropyLoss,
        criterion__weight=weights,
        optimizer=torch.optim.SGD,
        optimizer__momentum=0.9,
        optimizer__nesterov=True,
        optimizer__weight_decay=1e-4,
        lr=0.05,
        batch_size=BATCH,
        max_epochs=1000,
        iterator_train__shuffle=True,
        iterator_train__drop_last=True,
        train_split=ValidSplit(5, stratified=True),
        callbacks=callbacks,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--seed", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = spectra(1600, seed=1)
    counts = np.bincount(y, minlength=KINDS)
    weights = torch.tensor(np.sqrt(len(y) / (KINDS * counts)), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        net = classifier(args.steps, folder, weights)
        model = make_pipeline(StandardScaler(), net)
        model.fit(x, y)
    held_out, truth = spectra(500, seed=2)
    score = balanced_accuracy_score(truth, model.predict(held_out))
    print(f"best epoch: balanced accuracy {score:.3f} on new bearings")


if __name__ == "__main__":
    main()
