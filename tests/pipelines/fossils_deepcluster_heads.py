"""Drawings of fossils without labels (conv2d, BatchNorm), DeepCluster.

Labels are numbers of clusters, which are found anew each epoch (evaluation mode, clean
drawings), so the head is reset and its momentum taken out of `opt.state` each time: the
loss is a saw-tooth. A WeightedRandomSampler draws alike from all clusters. True kinds
are used in `report` alone.
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

KINDS = ["ammonite", "trilobite", "starfish", "belemnite", "crinoid"]
CFG = dict(n=640, n_test=300, clusters=15, batch=64, batches=16, lr=0.03, dim=32)


def draw(n, seed):
    r = np.random.default_rng(seed)
    kinds = r.integers(0, len(KINDS), n)
    yy, xx = np.mgrid[0:20, 0:20].astype(np.float64)
    out = np.empty((n, 1, 20, 20), np.float32)
    for i, k in enumerate(kinds):
        cy, cx = r.uniform(8, 11, 2)
        th, s = r.uniform(0, 2 * np.pi), r.uniform(0.85, 1.15)
        u = ((yy - cy) * np.cos(th) + (xx - cx) * np.sin(th)) / s
        v = ((xx - cx) * np.cos(th) - (yy - cy) * np.sin(th)) / s
        rad, ang = np.hypot(u, v), np.arctan2(u, v)
        im = [
            lambda: (np.cos(ang - 1.6 * rad) > 0) * (rad < 7.5),
            lambda: ((u / 7.5) ** 2 + (v / 4.5) ** 2 < 1)
            * (0.4 + 0.6 * (np.cos(u * 2.2) > 0)),
            lambda: rad < 3 + 4.5 * np.maximum(np.cos(2.5 * ang), 0) ** 4,
            lambda: (np.abs(v) < 1.8) * (np.abs(u) < 8),
            lambda: (np.abs(rad - 5.5) < 1.2) | (rad < 1.5),
        ][k]()
        out[i, 0] = im * r.uniform(0.7, 1.0) + 0.15 * r.standard_normal((20, 20))
    return torch.from_numpy(out), kinds


class PseudoLabelled(Dataset):
    """Augmented views with the label of the *unaugmented* drawing's cluster."""

    def __init__(self, images, gen):
        self.images, self.gen, self.labels = images, gen, None

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        x = self.images[i]
        dy, dx, turn, flip = torch.randint(
            0, 1 << 20, (4,), generator=self.gen
        ).tolist()
        x = torch.roll(x, (dy % 5 - 2, dx % 5 - 2), (1, 2)).rot90(turn % 4, (1, 2))
        x = x.flip(2) if flip % 2 else x
        return x + 0.1 * torch.randn(x.shape, generator=self.gen), self.labels[i]


def conv(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()
    )


trunk_spec = lambda d: nn.Sequential(
    conv(1, 16),
    conv(16, 24),
    nn.MaxPool2d(2),
    conv(24, 32),
    nn.MaxPool2d(2),
    conv(32, d),
    nn.AdaptiveMaxPool2d(1),
    nn.Flatten(),
)


@torch.no_grad()
def embed(trunk, x):
    trunk.eval()
    z = torch.cat([trunk(b) for b in x.split(160)]).numpy().astype(np.float64)
    trunk.train()
    return z


class Clusterer:
    """Whitening by PCA, unit length, k-means++ and Lloyd."""

    def __init__(self, k, rng, keep=16):
        self.k, self.rng, self.keep = k, rng, keep

    def project(self, z):
        z = (z - self.mu) @ self.proj
        return z / (np.linalg.norm(z, axis=1, keepdims=True) + 1e-9)

    def assign(self, z):
        z = self.project(z)
        return ((z[:, None] - self.centres) ** 2).sum(-1).argmin(1)

    def fit(self, z, iters=20):
        self.mu = z.mean(0)
        val, vec = np.linalg.eigh(np.cov(z.T) + 1e-6 * np.eye(z.shape[1]))
        self.proj = vec[:, -self.keep :] / np.sqrt(val[-self.keep :])
        p = self.project(z)
        c = [p[self.rng.integers(len(p))]]
        while len(c) < self.k:
            d = np.min([((p - q) ** 2).sum(1) for q in c], axis=0)
            c.append(p[self.rng.choice(len(p), p=d / d.sum())])
        self.centres = np.array(c)
        for _ in range(iters):
            a = ((p[:, None] - self.centres) ** 2).sum(-1).argmin(1)
            for j in range(self.k):
                # an empty cluster is put on a random drawing, so that all k stay in use
                if (a == j).any():
                    self.centres[j] = p[a == j].mean(0)
                else:
                    self.centres[j] = p[self.rng.integers(len(p))]
        return self.assign(z)


def report(trunk, images, kinds, test_images, test_kinds, k):
    """Names a cluster by its commonest kind in training, judges on the test."""
    cl = Clusterer(k, np.random.default_rng(0))
    a = cl.fit(embed(trunk, images))
    name = np.array(
        [
            np.bincount(kinds[a == j], minlength=5).argmax() if (a == j).any() else 0
            for j in range(k)
        ]
    )
    return float((name[cl.assign(embed(trunk, test_images))] == test_kinds).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=9)
    epochs = parser.parse_args().epochs
    torch.manual_seed(12)
    rng, gen = np.random.default_rng(12), torch.Generator().manual_seed(12)
    images, kinds = draw(CFG["n"], 100)
    test_images, test_kinds = draw(CFG["n_test"], 200)

    trunk, head = trunk_spec(CFG["dim"]), nn.Linear(CFG["dim"], CFG["clusters"])
    opt = torch.optim.SGD(
        [*trunk.parameters(), *head.parameters()],
        lr=CFG["lr"],
        momentum=0.9,
        weight_decay=1e-4,
    )
    data, clusterer = PseudoLabelled(images, gen), Clusterer(CFG["clusters"], rng)
    measure = lambda: report(trunk, images, kinds, test_images, test_kinds, 10)
    untrained, previous = measure(), None

    for epoch in range(epochs):
        labels = clusterer.fit(embed(trunk, images))
        data.labels = torch.from_numpy(labels)
        head.reset_parameters()
        for p in head.parameters():
            opt.state.pop(p, None)  # momentum of the old head means nothing to the new
        # uniform over clusters, else the large ones swallow everything
        size = np.bincount(labels, minlength=CFG["clusters"])
        loader = DataLoader(
            data,
            CFG["batch"],
            sampler=WeightedRandomSampler(
                1.0 / size[labels],
                CFG["batch"] * CFG["batches"],
                replacement=True,
                generator=gen,
            ),
        )
        losses = []
        for x, y in loader:
            loss = F.cross_entropy(head(trunk(x)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        together = labels[:, None] == labels
        line = f"epoch {epoch}: loss {losses[0]:.3f} -> {np.mean(losses[-5:]):.3f}"
        if previous is not None:
            line += f"  pairs still together {np.mean(together[previous]):.2f}"
        previous = together
        print(f"{line}  cluster sizes {size.min()}..{size.max()}")

    acc = measure()
    print(f"kind named right on test drawings {acc:.3f}  (untrained {untrained:.3f})")


if __name__ == "__main__":
    main()
