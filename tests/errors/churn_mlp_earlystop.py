import argparse
import copy

import numpy as np
import torch
import torch.nn as nn

"""Customer churn with an MLP, early stopping on validation loss."""


def customers(n, seed):
    rng = np.random.RandomState(seed)
    tenure = rng.exponential(24, n)
    charges = rng.normal(65, 20, n)
    calls = rng.poisson(1.5, n)
    noise = rng.normal(0, 1, (n, 17))
    logit = (
        -0.06 * (tenure - 20)
        + 0.03 * (charges - 65)
        + 0.7 * (calls - 1.5)
        + 0.02 * (charges - 65) * (calls > 2)
    )
    churn = rng.uniform(size=n) < 1 / (1 + np.exp(-logit))
    feats = np.column_stack([np.log1p(tenure), charges / 50, calls, noise]).astype(
        np.float32
    )
    return feats, churn.astype(np.float32)


class ChurnMLP(nn.Module):
    def __init__(self, d, hidden=96):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(d, hidden), nn.Linear(hidden, hidden)])
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.out(x).flatten()


class EarlyStopping:
    def __init__(self, patience, fixed=False):
        self.patience = patience
        self.fixed = fixed
        self.best_loss = float("inf")
        self.best_epoch = -1
        self.best_state = None
        self.bad_epochs = 0

    def update(self, model, loss, epoch):
        if loss < self.best_loss:
            self.best_loss, self.best_epoch, self.bad_epochs = loss, epoch, 0
            state = model.state_dict()
            self.best_state = copy.deepcopy(state) if self.fixed else state
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience

    def restore(self, model):
        model.load_state_dict(self.best_state)


def evaluate(model, x, y, loss_fn):
    model.eval()
    with torch.no_grad():
        logits = model(x)
        loss = loss_fn(logits, y).item()
    order = torch.argsort(logits)
    ranks = torch.empty_like(order, dtype=torch.float)
    ranks[order] = torch.arange(1, len(order) + 1, dtype=torch.float)
    pos = y > 0.5
    n_pos, n_neg = pos.sum().item(), (~pos).sum().item()
    auc = (ranks[pos].sum().item() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)
    return loss, auc


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--patience", type=int, default=12)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    x_tr, y_tr = customers(800, 0)
    x_va, y_va = customers(600, 1)
    x_te, y_te = customers(1500, 2)
    mean, std = x_tr.mean(0), x_tr.std(0)
    x_tr, x_va, x_te = (torch.from_numpy((a - mean) / std) for a in (x_tr, x_va, x_te))
    y_tr, y_va, y_te = map(torch.from_numpy, (y_tr, y_va, y_te))

    model = ChurnMLP(x_tr.shape[1])
    loss_fn = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    stopper = EarlyStopping(args.patience, fixed=args.fixed)
    generator = torch.Generator().manual_seed(33)

    for epoch in range(args.epochs):
        model.train()
        epoch_loss = 0.0
        perm = torch.randperm(len(x_tr), generator=generator)
        for idx in perm.split(args.batch_size):
            optimizer.zero_grad()
            loss = loss_fn(model(x_tr[idx]), y_tr[idx])
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item() * len(idx)
        val_loss, val_auc = evaluate(model, x_va, y_va, loss_fn)
        if epoch % 3 == 0:
            print(
                f"epoch {epoch:3d} train {epoch_loss / len(x_tr):.4f} val {val_loss:.4f} auc {val_auc:.4f}"
            )
        if stopper.update(model, val_loss, epoch):
            print(f"stopping at epoch {epoch}")
            break

    stopper.restore(model)
    test_loss, test_auc = evaluate(model, x_te, y_te, loss_fn)
    print(f"best epoch {stopper.best_epoch} with val loss {stopper.best_loss:.4f}")
    print(f"test loss {test_loss:.4f} auc {test_auc:.4f}")

    if args.prove:
        again, _ = evaluate(model, x_va, y_va, loss_fn)
        print(
            f"val loss of the restored model {again:.6f}, noted {stopper.best_loss:.6f}"
        )
        print("fault shows:", "yes" if abs(again - stopper.best_loss) > 1e-6 else "no")


if __name__ == "__main__":
    main()
