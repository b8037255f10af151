"""Re-identification of humpback whales from fluke photographs (batch-hard triplets)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_photos(n_whales, n_photos, gen):
    """Each animal has its own pigmentation pattern; photos differ in shift, light and noise."""
    base = torch.randn(n_whales, 1, 6, 6, generator=gen)
    base = F.interpolate(base, size=(24, 24), mode="bilinear", align_corners=False)
    photos, ids = [], []
    for w in range(n_whales):
        for _ in range(n_photos):
            dy, dx = torch.randint(-3, 4, (2,), generator=gen).tolist()
            img = torch.roll(base[w], shifts=(dy, dx), dims=(1, 2))
            light = 0.6 + 0.8 * torch.rand(1, generator=gen)
            tilt = torch.linspace(-1, 1, 24) * torch.randn(1, generator=gen) * 0.5
            photos.append(
                img * light + tilt + 0.4 * torch.randn(1, 24, 24, generator=gen)
            )
            ids.append(w)
    return torch.stack(photos), torch.tensor(ids)


class FlukeNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
        )
        self.proj = nn.Linear(32 * 9, dim)

    def forward(self, x):
        return F.normalize(self.proj(self.body(x).flatten(1)), dim=1)


class PKSampler:
    """P animals x K photos per batch."""

    def __init__(self, ids, p, k, gen):
        self.by_id = {i: (ids == i).nonzero().flatten() for i in ids.unique().tolist()}
        self.p, self.k, self.gen = p, k, gen

    def draw(self):
        keys = list(self.by_id)
        picked = torch.randperm(len(keys), generator=self.gen)[: self.p].tolist()
        rows = []
        for j in picked:
            pool = self.by_id[keys[j]]
            rows.append(pool[torch.randperm(len(pool), generator=self.gen)[: self.k]])
        return torch.cat(rows)


class BatchHardTriplet(nn.Module):
    def __init__(self, margin=0.3, fixed=False):
        super().__init__()
        self.margin = margin
        self.fixed = fixed

    def mine(self, emb, ids):
        dist = 2 - 2 * emb @ emb.t()
        same = ids[:, None] == ids[None, :]
        if self.fixed:
            d_pos, i_pos = dist.masked_fill(~same, float("-inf")).max(dim=1)
        else:
            d_pos, i_pos = dist.masked_fill(~same, float("inf")).min(dim=1)
        d_neg, i_neg = dist.masked_fill(same, float("inf")).min(dim=1)
        return d_pos, d_neg, i_pos, i_neg

    def forward(self, emb, ids):
        d_pos, d_neg, _, _ = self.mine(emb, ids)
        d_pos, d_neg = d_pos.clamp(min=1e-6).sqrt(), d_neg.clamp(min=1e-6).sqrt()
        return F.softplus(4 * (d_pos - d_neg + self.margin)).mean() / 4


@torch.no_grad()
def rank1(net, photos, ids):
    net.eval()
    emb = net(photos)
    sim = emb @ emb.t()
    sim.fill_diagonal_(-2.0)
    net.train()
    return (ids[sim.argmax(1)] == ids).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--lr", type=float, default=7e-4)
    ap.add_argument("--margin", type=float, default=0.3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(11)
    photos, ids = make_photos(40, 8, gen)
    seen = ids < 28
    tr_x, tr_y = photos[seen], ids[seen]
    te_x, te_y = photos[~seen], ids[~seen]

    net = FlukeNet()
    criterion = BatchHardTriplet(args.margin, fixed=args.fixed)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    sampler = PKSampler(tr_y, p=8, k=4, gen=gen)

    picks = []
    print(f"rank-1 on unseen whales before training: {rank1(net, te_x, te_y):.3f}")
    for step in range(args.steps):
        rows = sampler.draw()
        emb = net(tr_x[rows])
        loss = criterion(emb, tr_y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.prove and step % 10 == 0:
            _, _, i_pos, _ = criterion.mine(emb.detach(), tr_y[rows])
            picks.append((i_pos == torch.arange(len(rows))).float().mean())
        if step % 25 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  triplet loss {loss.item():.4f}")

    print(f"rank-1 on unseen whales: {rank1(net, te_x, te_y):.3f}")
    print(f"rank-1 on known whales:  {rank1(net, tr_x, tr_y):.3f}")
    if args.prove:
        share = torch.stack(picks).mean().item()
        print(f"share of rows whose partner is the row itself: {share:.3f}")
        print("fault shows:", "yes" if share > 0.05 else "no")


if __name__ == "__main__":
    main()
