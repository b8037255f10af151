import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

STAGES = ["wake", "N1", "N2", "N3", "REM"]


def night_fragments(n, gen, length=24):
    """Band powers of EEG/EOG per half second; the stage shows in which bands burst and when."""
    y = torch.randint(len(STAGES), (n,), generator=gen)
    x = 0.8 * torch.randn(n, length, 6, generator=gen)
    t = torch.arange(length).float()
    onset = torch.randint(0, 10, (n,), generator=gen).float()
    env = torch.exp(-(((t[None] - onset[:, None]) / 4.0) ** 2))
    first = torch.tensor([0, 1, 2, 3, 4])[y]
    second = torch.tensor([1, 2, 3, 4, 0])[y]
    rows = torch.arange(n)
    for k in range(length):
        x[rows, k, first] += 1.6 * env[:, k]
        x[rows, k, second] += 0.9 * torch.sin(onset + k / 2.0)
    return x, y


class SleepGRU(nn.Module):
    def __init__(self, n_in=6, hidden=40):
        super().__init__()
        self.inp = nn.Linear(n_in, 24)
        self.gru = nn.GRU(24, hidden, batch_first=True)
        self.out = nn.Linear(hidden, len(STAGES))

    def forward(self, x, state=None):
        z = torch.tanh(self.inp(x))
        seq, state = self.gru(z, state)
        return self.out(seq[:, -1]), state


class Trainer:
    def __init__(self, model, args):
        self.model = model
        self.args = args
        self.opt = torch.optim.RMSprop(model.parameters(), lr=args.lr)
        self.state = None
        self.start_norms = []
        self.step = 0

    def fit(self, loader, val):
        for epoch in range(self.args.epochs):
            self.model.train()
            acc = []
            for x, y in loader:
                acc.append(self.train_batch(x, y))
            hits = sum(a for a, _ in acc) / (len(acc) * loader.batch_size)
            loss = sum(l for _, l in acc) / len(acc)
            print(
                f"epoch {epoch:2d} loss {loss:.4f} train acc {hits:.3f} "
                f"val acc {self.validate(*val):.3f}"
            )

    def train_batch(self, x, y):
        if self.args.fixed:
            self.state = None
        self.start_norms.append(0.0 if self.state is None else self.state.norm().item())
        logits, state = self.model(x, self.state)
        self.state = state.detach()
        loss = F.cross_entropy(logits, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.step += 1
        return (logits.argmax(1) == y).sum().item(), loss.item()

    @torch.no_grad()
    def validate(self, x, y):
        self.model.eval()
        logits, _ = self.model(x)
        return (logits.argmax(1) == y).float().mean().item()


def get_args():
    p = argparse.ArgumentParser(description="sleep stage from a 12 s fragment")
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--batch", type=int, default=40)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    args = get_args()
    torch.manual_seed(77)
    gen = torch.Generator().manual_seed(77)
    x, y = night_fragments(1000, gen)
    val = night_fragments(500, gen)
    loader = DataLoader(
        TensorDataset(x, y),
        batch_size=args.batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(6),
    )
    trainer = Trainer(SleepGRU(), args)
    trainer.fit(loader, val)
    final = trainer.validate(*val)
    print(f"final validation accuracy {final:.3f} after {trainer.step} steps")

    if args.prove:
        largest = max(trainer.start_norms)
        print(f"norm of the state a fragment starts from: at most {largest:.3f}")
        print("fault shows: " + ("yes" if largest > 0 else "no"))
