"""Behaviour cloning with a transformer over histories of different length (toy drone, offline data).

The last action of a history depends on the *mean* of the readings seen so far, histories are
padded at the end with whatever the logger left in the buffer.
"""
import argparse
import math
from typing import List, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class FlightLog(Dataset):
    def __init__(self, n: int, seed: int, obs_dim: int = 6):
        g = torch.Generator().manual_seed(seed)
        mix = torch.randn(obs_dim, 3, generator=torch.Generator().manual_seed(9))
        self.items = []
        for _ in range(n):
            t = int(torch.randint(2, 13, (1,), generator=g))
            drift = torch.randn(1, obs_dim, generator=g)
            obs = drift + 0.7 * torch.randn(t, obs_dim, generator=g)
            action = (obs.mean(0) @ mix).argmax()
            self.items.append((obs, action))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    longest = max(len(o) for o, _ in batch)
    # the ring buffer of the logger is not cleared between flights
    obs = 2.5 * torch.randn(
        len(batch), longest, batch[0][0].size(1), generator=collate.gen
    )
    mask = torch.zeros(len(batch), longest)
    for i, (o, _) in enumerate(batch):
        obs[i, : len(o)] = o
        mask[i, : len(o)] = 1
    return obs, mask, torch.stack([a for _, a in batch])


collate.gen = torch.Generator().manual_seed(4)


class Attention(nn.Module):
    r"""
    Multi-head self attention, the mask is 1 for a valid entry.
    """

    def __init__(
        self,
        input_dim: int,
        head_dim: int,
        output_dim: int,
        head_num: int,
        dropout: nn.Module,
        fixed: bool = False,
    ) -> None:
        super().__init__()
        self.head_num, self.head_dim, self.fixed = head_num, head_dim, fixed
        self.dropout = dropout
        self.attention_pre = nn.Linear(input_dim, head_dim * head_num * 3)
        self.project = nn.Linear(head_dim * head_num, output_dim)

    def split(self, x: torch.Tensor) -> List[torch.Tensor]:
        B, N = x.shape[:2]
        return (
            x.view(B, N, self.head_num, self.head_dim).permute(0, 2, 1, 3).contiguous()
        )

    def scores(self, q, k, mask: Optional[torch.Tensor]):
        score = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        if mask is not None:
            invalid = mask[:, None, None, :] == 0
            if self.fixed:
                score.masked_fill_(invalid, -1e9)
            else:
                score.masked_fill(invalid, -1e9)
        return F.softmax(score, dim=-1)

    def forward(
        self, x: torch.Tensor, mask: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        q, k, v = [self.split(t) for t in self.attention_pre(x).chunk(3, dim=2)]
        attention = torch.matmul(self.dropout(self.scores(q, k, mask)), v)
        attention = attention.permute(0, 2, 1, 3).flatten(2)
        return self.project(attention)


class TransformerLayer(nn.Module):
    def __init__(self, dim, head_dim, hidden, head_num, dropout, fixed):
        super().__init__()
        self.attention = Attention(
            dim, head_dim, dim, head_num, nn.Dropout(dropout), fixed
        )
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim)
        )

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.mlp(x))


class HistoryPolicy(nn.Module):
    def __init__(self, obs_dim=6, dim=48, layers=2, actions=3, fixed=False):
        super().__init__()
        self.embedding = nn.Linear(obs_dim, dim)
        self.query = nn.Parameter(torch.zeros(1, 1, dim))
        self.layers = nn.ModuleList(
            TransformerLayer(dim, 12, 96, 4, 0.1, fixed) for _ in range(layers)
        )
        self.head = nn.Linear(dim, actions)

    def forward(self, obs, mask):
        x = torch.cat([self.query.expand(len(obs), -1, -1), self.embedding(obs)], 1)
        mask = torch.cat([torch.ones(len(mask), 1), mask], 1)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, 0])


class BehaviourCloning:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = HistoryPolicy(fixed=cfg.fixed)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=2e-3, weight_decay=1e-5
        )
        self.train_loader = DataLoader(
            FlightLog(2500, 1), batch_size=64, shuffle=True, collate_fn=collate
        )
        self.test_loader = DataLoader(
            FlightLog(400, 2), batch_size=100, collate_fn=collate
        )

    def fit(self):
        it, self.model = iter(self.train_loader), self.model.train()
        for step in range(1, self.cfg.steps + 1):
            try:
                obs, mask, act = next(it)
            except StopIteration:
                it = iter(self.train_loader)
                obs, mask, act = next(it)
            loss = F.cross_entropy(self.model(obs, mask), act)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            if step % 40 == 0:
                print(f"iter {step}: loss {loss.item():.4f}")

    @torch.no_grad()
    def test(self):
        self.model.eval()
        hits = [
            (self.model(o, m).argmax(1) == a).float() for o, m, a in self.test_loader
        ]
        return torch.cat(hits).mean().item()

    @torch.no_grad()
    def padding_influence(self):
        """change nothing but what lies in the padding"""
        self.model.eval()
        obs, mask, _ = next(iter(self.test_loader))
        other = torch.where(mask[..., None] > 0, obs, torch.randn_like(obs))
        return (self.model(obs, mask) - self.model(other, mask)).abs().max().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    cfg = parser.parse_args()
    torch.manual_seed(0)
    bc = BehaviourCloning(cfg)
    bc.fit()
    print(f"test accuracy {bc.test():.4f}")
    if cfg.prove:
        change = bc.padding_influence()
        print(f"logits change by {change:.5f} with the content of the padding")
        print("fault shows:", "yes" if change > 1e-4 else "no")
