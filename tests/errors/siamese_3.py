"""An embedding of symbols by a contrastive loss on pairs that are chosen in a batch.

After adambielski/siamese-triplet, issue 3.
"""

import argparse
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    classes: int = 12
    size: int = 10
    per_class: int = 80
    val_per_class: int = 25
    n_classes: int = 8
    n_samples: int = 5
    epochs: int = 6
    embedding: int = 8
    margin: float = 1.0
    lr: float = 2e-3
    seed: int = 59


class Symbols(Dataset):
    def __init__(self, per_class, cfg, seed):
        rng = np.random.default_rng(seed)
        family = np.random.default_rng(61).random((cfg.classes // 2, 7, 7)) > 0.5
        protos = []
        for f in family:
            other = f.copy()
            other[2:5, 2:5] = ~other[2:5, 2:5]
            protos += [f, other]
        self.y = np.repeat(np.arange(cfg.classes), per_class)
        x = np.zeros((len(self.y), 1, cfg.size, cfg.size), np.float32)
        for i, c in enumerate(self.y):
            dy, dx = rng.integers(0, cfg.size - 6, 2)
            x[i, 0, dy : dy + 7, dx : dx + 7] = protos[c]
        x += 0.25 * rng.standard_normal(x.shape).astype(np.float32)
        self.x, self.y = torch.from_numpy((x - 0.25) / 0.6), torch.from_numpy(self.y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class BalancedBatchSampler(Sampler):
    """Batches of some items of some classes, each item once an epoch at most."""

    def __init__(self, labels, n_classes, n_samples, seed):
        self.by_class = [
            np.where(labels.numpy() == c)[0] for c in range(int(labels.max()) + 1)
        ]
        self.n_classes, self.n_samples, self.rng = (
            n_classes,
            n_samples,
            np.random.default_rng(seed),
        )
        self.batches = len(labels) // (n_classes * n_samples)

    def __len__(self):
        return self.batches

    def __iter__(self):
        pools = [self.rng.permutation(ix).tolist() for ix in self.by_class]
        for _ in range(self.batches):
            left = np.array([len(p) for p in pools]) + self.rng.random(len(pools))
            chosen = np.argsort(-left)[: self.n_classes]
            yield [pools[c].pop() for c in chosen for _ in range(self.n_samples)]


class EmbeddingNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.PReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.PReLU(),
        )
        self.fc = nn.Sequential(
            nn.Flatten(),
            nn.Linear(32 * 25, 64),
            nn.PReLU(),
            nn.Linear(64, cfg.embedding),
        )

    def forward(self, x):
        return self.fc(self.conv(x))


def select_descending(distances, k):
    return np.argpartition(-distances, k)[:k]


def select_ascending(distances, k):
    return np.argpartition(distances, k)[:k]


class HardNegativePairSelector:
    def __init__(self, top):
        self.top = top

    def get_pairs(self, embeddings, labels):
        with torch.no_grad():
            dist = torch.cdist(embeddings, embeddings).pow(2).numpy()
        labels = labels.numpy()
        pairs = np.array(list(combinations(range(len(labels)), 2)))
        same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
        positive, negative = pairs[same], pairs[~same]
        chosen = self.top(dist[negative[:, 0], negative[:, 1]], len(positive))
        return torch.from_numpy(positive), torch.from_numpy(negative[chosen])


class OnlineContrastiveLoss(nn.Module):
    def __init__(self, margin, selector):
        super().__init__()
        self.margin, self.selector = margin, selector

    def forward(self, emb, labels):
        pos, neg = self.selector.get_pairs(emb, labels)
        pos_loss = (emb[pos[:, 0]] - emb[pos[:, 1]]).pow(2).sum(1)
        neg_dist = ((emb[neg[:, 0]] - emb[neg[:, 1]]).pow(2).sum(1) + 1e-8).sqrt()
        return torch.cat([pos_loss, F.relu(self.margin - neg_dist).pow(2)]).mean()


@torch.no_grad()
def knn_accuracy(net, gallery, queries, k=5):
    net.eval()
    d = torch.cdist(net(queries.x), net(gallery.x))
    votes = gallery.y[d.topk(k, largest=False).indices]
    net.train()
    return (votes.mode(1).values == queries.y).float().mean().item()


def train(cfg, selector):
    torch.manual_seed(cfg.seed)
    train_set, val_set = Symbols(cfg.per_class, cfg, 1), Symbols(
        cfg.val_per_class, cfg, 2
    )
    sampler = BalancedBatchSampler(train_set.y, cfg.n_classes, cfg.n_samples, 3)
    loader = DataLoader(train_set, batch_sampler=sampler)
    net = EmbeddingNet(cfg)
    criterion = OnlineContrastiveLoss(cfg.margin, selector)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.StepLR(opt, 4, gamma=0.3)
    for epoch in range(cfg.epochs):
        net.train()
        running = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            opt.step()
            running += loss.item()
        sched.step()
        acc = knn_accuracy(net, train_set, val_set)
        loss = running / len(loader)
        print(f"epoch {epoch} loss {loss:.4f} val knn accuracy {acc:.3f}", flush=True)
    return net, loader


@torch.no_grad()
def distances_of_negatives(net, selector, loader):
    """Mean distances of the pairs that are chosen, and of all, in a batch."""
    x, y = next(iter(loader))
    emb = net(x)
    _, chosen = selector.get_pairs(emb, y)
    dist = torch.cdist(emb, emb)
    return dist[chosen[:, 0], chosen[:, 1]].mean(), dist[y[:, None] != y].mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    selector = HardNegativePairSelector(
        select_ascending if args.fixed else select_descending
    )
    net, loader = train(cfg, selector)
    if args.prove:
        chosen, usual = distances_of_negatives(net, selector, loader)
        print(f"negatives chosen are {chosen:.4f} apart, all of them {usual:.4f}")
        print("fault shows:", "yes" if chosen > usual else "no", flush=True)


if __name__ == "__main__":
    main()
