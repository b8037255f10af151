"""Remaining-life estimate of pumps from vibration windows, stacked GRU.

Windows come from many pumps; the script follows the structure of the PyTorch
word-language-model example (init_hidden / repackage_hidden).
"""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="pump life model")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--nhid", type=int, default=40)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--bptt", type=int, default=32, help="window length")
parser.add_argument("--batch_size", type=int, default=40)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--log-interval", type=int, default=40)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()
torch.manual_seed(1111)


###############################################################################
# Load data
###############################################################################


def pump_history(rng):
    life = rng.integers(150, 320)
    hour = np.arange(life)
    wear = (hour / life) ** 2
    level = 0.6 + rng.normal(0, 0.1) + 1.5 * wear + 0.2 * rng.normal(size=life)
    kurt = 0.3 + 0.9 * wear + 0.3 * rng.normal(size=life)
    load = 0.5 * np.sin(hour / 12 + rng.uniform(0, 6)) + 0.1 * rng.normal(size=life)
    signal = np.stack([level + 0.4 * load, kurt, load, rng.normal(size=life)], 1)
    remaining = np.minimum(life - hour, 125) / 125
    return signal, remaining


def windows(n_pumps, seed):
    rng = np.random.default_rng(seed)
    xs, ys = [], []
    for _ in range(n_pumps):
        signal, remaining = pump_history(rng)
        for start in range(0, len(signal) - args.bptt, 6):
            xs.append(signal[start : start + args.bptt])
            ys.append(remaining[start + args.bptt - 1])
    return torch.tensor(np.array(xs), dtype=torch.float32), torch.tensor(
        ys, dtype=torch.float32
    )


x_train, y_train = windows(50, seed=0)
x_test, y_test = windows(15, seed=1)
center, spread = x_train.mean((0, 1)), x_train.std((0, 1))
x_train, x_test = (x_train - center) / spread, (x_test - center) / spread
train_data = DataLoader(
    TensorDataset(x_train, y_train), args.batch_size, shuffle=True, drop_last=True
)
test_data = DataLoader(TensorDataset(x_test, y_test), args.batch_size, drop_last=True)


###############################################################################
# Build the model
###############################################################################


class LifeModel(nn.Module):
    def __init__(self, ninp, nhid, nlayers):
        super().__init__()
        self.nhid, self.nlayers = nhid, nlayers
        self.rnn = nn.GRU(ninp, nhid, nlayers, batch_first=True, dropout=0.1)
        self.decoder = nn.Linear(nhid, 1)

    def forward(self, x, hidden):
        out, hidden = self.rnn(x, hidden)
        return self.decoder(out[:, -1]).squeeze(1), hidden

    def init_hidden(self, bsz):
        return torch.zeros(self.nlayers, bsz, self.nhid)


def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    return h.detach()


model = LifeModel(4, args.nhid, args.nlayers)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


###############################################################################
# Training code
###############################################################################


def evaluate(source):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for data, target in source:
            output, _ = model(data, model.init_hidden(len(data)))
            total += len(data) * criterion(output, target).item()
            count += len(data)
    return math.sqrt(total / count) * 125


carried = []
step, epoch = 0, 0
while step < args.steps:
    model.train()
    hidden = model.init_hidden(args.batch_size)
    for data, target in train_data:
        hidden = repackage_hidden(hidden)
        if args.fixed:
            hidden = model.init_hidden(args.batch_size)
        carried.append(hidden.abs().mean().item())
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        step += 1
        if step % args.log_interval == 0:
            print(
                f"| epoch {epoch:2d} | step {step:4d} | rmse {math.sqrt(loss.item()) * 125:6.2f} hours"
            )
        if step >= args.steps:
            break
    epoch += 1
    print(f"| end of epoch {epoch - 1} | test rmse {evaluate(test_data):6.2f} hours")

if args.prove:
    print("fault shows:", "yes" if max(carried) > 0 else "no")
