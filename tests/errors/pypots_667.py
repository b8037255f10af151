"""PYPOTS-667: the best weights that were kept are the last ones.

Source: WenjieDu/PyPOTS#667 (also pytorch/tutorials#188 and zhangj111/astnn#8). When
the validation improves, model.state_dict() is kept: references to the parameters,
which the training goes on changing. What is put back and saved at the end is the
model as it is, under the best epoch's name. --fixed keeps a copy.
"""

import argparse
import copy
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Imputer(nn.Module):
    """Fills the gaps of a series from what was observed."""

    def __init__(self, length=24, width=96):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * length, width),
            nn.ELU(),
            nn.Linear(width, width),
            nn.ELU(),
            nn.Linear(width, length),
        )

    def forward(self, values, observed):
        return self.layers(torch.cat([values * observed, observed], dim=1))


def masked_error(model, series):
    values, observed = series
    error = (model(values, observed) - values).abs() * (1 - observed)
    return error.sum() / (1 - observed).sum()


class Estimator:
    def __init__(self, copy_best, saving_path):
        self.model = Imputer()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=6e-3)
        self.copy_best = copy_best
        self.saving_path = saving_path
        self.best_loss = float("inf")
        self.best_model_dict = None

    @torch.no_grad()
    def validate(self, series):
        self.model.eval()
        loss = masked_error(self.model, series).item()
        self.model.train()
        return loss

    def fit(self, loader, held_out, steps):
        step = 0
        while step < steps:
            for series in loader:
                if step == steps:
                    break
                loss = masked_error(self.model, series)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
            score = self.validate(held_out)
            print(f"validation {score:.4f}", flush=True)
            if score < self.best_loss:
                self.best_loss = score
                state = self.model.state_dict()
                self.best_model_dict = copy.deepcopy(state) if self.copy_best else state
        self.model.load_state_dict(self.best_model_dict)
        torch.save(self.best_model_dict, self.saving_path)


def series(count):
    phase = 6.28 * torch.rand(count, 1)
    period = 6 + 6 * torch.rand(count, 1)
    values = torch.sin(phase + 6.28 * torch.arange(24) / period)
    values = values + 0.3 * torch.randn(count, 24)
    return values, (torch.rand(count, 24) < 0.7).float()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=48)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*series(64)), batch_size=16, shuffle=True)
    held_out = series(64)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "best.pt")
        estimator = Estimator(options.fixed, saving_path=path)
        estimator.fit(loader, held_out, options.steps)
        estimator.model.load_state_dict(torch.load(path))
    score = estimator.validate(held_out)
    print(f"best {estimator.best_loss:.4f}, of the file {score:.4f}", flush=True)
    if options.prove:
        print("fault shows:", "no" if score == estimator.best_loss else "yes")


if __name__ == "__main__":
    main()
