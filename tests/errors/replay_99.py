import argparse
import logging
from typing import Dict, List, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, TensorDataset


class GMF(nn.Module):
    def __init__(self, user_count, item_count, dim):
        super().__init__()
        self.user_embedding, self.item_embedding = nn.Embedding(
            user_count, dim
        ), nn.Embedding(item_count, dim)
        self.item_biases = nn.Embedding(item_count, 1)

    def forward(self, user, item):
        return self.user_embedding(user) * self.item_embedding(item) + self.item_biases(
            item
        )


class MLP(nn.Module):
    def __init__(self, user_count, item_count, dim, hidden):
        super().__init__()
        self.user_embedding, self.item_embedding = nn.Embedding(
            user_count, dim
        ), nn.Embedding(item_count, dim)
        sizes = [2 * dim] + hidden
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])

    def forward(self, user, item):
        x = torch.cat([self.user_embedding(user), self.item_embedding(item)], dim=-1)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class NMF(nn.Module):
    def __init__(self, user_count, item_count, dim=24, hidden=(48, 24)):
        super().__init__()
        self.gmf = GMF(user_count, item_count, dim)
        self.mlp = MLP(user_count, item_count, dim, list(hidden))
        self.last_layer = nn.Linear(dim + hidden[-1], 1)
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, std=0.1)

    def forward(self, user, item):
        return self.last_layer(
            torch.cat([self.gmf(user, item), self.mlp(user, item)], dim=-1)
        ).squeeze(-1)


class NeuroMF:
    """Neural matrix factorisation; fit_items are the ids that occur in the training log."""

    def __init__(
        self,
        learning_rate=0.01,
        epochs=20,
        count_negative_sample=4,
        batch_size_users=512,
        seed=42,
        fixed=False,
    ):
        self.learning_rate, self.epochs = learning_rate, epochs
        self.count_negative_sample = count_negative_sample
        self.batch_size = batch_size_users
        self.seed, self.fixed = seed, fixed
        self.logger = logging.getLogger("replay")

    def fit(self, log: np.ndarray, max_steps: int):
        torch.manual_seed(self.seed)
        self.fit_users, self.fit_items = np.unique(log[:, 0]), np.unique(log[:, 1])
        self._user_dim = int(self.fit_users.max()) + 1
        self._item_dim = int(self.fit_items.max()) + 1
        self.model = NMF(self._user_dim, self._item_dim)
        optimizer = optim.Adam(
            self.model.parameters(), lr=self.learning_rate, weight_decay=1e-6
        )
        scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
        hold = np.random.RandomState(self.seed).rand(len(log)) < 0.1
        tensors = [torch.from_numpy(log[m]).long() for m in (~hold, hold)]
        train, val = [TensorDataset(t[:, 0], t[:, 1]) for t in tensors]
        self.neg_count = torch.zeros(self._item_dim, dtype=torch.long)
        self.history: List[Dict[str, float]] = []
        step = 0
        for epoch in range(self.epochs):
            self.model.train()
            losses = []
            for batch in DataLoader(train, self.batch_size, shuffle=True):
                if step == max_steps:
                    return self
                loss = self._batch_pass(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                step += 1
            scheduler.step()
            self.model.eval()
            with torch.no_grad():
                vl = np.mean(
                    [
                        self._batch_pass(b).item()
                        for b in DataLoader(val, self.batch_size)
                    ]
                )
            self.history.append({"train": float(np.mean(losses)), "valid": float(vl)})
            print(
                f"epoch {epoch:2d} step {step:3d} train {np.mean(losses):.4f} valid {vl:.4f}"
            )
        return self

    def _get_neg_batch(self, users: Tensor) -> Tensor:
        n = (len(users) * self.count_negative_sample,)
        negatives = torch.randint(0, self._item_dim, n)
        if self.fixed:
            known = torch.from_numpy(self.fit_items)
            negatives = known[torch.randint(0, len(known), n)]
        self.neg_count += torch.bincount(negatives, minlength=self._item_dim)
        return negatives

    def _batch_pass(self, batch: Tuple[Tensor, Tensor]) -> Tensor:
        users, pos = batch
        neg = self._get_neg_batch(users)
        pos_logit = self.model(users, pos)
        neg_logit = self.model(users.repeat(self.count_negative_sample), neg)
        logits = torch.cat([pos_logit, neg_logit])
        y = torch.cat([torch.ones_like(pos_logit), torch.zeros_like(neg_logit)])
        w = torch.where(y > 0, 1.0, 1.0 / self.count_negative_sample)
        return F.binary_cross_entropy_with_logits(logits, y, weight=w)

    @torch.no_grad()
    def predict(self, users: np.ndarray, k: int) -> np.ndarray:
        items = torch.from_numpy(self.fit_items).long()
        rec = []
        for u in users:
            s = self.model(torch.full_like(items, int(u)), items)
            rec.append(items[s.topk(k).indices].numpy())
        return np.stack(rec)


def make_log(n_users=400, n_items=300, seed=0):
    """The shop's index runs over all articles ever; only a part of them was sold in the period."""
    rng = np.random.RandomState(seed)
    catalogue = np.sort(rng.choice(1500, n_items, replace=False))
    u, v = rng.randn(n_users, 6), rng.randn(n_items, 6)
    p = np.exp(1.2 * u @ v.T + rng.randn(n_items))
    p /= p.sum(1, keepdims=True)
    rows, test = [], []
    for i in range(n_users):
        bought = rng.choice(n_items, 30, replace=False, p=p[i])
        rows += [(i, catalogue[b]) for b in bought[:25]]
        test.append(set(catalogue[bought[25:]]))
    return np.array(rows), test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    log, test = make_log()
    model = NeuroMF(epochs=1000, fixed=args.fixed).fit(log, args.steps)
    rec = model.predict(np.arange(len(test)), 30)
    print(
        "recall@30 %.4f"
        % np.mean([len(set(r) & t) / len(t) for r, t in zip(rec, test)])
    )
    if args.prove:
        sold = torch.zeros(model._item_dim, dtype=torch.bool)
        sold[torch.from_numpy(model.fit_items)] = True
        share = model.neg_count[~sold].sum().item() / model.neg_count.sum().item()
        print("fault shows:", "yes" if share > 0.01 else "no")


if __name__ == "__main__":
    main()
