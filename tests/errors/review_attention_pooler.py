"""
Sentiment of product reviews: embedding -> BiGRU -> additive attention -> linear.
Tokens are drawn from a toy grammar where a few opinion words decide the label
and negations flip the word that follows.
"""
import argparse
import torch
import torch.nn as nn

VOCAB, SEQ = 120, 20
POS = range(2, 10)
NEG = range(10, 18)
NOT = 1


def generate_reviews(n, seed):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(18, VOCAB, (n, SEQ), generator=g)
    labels = torch.randint(0, 2, (n,), generator=g)
    for i in range(n):
        spots = torch.randperm(SEQ - 1, generator=g)[:2] + 1
        for s in spots.tolist():
            negated = torch.rand(1, generator=g).item() < 0.3
            positive = bool(labels[i]) != negated
            pool = POS if positive else NEG
            tokens[i, s] = pool[int(torch.randint(0, 8, (1,), generator=g))]
            tokens[i, s - 1] = NOT if negated else tokens[i, s - 1].clamp(min=2)
    return tokens, labels


class AttentionPool(nn.Module):
    def __init__(self, dim, att=32, fixed=False):
        super().__init__()
        self.proj = nn.Linear(dim, att)
        self.query = nn.Linear(att, 1, bias=False)
        self.dim = 0 if fixed else 1

    def forward(self, states):
        scores = self.query(torch.tanh(self.proj(states))).squeeze(-1)
        weights = torch.softmax(scores, dim=self.dim)
        return (weights.unsqueeze(-1) * states).sum(dim=0), weights


class ReviewModel(nn.Module):
    def __init__(self, emb=24, hidden=24, fixed=False):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb)
        self.gru = nn.GRU(emb, hidden, bidirectional=True)
        self.pool = AttentionPool(2 * hidden, fixed=fixed)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(2 * hidden, 2)

    def forward(self, tokens):
        x = self.embedding(tokens.t())
        states, _ = self.gru(x)
        pooled, weights = self.pool(states)
        return self.fc(self.drop(pooled)), weights


def accuracy(model, tokens, labels, chunk=64):
    model.eval()
    ok = 0
    with torch.no_grad():
        for i in range(0, len(labels), chunk):
            logits, _ = model(tokens[i : i + chunk])
            ok += (logits.argmax(-1) == labels[i : i + chunk]).sum().item()
    model.train()
    return ok / len(labels)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    opt = ap.parse_args()

    torch.manual_seed(3)
    X, Y = generate_reviews(2000, seed=10)
    Xv, Yv = generate_reviews(500, seed=20)

    model = ReviewModel(fixed=opt.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)
    loss_fn = nn.CrossEntropyLoss()
    gen = torch.Generator().manual_seed(99)

    model.train()
    history = []
    for step in range(opt.steps):
        idx = torch.randint(0, len(X), (opt.batch_size,), generator=gen)
        logits, _ = model(X[idx])
        loss = loss_fn(logits, Y[idx])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
        if step % 40 == 39:
            recent = sum(history[-40:]) / 40
            print(
                f"step {step + 1:>4} loss {recent:.4f} val acc {accuracy(model, Xv, Yv):.3f}"
            )

    print(f"done: val acc {accuracy(model, Xv, Yv):.3f}, last loss {history[-1]:.4f}")

    if opt.prove:
        model.eval()
        with torch.no_grad():
            together, w = model(Xv[:16])
            alone = torch.cat([model(Xv[i : i + 1])[0] for i in range(16)])
        gap = (together - alone).abs().max().item()
        totals = w.sum(dim=0)
        print(f"logit gap, review read in a batch vs alone: {gap:.4f}")
        print(
            f"attention mass per review: min {totals.min():.3f} max {totals.max():.3f}"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
