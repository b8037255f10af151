"""pH of a cheese after ripening, predicted from the make sheet.

Make sheets carry 14 readings (milk fat, casein, rennet, cut size, cook temperature, ...).
The dairy has only a few hundred wheels with a laboratory value, so the regressor keeps
the weights of the epoch with the lowest validation loss.
"""
import argparse
import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch

READINGS = 14


def make_sheets(n, seed=23):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(5, READINGS)) / np.sqrt(5)
    factors = rng.normal(size=(n, 5))
    sheets = factors @ mixing + 0.6 * rng.normal(size=(n, READINGS))
    ph = (
        5.3
        + 0.12 * np.tanh(1.2 * sheets[:, 0] + 0.6 * sheets[:, 3])
        - 0.10 * sheets[:, 5] * (sheets[:, 2] > 0)
        + 0.06 * sheets[:, 7]
        + 0.11 * rng.normal(size=n)
    )
    return sheets.astype(np.float32), ph.astype(np.float32)


class Scaler:
    def fit(self, values):
        self.mean, self.std = values.mean(0), values.std(0) + 1e-6
        return self

    def forward(self, values):
        return torch.from_numpy((values - self.mean) / self.std)

    def back(self, tensor):
        return tensor.numpy() * self.std + self.mean


class RipeningRegressor:
    """Estimator in the manner of scikit-learn around a small network."""

    def __init__(self, args):
        self.args = args
        self.x_scaler, self.y_scaler = Scaler(), Scaler()
        width = args.hidden
        self.net = torch.nn.Sequential(
            torch.nn.Linear(READINGS, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 1),
            torch.nn.Flatten(0),
        )
        self.loss = torch.nn.MSELoss()

    def _epoch(self, x, y, optimizer, generator):
        self.net.train()
        total = 0.0
        for rows in torch.randperm(len(x), generator=generator).split(self.args.batch):
            loss = self.loss(self.net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        return total / len(x)

    @torch.no_grad()
    def _loss_on(self, x, y):
        self.net.eval()
        return self.loss(self.net(x), y).item()

    def fit(self, train, valid):
        self.x_scaler.fit(train[0])
        self.y_scaler.fit(train[1])
        x, y = self.x_scaler.forward(train[0]), self.y_scaler.forward(train[1])
        vx, vy = self.x_scaler.forward(valid[0]), self.y_scaler.forward(valid[1])
        optimizer = torch.optim.Adam(self.net.parameters(), lr=self.args.lr)
        generator = torch.Generator().manual_seed(self.args.seed)
        self.best_loss, self.best_epoch, best_state = float("inf"), -1, None
        for epoch in range(self.args.epochs):
            train_loss = self._epoch(x, y, optimizer, generator)
            valid_loss = self._loss_on(vx, vy)
            if epoch % 4 == 0:
                print(f"epoch {epoch:3d} train {train_loss:.4f} valid {valid_loss:.4f}")
            if valid_loss < self.best_loss:
                self.best_loss, self.best_epoch = valid_loss, epoch
                best_state = self.net.state_dict()
                if self.args.fixed:
                    best_state = copy.deepcopy(best_state)
            elif epoch - self.best_epoch >= self.args.patience:
                break
        self.net.load_state_dict(best_state)
        print(f"stopped after epoch {epoch}, kept epoch {self.best_epoch}")
        return self

    @torch.no_grad()
    def predict(self, sheets):
        self.net.eval()
        return self.y_scaler.back(self.net(self.x_scaler.forward(sheets)))

    def score(self, sheets, ph):
        residual = ph - self.predict(sheets)
        return 1 - (residual**2).sum() / ((ph - ph.mean()) ** 2).sum()

    def save(self, path):
        scalers = pickle.dumps((self.x_scaler, self.y_scaler))
        torch.save({"net": self.net.state_dict(), "scalers": scalers}, path)


def prove(model, valid):
    """Validation loss of the kept weights next to the one noted in their epoch."""
    x, y = model.x_scaler.forward(valid[0]), model.y_scaler.forward(valid[1])
    now = model._loss_on(x, y)
    print(f"noted {model.best_loss:.5f} in epoch {model.best_epoch}, kept {now:.5f}")
    print("fault shows:", "yes" if abs(now - model.best_loss) > 1e-5 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--patience", type=int, default=15)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    sheets, ph = make_sheets(640)
    order = np.random.default_rng(args.seed).permutation(len(sheets))
    parts = np.split(order, [260, 420])
    train, valid, test = [(sheets[p], ph[p]) for p in parts]
    model = RipeningRegressor(args).fit(train, valid)
    gap = np.abs(model.predict(test[0]) - test[1]).mean()
    print(f"test R2 {model.score(*test):.3f}  mean gap {gap:.3f} pH")
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "ripening.pt")
    if args.prove:
        prove(model, valid)


if __name__ == "__main__":
    main()
