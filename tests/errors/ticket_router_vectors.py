"""Route support tickets to a desk. Word vectors come from a co-occurrence SVD of a big
unlabelled ticket archive; they stay as they are and only the small encoder is trained."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

DESKS, WORDS, LEN, DIM = 5, 400, 12, 24


def tickets(n, seed, common_only=False):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, DESKS, (n,), generator=g)
    per = WORDS // (DESKS + 3)
    topical = torch.rand(n, LEN, generator=g) < 0.3
    limit = 14 if common_only else per
    in_topic = y[:, None] * per + torch.randint(0, limit, (n, LEN), generator=g)
    other = torch.randint(0, WORDS, (n, LEN), generator=g)
    return torch.where(topical, in_topic, other), y


def archive_vectors():
    docs, _ = tickets(5000, seed=900)
    bag = torch.zeros(len(docs), WORDS).scatter_add_(1, docs, torch.ones(docs.shape))
    co = bag.t() @ bag
    co.fill_diagonal_(0)
    pmi = torch.log(
        (co * co.sum() + 1) / (co.sum(0)[:, None] * co.sum(1)[None] + 1)
    ).clamp(min=0)
    u, s, _ = torch.linalg.svd(pmi)
    vec = u[:, :DIM] * s[:DIM].sqrt()
    return vec / vec.std()


class Router(nn.Module):
    def __init__(self, vectors, fixed):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        with torch.no_grad():
            self.embed.weight.copy_(vectors)
        if fixed:
            self.embed.requires_grad_(False)
        else:
            self.embed.requires_grad = False
        self.conv = nn.Conv1d(DIM, 32, 3, padding=1)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(32, DESKS)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        x = F.relu(self.conv(x)).mean(dim=2)
        return self.out(self.dropout(x))


def score(model, tokens, y):
    model.eval()
    with torch.no_grad():
        logits = model(tokens)
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    a = parser.parse_args()

    torch.manual_seed(a.seed)
    vectors = archive_vectors()
    x, y = tickets(200, seed=901, common_only=True)
    xt, yt = tickets(1000, seed=902)

    model = Router(vectors, a.fixed)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=a.lr)
    g = torch.Generator().manual_seed(a.seed)

    mean_loss = 0.0
    for step in range(1, a.steps + 1):
        model.train()
        idx = torch.randint(0, len(x), (a.batch,), generator=g)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        mean_loss += loss.item()
        if step % 80 == 0:
            tl, ta = score(model, xt, yt)
            print(f"{step:5d}  train {mean_loss / 80:.4f}  test {tl:.4f}  acc {ta:.3f}")
            mean_loss = 0.0

    tl, ta = score(model, xt, yt)
    print(f"test loss {tl:.4f}, test accuracy {ta:.3f}")

    if a.prove:
        change = (model.embed.weight.detach() - vectors).abs().max().item()
        print(f"largest change of a word vector: {change:.5f}")
        print("fault shows:", "yes" if change > 0 else "no")


if __name__ == "__main__":
    main()
