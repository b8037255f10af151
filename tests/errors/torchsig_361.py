"""Narrowband modulation recognition. Signals are synthesised on the fly by the dataset."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

CLASSES = ["bpsk", "qpsk", "8psk", "16qam", "2fsk", "tone", "am"]


class Seedable:
    """anything with its own random generator, so that results do not depend on global state"""

    def __init__(self, seed=None):
        self.seed(seed)

    def seed(self, seed):
        self.rng_seed = seed
        self.random_generator = np.random.default_rng(seed)


class AWGN(Seedable):
    def __init__(self, lo, hi, seed=None):
        super().__init__(seed)
        self.lo, self.hi = lo, hi

    def __call__(self, x):
        snr = self.random_generator.uniform(self.lo, self.hi)
        s = 10 ** (-snr / 20) / math.sqrt(2)
        n = self.random_generator.standard_normal((2, len(x)))
        return x + s * (n[0] + 1j * n[1])


class CarrierOffset(Seedable):
    def __init__(self, limit, seed=None):
        super().__init__(seed)
        self.limit = limit

    def __call__(self, x):
        f, ph = self.random_generator.uniform(
            -self.limit, self.limit
        ), self.random_generator.uniform(0, 2 * np.pi)
        return x * np.exp(1j * (2 * np.pi * f * np.arange(len(x)) + ph))


class Compose(Seedable):
    def __init__(self, transforms, seed=None):
        self.transforms = transforms
        super().__init__(seed)

    def seed(self, seed):
        super().seed(seed)
        for k, t in enumerate(self.transforms):
            t.seed(None if seed is None else seed + 1 + k)

    def __call__(self, x):
        for t in self.transforms:
            x = t(x)
        return x


class NarrowbandDataset(Dataset, Seedable):
    def __init__(self, num_samples, iq_len=128, transforms=None, seed=None):
        self.num_samples, self.iq_len, self.transforms = num_samples, iq_len, transforms
        Seedable.__init__(self, seed)

    def seed(self, seed):
        super().seed(seed)
        if self.transforms is not None:
            self.transforms.seed(None if seed is None else seed + 1000)

    def __len__(self):
        return self.num_samples

    def __getitem__(self, i):
        g, n = self.random_generator, self.iq_len
        y = int(g.integers(len(CLASSES)))
        name, sps = CLASSES[y], 8
        if name.endswith("psk"):
            m = {"bpsk": 2, "qpsk": 4, "8psk": 8}[name]
            x = np.repeat(np.exp(2j * np.pi * g.integers(m, size=n // sps) / m), sps)
        elif name == "16qam":
            lv = (g.integers(4, size=(2, n // sps)) * 2 - 3) / math.sqrt(10)
            x = np.repeat(lv[0] + 1j * lv[1], sps)
        elif name == "2fsk":
            x = np.exp(
                2j
                * np.pi
                * np.cumsum(np.repeat(g.choice([-0.06, 0.06], n // sps), sps))
            )
        elif name == "tone":
            x = np.ones(n, dtype=complex)
        else:
            x = 1 + 0.6 * np.cos(2 * np.pi * g.uniform(0.01, 0.05) * np.arange(n)) + 0j
        if self.transforms is not None:
            x = self.transforms(x)
        return torch.from_numpy(np.stack([x.real, x.imag]).astype(np.float32)), y


class XCNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()

        def block(i, o, s):
            return nn.Sequential(nn.Conv1d(i, o, 7, s, 3), nn.BatchNorm1d(o), nn.ReLU())

        self.features = nn.Sequential(
            block(2, width, 1), block(width, width, 2), block(width, 2 * width, 2)
        )
        self.head = nn.Linear(4 * width, len(CLASSES))

    def forward(self, x):
        h = self.features(x)
        return self.head(torch.cat([h.mean(-1), h.amax(-1)], 1))


def reseed_worker(worker_id):
    info = get_worker_info()
    info.dataset.seed(info.dataset.rng_seed + 7919 * (worker_id + 1))


def train(args):
    torch.manual_seed(args.seed)
    tf = Compose([CarrierOffset(0.01), AWGN(4, 16)])
    dataset = NarrowbandDataset(64 * 60, transforms=tf, seed=args.seed)
    init_fn = None
    if args.fixed:
        init_fn = reseed_worker
    loader = DataLoader(
        dataset,
        batch_size=64,
        num_workers=args.workers,
        worker_init_fn=init_fn,
        persistent_workers=True,
    )
    val = DataLoader(
        NarrowbandDataset(
            700, transforms=Compose([CarrierOffset(0.01), AWGN(4, 16)]), seed=991
        ),
        batch_size=350,
    )
    val = list(val)
    net = XCNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    step, seen, repeats = 0, set(), 0
    while step < args.steps:
        for x, y in loader:
            net.train()
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            key = x.double().sum().item(), int(y.sum())
            repeats += key in seen
            seen.add(key)
            step += 1
            if step % 30 == 0:
                net.eval()
                with torch.no_grad():
                    acc = sum(
                        (net(a).argmax(1) == b).float().mean().item() for a, b in val
                    ) / len(val)
                print("step %3d | loss %.4f | val acc %.3f" % (step, loss.item(), acc))
            if step == args.steps:
                break
    return repeats / args.steps


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--seed", type=int, default=12)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    share = train(args)
    if args.prove:
        print("fault shows:", "yes" if share > 0.2 else "no")
