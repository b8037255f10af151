import argparse
import math

import numpy as np
import torch
import torch.nn as nn

# Activity recognition from a wrist sensor: 3 acceleration + 3 gyro channels, windows of 40 frames.

ACTIVITIES = ["sit", "walk", "run", "stairs", "wave"]
FRAMES, CHANNELS = 40, 6


def simulate(n, rng):
    label = rng.integers(0, len(ACTIVITIES), n)
    freq = np.array([0.0, 1.0, 2.1, 1.4, 2.8])[label] * (
        1 + 0.08 * rng.standard_normal(n)
    )
    amp = np.array([0.1, 0.8, 1.2, 0.9, 1.0])[label]
    phase = rng.uniform(0, 2 * np.pi, n)
    t = np.arange(FRAMES) / 10.0
    wave = amp[:, None] * np.sin(2 * np.pi * freq[:, None] * t + phase[:, None])
    wave2 = amp[:, None] * np.cos(2 * np.pi * freq[:, None] * t + phase[:, None])
    x = 0.5 * rng.standard_normal((n, FRAMES, CHANNELS))
    x[:, :, 0] += wave
    x[:, :, 1] += 0.5 * np.abs(wave2)
    x[:, :, 4] += np.where(label == 4, 1.0, 0.3)[:, None] * wave2
    x[:, :, 2] += np.where(label == 3, 0.5, 0.0)[:, None] * t / 4
    return torch.tensor(x, dtype=torch.float32), torch.tensor(label)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=200):
        super().__init__()
        pos = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(pos * div)
        pe[:, 0, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        # x: (T, B, D)
        return x + self.pe[: x.size(0)]


class SensorTransformer(nn.Module):
    def __init__(self, opts, d_model=32, heads=4, layers=2):
        super().__init__()
        self.opts = opts
        self.embed = nn.Linear(CHANNELS, d_model)
        self.position = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, heads, dim_feedforward=64, dropout=0.1
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d_model)
        self.classifier = nn.Linear(d_model, len(ACTIVITIES))

    def swap_batch_time(self, x):
        a, b, d = x.shape
        if self.opts.fixed:
            return x.transpose(0, 1)
        return x.reshape(b, a, d)

    def forward(self, x):
        h = self.embed(x)
        h = self.swap_batch_time(h)  # the encoder wants time first
        h = self.encoder(self.position(h))
        h = self.swap_batch_time(h)  # and back
        return self.classifier(self.norm(h).mean(dim=1))


def warmup_linear(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return max(0.05, (total - step) / max(1, total - warmup))


def accuracy(model, x, y, batch=40):
    model.eval()
    good = 0
    with torch.no_grad():
        for i in range(0, len(x), batch):
            good += (model(x[i : i + batch]).argmax(1) == y[i : i + batch]).sum().item()
    model.train()
    return good / len(x)


def neighbours_matter(model, x):
    """Output of the first window when the others of the batch are replaced."""
    model.eval()
    with torch.no_grad():
        a = model(x[:40])[0]
        b = model(torch.cat([x[:1], x[60:99]]))[0]
    return (a - b).abs().max().item()


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--batch", type=int, default=20)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def main():
    opts = get_args()
    torch.manual_seed(77)
    rng = np.random.default_rng(77)
    x_train, y_train = simulate(600, rng)
    x_test, y_test = simulate(200, rng)
    mean, std = x_train.mean((0, 1)), x_train.std((0, 1))
    x_train, x_test = (x_train - mean) / std, (x_test - mean) / std

    model = SensorTransformer(opts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=opts.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: warmup_linear(s, 15, opts.steps)
    )
    loss_fn = nn.CrossEntropyLoss()

    model.train()
    perm, cursor, running = torch.randperm(len(x_train)), 0, 0.0
    for step in range(1, opts.steps + 1):
        if cursor + opts.batch > len(x_train):
            perm, cursor = torch.randperm(len(x_train)), 0
        idx = perm[cursor : cursor + opts.batch]
        cursor += opts.batch
        loss = loss_fn(model(x_train[idx]), y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.item()
        if step % 20 == 0:
            print(
                f"{step:5d}  loss {running / 20:.4f}  test acc {accuracy(model, x_test, y_test):.3f}  "
                f"lr {scheduler.get_last_lr()[0]:.2e}"
            )
            running = 0.0

    if opts.prove:
        gap = neighbours_matter(model, x_test)
        print(
            f"# change of one window's scores when the rest of its batch is replaced: {gap:.5f}"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
