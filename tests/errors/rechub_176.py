"""RECHUB-176: an initialiser makes the embedding without its padding row.

Source: https://github.com/datawhalechina/torch-rechub/pull/176 (issue #114; also
pytorch/pytorch#6411). The feature knows which index pads, but the initialiser that
makes its table is not told: index 0 has a random vector, which is trained, and a
summed history depends on how far it was padded. --fixed passes the index on.
"""

import argparse

import numpy as np
import torch
from torch import nn

N_ITEMS, MAX_LEN, DIM = 120, 12, 8


class RandomNormal:
    def __init__(self, mean=0.0, std=0.3, forward_padding=True):
        self.mean, self.std = mean, std
        self.forward_padding = forward_padding

    def __call__(self, vocab_size, embed_dim, padding_idx=None):
        if not self.forward_padding:
            padding_idx = None
        table = nn.Embedding(vocab_size, embed_dim, padding_idx=padding_idx)
        nn.init.normal_(table.weight, self.mean, self.std)
        if padding_idx is not None:
            with torch.no_grad():
                table.weight[padding_idx].zero_()
        return table


class SequenceFeature:
    def __init__(self, name, vocab_size, embed_dim, initializer, padding_idx=0):
        self.name, self.padding_idx = name, padding_idx
        self.vocab_size, self.embed_dim = vocab_size, embed_dim
        self.initializer = initializer

    def get_embedding_layer(self):
        shape = self.vocab_size, self.embed_dim
        return self.initializer(*shape, padding_idx=self.padding_idx)


class TwoTower(nn.Module):
    """Sum of the history against the items; negatives come from the batch."""

    def __init__(self, feature, temperature=0.5):
        super().__init__()
        self.items = feature.get_embedding_layer()
        self.user = nn.Sequential(nn.Linear(DIM, 16), nn.ReLU(), nn.Linear(16, DIM))
        self.temperature = temperature

    def user_vector(self, history):
        return nn.functional.normalize(self.user(self.items(history).sum(dim=1)))

    def forward(self, history, target):
        wanted = nn.functional.normalize(self.items(target))
        return self.user_vector(history) @ wanted.T / self.temperature


def clicks(users, seed):
    """Histories of 2 to 8 items of one taste, left-aligned, and the next click."""
    rng = np.random.default_rng(seed)
    history = np.zeros((users, MAX_LEN), dtype=np.int64)
    following = np.zeros(users, dtype=np.int64)
    for row in range(users):
        shelf = 1 + 20 * rng.integers(0, (N_ITEMS - 1) // 20)
        seen = rng.integers(shelf, shelf + 20, size=rng.integers(2, 9))
        history[row, : len(seen)] = seen
        following[row] = rng.integers(shelf, shelf + 20)
    return torch.from_numpy(history), torch.from_numpy(following)


@torch.no_grad()
def recall_at(model, history, following, k=10):
    table = nn.functional.normalize(model.items.weight[1:])
    top = (model.user_vector(history) @ table.T).topk(k).indices + 1
    return (top == following[:, None]).any(1).float().mean().item()


@torch.no_grad()
def moves_with_padding(model, history):
    longer = nn.functional.pad(history, (0, 6))
    return (model.user_vector(history) - model.user_vector(longer)).abs().max() > 1e-6


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    ap.add_argument("--steps", type=int, default=20)
    opt = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(2022)

    feature = SequenceFeature(
        "hist_item_id", N_ITEMS, DIM, RandomNormal(forward_padding=opt.fixed)
    )
    model = TwoTower(feature)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    train_history, train_next = clicks(640, seed=0)
    test_history, test_next = clicks(200, seed=1)
    for step in range(opt.steps):
        rows = torch.randint(len(train_next), (64,))
        scores = model(train_history[rows], train_next[rows])
        loss = nn.functional.cross_entropy(scores, torch.arange(len(rows)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        line = f"[{step + 1:>3}/{opt.steps}] in-batch loss {loss.item():.4f}"
        if step % 5 == 4:
            line += f"  recall@10 {recall_at(model, test_history, test_next):.3f}"
        print(line, flush=True)
    if opt.prove:
        moved = moves_with_padding(model, test_history)
        print("fault shows:", "yes" if moved else "no")
