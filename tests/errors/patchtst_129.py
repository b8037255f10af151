"""Forecasts seven series for 24 hours with a small patch transformer.

After PatchTST, issue 129.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEQ, PRED, CHANNELS = 36, 24, 7


def make_series(count=966, seed=0):
    """Waves on a random walk; the level shifts at the end."""
    rng = np.random.default_rng(seed)
    time = np.arange(count)[:, None]
    period = rng.uniform(20, 60, CHANNELS)
    walk = 0.03 * rng.standard_normal((count, CHANNELS)).cumsum(0)
    x = np.sin(2 * np.pi * time / period) + walk
    x[-60:] += np.linspace(0, 2.5, 60)[:, None]
    return x.astype(np.float32)


class Dataset_Custom(Dataset):
    def __init__(self, flag):
        raw = make_series()
        n = len(raw)
        n_train, n_test = int(n * 0.62), int(n * 0.2)
        n_val = n - n_train - n_test
        begin = {"train": 0, "val": n_train - SEQ, "test": n - n_test - SEQ}[flag]
        end = {"train": n_train, "val": n_train + n_val, "test": n}[flag]
        mean, std = raw[:n_train].mean(0), raw[:n_train].std(0)
        self.data = torch.from_numpy((raw[begin:end] - mean) / std)

    def __len__(self):
        return len(self.data) - SEQ - PRED + 1

    def __getitem__(self, i):
        return self.data[i : i + SEQ], self.data[i + SEQ : i + SEQ + PRED]


def data_provider(args, flag):
    if flag == "test":
        shuffle, drop_last = False, not args.fixed
    elif flag == "val":
        shuffle, drop_last = False, False
    else:
        shuffle, drop_last = True, True
    data_set = Dataset_Custom(flag)
    print(flag, len(data_set))
    data_loader = DataLoader(
        data_set, batch_size=args.batch_size, shuffle=shuffle, drop_last=drop_last
    )
    return data_set, data_loader


class PatchModel(nn.Module):
    def __init__(self, width=64, patch=6):
        super().__init__()
        self.patch = patch
        self.emb = nn.Linear(patch, width)
        self.pos = nn.Parameter(torch.zeros(SEQ // patch, width))
        layer = nn.TransformerEncoderLayer(width, 4, 128, 0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width * (SEQ // patch), PRED)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        x = ((x - mean) / std).transpose(1, 2)
        x = x.reshape(-1, SEQ // self.patch, self.patch)
        hidden = self.enc(self.emb(x) + self.pos).flatten(1)
        forecast = self.head(hidden).view(-1, CHANNELS, PRED).transpose(1, 2)
        return forecast * std + mean


@torch.no_grad()
def vali(model, loader):
    """Mean squared and absolute error, and the number of windows."""
    model.eval()
    preds, trues = [], []
    for x, y in loader:
        preds.append(model(x))
        trues.append(y)
    model.train()
    off = torch.cat(preds) - torch.cat(trues)
    return off.pow(2).mean().item(), off.abs().mean().item(), len(off)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=2021)
    parser.add_argument("--batch_size", type=int, default=36)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    _, train_loader = data_provider(args, "train")
    _, vali_loader = data_provider(args, "val")
    test_data, test_loader = data_provider(args, "test")
    model, criterion = PatchModel(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(args.epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        valid, test = vali(model, vali_loader), vali(model, test_loader)
        print(f"epoch {epoch} validation {valid[0]:.4f} test {test[0]:.4f}", flush=True)
    mse, mae, scored = vali(model, test_loader)
    print(f"test mse {mse:.4f} mae {mae:.4f}")
    if args.prove:
        print(f"{scored} of {len(test_data)} windows of the test were scored")
        print("fault shows:", "yes" if scored < len(test_data) else "no", flush=True)


if __name__ == "__main__":
    main()
