"""Ectopy grade from short heartbeat-interval strips.

Every strip is 16 RR intervals of one patient. The grade is the number of
premature beats in it, 0 to 3.
"""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

BEATS, GRADES = 16, 4


def strips(n, seed):
    """Intervals relative to the patient's mean, and the grade of each strip."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, GRADES, (n,), generator=g)
    k = torch.arange(BEATS).float()
    breath = 0.3 * torch.sin(0.7 * k + 6.28 * torch.rand(n, 1, generator=g))
    rr = breath + 0.25 * torch.randn(n, BEATS, generator=g)
    place = torch.rand(n, BEATS, generator=g).argsort(1)
    early = place < y.unsqueeze(1)
    rr = torch.where(early, rr - 1.5 - 0.3 * torch.rand(n, BEATS, generator=g), rr)
    return rr.unsqueeze(-1), y


class EctopyGRU(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, GRADES)

    def forward(self, x, state=None):
        out, state = self.gru(x, state)
        return self.head(out[:, -1]), state


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = n = 0
    nll = 0.0
    for x, y in loader:
        logits, _ = model(x)
        right += (logits.argmax(1) == y).sum().item()
        nll += F.cross_entropy(logits, y, reduction="sum").item()
        n += len(y)
    model.train()
    return right / n, nll / n


# size: the whole run in one place, read from top to bottom
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(55)
    x_train, y_train = strips(1280, 1)
    train_loader = DataLoader(
        TensorDataset(x_train, y_train),
        args.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(6),
    )
    test_loader = DataLoader(TensorDataset(*strips(800, 2)), 200)

    model = EctopyGRU()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    start_norms, gaps = [], []

    state = None
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in train_loader:
            if args.fixed:
                state = None
            elif state is not None:
                state = state.detach()
            if args.prove:
                start_norms.append(0.0 if state is None else state.norm().item())
            if args.prove and len(start_norms) % 10 == 0:
                with torch.no_grad():
                    gaps.append((model(x, state)[0] - model(x)[0]).abs().mean().item())

            optimizer.zero_grad()
            logits, state = model(x, state)
            loss = F.cross_entropy(logits, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            total += loss.item()
        acc, nll = evaluate(model, test_loader)
        print(
            f"epoch {epoch + 1:2d}  loss {total / len(train_loader):.4f}  "
            f"test nll {nll:.4f}  test acc {acc:.4f}"
        )

    acc, nll = evaluate(model, test_loader)
    print(f"final: test accuracy {acc:.4f}, nll {nll:.4f}")

    if args.prove:
        dirty = [i for i, n in enumerate(start_norms) if n > 0]
        print(
            f"strips began from a non-zero state in {len(dirty)} of {len(start_norms)} "
            f"steps (first {dirty[:1]}); logits moved by {sum(gaps) / len(gaps):.4f} on average"
        )
        print("fault shows:", "yes" if dirty else "no")


if __name__ == "__main__":
    main()
