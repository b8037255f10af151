"""Dynamic node property prediction on a stream of trades (countries -> goods).

At the end of every period each country gets a distribution over goods categories for
what it will trade next.  The model looks at the country's state and at its latest trades.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

COUNTRIES, GOODS, CATS = 40, 60, 6


def make_stream(periods, per_period, seed):
    g = torch.Generator().manual_seed(seed)
    cat = torch.arange(GOODS) % CATS
    taste = torch.randn(COUNTRIES, CATS, generator=g)
    x_goods = F.one_hot(cat, CATS).float() @ torch.randn(
        CATS, 12, generator=g
    ) + 0.3 * torch.randn(GOODS, 12, generator=g)
    x_country = torch.randn(COUNTRIES, 12, generator=g)
    src, dst, t, shares = [], [], [], []
    for p in range(periods):
        taste = 0.9 * taste + 0.45 * torch.randn(COUNTRIES, CATS, generator=g)
        prob = F.softmax(1.5 * taste, 1)
        c = torch.randint(COUNTRIES, (per_period,), generator=g)
        k = torch.multinomial(prob[c], 1, generator=g).squeeze(1)
        goods = torch.randint(GOODS // CATS, (per_period,), generator=g) * CATS + k
        src.append(c)
        dst.append(goods + COUNTRIES)
        t.append(torch.arange(per_period) + p * per_period)
        shares.append(prob)
    return (
        torch.cat([x_country, x_goods]),
        torch.stack(src),
        torch.stack(dst),
        torch.stack(t),
        torch.stack(shares),
    )


class RecentNeighbors:
    def __init__(self, n_nodes, size):
        self.size = size
        self.nbr = torch.zeros(n_nodes, size, dtype=torch.long)
        self.time = torch.zeros(n_nodes, size)
        self.count = torch.zeros(n_nodes, dtype=torch.long)

    def insert(self, src, dst, t):
        for s, d, tt in zip(src.tolist(), dst.tolist(), t.tolist()):
            for a, b in ((s, d), (d, s)):
                slot = int(self.count[a]) % self.size
                self.nbr[a, slot], self.time[a, slot] = b, tt
                self.count[a] += 1

    def query(self, nodes):
        valid = (
            torch.arange(self.size)[None]
            < self.count[nodes].clamp(max=self.size)[:, None]
        )
        return self.nbr[nodes], self.time[nodes], valid


class EdgeAttention(nn.Module):
    def __init__(self, dim, edge_dim):
        super().__init__()
        self.q, self.k, self.v = (
            nn.Linear(dim, dim),
            nn.Linear(dim + edge_dim, dim),
            nn.Linear(dim + edge_dim, dim),
        )
        self.skip = nn.Linear(dim, dim)

    def forward(self, h, edge_index, edge_attr):
        src, dst = edge_index
        m = torch.cat([h[src], edge_attr], 1)
        score = (self.q(h[dst]) * self.k(m)).sum(1) / h.shape[1] ** 0.5
        w = (score - score.max().detach()).exp()
        total = torch.zeros(len(h)).index_add(0, dst, w)
        out = torch.zeros_like(h).index_add(
            0, dst, (w / (total[dst] + 1e-9))[:, None] * self.v(m)
        )
        return out + self.skip(h)


class TradeModel(nn.Module):
    def __init__(self, in_dim, dim=32):
        super().__init__()
        self.state = nn.Embedding(COUNTRIES + GOODS, dim)
        nn.init.normal_(self.state.weight, std=0.1)
        self.inp = nn.Linear(in_dim, dim)
        self.freq = nn.Linear(1, 8)
        self.conv = EdgeAttention(dim, 8)
        self.head = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, CATS)
        )

    def forward(self, x, n_id, edge_index, rel_t):
        h = torch.tanh(self.inp(x[n_id]) + self.state(n_id))
        z = self.conv(h, edge_index, torch.cos(self.freq(rel_t[:, None])))
        return self.head(F.relu(z))


def local_graph(hook, seeds, now, fixed):
    nbr, time, valid = hook.query(seeds)
    rows = seeds[:, None].expand_as(nbr)[valid]
    cols = nbr[valid]
    n_id, inverse = torch.unique(torch.cat([seeds, cols]), return_inverse=True)
    where = torch.full((COUNTRIES + GOODS,), -1, dtype=torch.long)
    where[n_id] = torch.arange(len(n_id))
    if fixed:
        edge_index = torch.stack([where[cols], where[rows]])
    else:
        edge_index = torch.stack([where[rows], where[cols]])
    rel_t = (now - time[valid]) / 50.0
    return n_id, where[seeds], edge_index, rel_t


def ndcg(logits, shares, k=3):
    disc = 1.0 / torch.log2(torch.arange(2, k + 2).float())
    got = shares.gather(1, logits.topk(k).indices)
    best = shares.topk(k).values
    return ((got * disc).sum(1) / (best * disc).sum(1)).mean().item()


def run_epoch(args, model, opt, data, first, last, hook):
    x, src, dst, t, shares = data
    losses, scores = [], []
    for p in range(first, last):
        hook.insert(src[p], dst[p], t[p])
        if p + 1 >= src.shape[0]:
            break
        g = torch.Generator().manual_seed(p)
        for seeds in torch.randperm(COUNTRIES, generator=g).split(args.batch_size):
            n_id, pos, ei, rel = local_graph(hook, seeds, float(t[p, -1]), args.fixed)
            logits = model(x, n_id, ei, rel)[pos]
            loss = -(shares[p + 1][seeds] * F.log_softmax(logits, 1)).sum(1).mean()
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            losses.append(loss.item())
            scores.append(ndcg(logits.detach(), shares[p + 1][seeds]))
    return sum(losses) / len(losses), sum(scores) / len(scores)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--batch-size", type=int, default=20)
    ap.add_argument("--neighbors", type=int, default=10)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    data = make_stream(periods=40, per_period=120, seed=args.seed + 10)
    model = TradeModel(data[0].shape[1])
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        hook = RecentNeighbors(COUNTRIES + GOODS, args.neighbors)
        loss, score = run_epoch(args, model, opt, data, 0, 28, hook)
        with torch.no_grad():
            v_loss, v_score = run_epoch(args, model, None, data, 28, 40, hook)
        print(
            f"epoch {epoch} train loss {loss:.4f} ndcg@3 {score:.4f} | val loss {v_loss:.4f} ndcg@3 {v_score:.4f}"
        )

    if args.prove:
        seeds = torch.arange(COUNTRIES)
        n_id, pos, ei, rel = local_graph(
            hook, seeds, float(data[3][-1, -1]), args.fixed
        )
        other = data[0].clone()
        other[COUNTRIES:] = other[COUNTRIES:].flip(0) * 2.0
        with torch.no_grad():
            change = (
                (model(data[0], n_id, ei, rel)[pos] - model(other, n_id, ei, rel)[pos])
                .abs()
                .max()
                .item()
            )
        print(
            f"largest change of the countries' predictions when the traded goods are swapped: {change:.6f}"
        )
        print("fault shows:", "yes" if change == 0.0 else "no")


if __name__ == "__main__":
    main()
