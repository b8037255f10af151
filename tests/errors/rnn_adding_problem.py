# Adding problem with a plain RNN -- seminar homework, sheet 7
#
# Input: a sequence of (value, marker) pairs, two markers per sequence.
# Target: sum of the two marked values. Vanilla RNNs have wild gradients here,
# therefore the norm is limited.

import argparse
from collections import deque

import numpy as np
import torch
import torch.nn as nn


def make_batch(rng, batch, length):
    values = rng.uniform(0, 1, size=(batch, length)).astype(np.float32)
    markers = np.zeros((batch, length), dtype=np.float32)
    first = rng.integers(0, length // 2, size=batch)
    second = rng.integers(length // 2, length, size=batch)
    rows = np.arange(batch)
    markers[rows, first] = 1
    markers[rows, second] = 1
    target = values[rows, first] + values[rows, second]
    x = torch.from_numpy(np.stack([values, markers], axis=-1))
    return x, torch.from_numpy(target)


class AddingRNN(nn.Module):
    def __init__(self, hidden, recurrent_scale):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, nonlinearity="tanh", batch_first=True)
        self.readout = nn.Linear(hidden, 1)
        # identity initialisation as in the IRNN paper (Le, Jaitly & Hinton 2015)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(recurrent_scale * torch.eye(hidden))
            self.rnn.bias_hh_l0.zero_()
            self.rnn.bias_ih_l0.zero_()
            nn.init.normal_(self.rnn.weight_ih_l0, std=0.3)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.readout(out[:, -1]).squeeze(-1)


def total_norm(params):
    return torch.sqrt(
        sum((p.grad**2).sum() for p in params if p.grad is not None)
    ).item()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
parser.add_argument("--batch", type=int, default=40)
parser.add_argument("--length", type=int, default=30)
parser.add_argument("--hidden", type=int, default=48)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--max-norm", type=float, default=0.5)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(42)
rng = np.random.default_rng(42)
x_test, y_test = make_batch(np.random.default_rng(4242), 400, args.length)

model = AddingRNN(args.hidden, recurrent_scale=1.0)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.8)
scheduler = torch.optim.lr_scheduler.StepLR(
    optimizer, step_size=max(1, args.steps // 3), gamma=0.5
)

# log the norms at update time
used_norms = []
if args.prove:
    optimizer.register_step_pre_hook(
        lambda opt, a, kw: used_norms.append(total_norm(model.parameters()))
    )


def train_step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    if args.fixed:
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
        optimizer.step()
        return loss.item(), float(norm)
    optimizer.step()
    norm = nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
    return loss.item(), float(norm)


def test():
    model.eval()
    with torch.no_grad():
        mse = criterion(model(x_test), y_test).item()
    model.train()
    return mse


history = deque(maxlen=25)
norms = deque(maxlen=25)
baseline = float(((y_test - y_test.mean()) ** 2).mean())
print(f"variance of the target (trivial MSE): {baseline:.4f}")

for step in range(1, args.steps + 1):
    x, y = make_batch(rng, args.batch, args.length)
    loss, norm = train_step(x, y)
    scheduler.step()
    history.append(loss)
    norms.append(norm)
    if step % 25 == 0 or step == args.steps:
        print(
            f"step {step:4d} | train mse {np.mean(history):.4f} | grad norm {np.mean(norms):8.3f} "
            f"| test mse {test():.4f} | lr {scheduler.get_last_lr()[0]:.4f}"
        )

if args.prove:
    shows = max(used_norms) > args.max_norm * 1.01
    print("fault shows:", "yes" if shows else "no")
