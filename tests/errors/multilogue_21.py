"""Finds fear in the turns of conversations (a recurrent net over each talk).

After multilogue-net, issue 21.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TURNS, FEATURES = 12, 16


def talks(count, seed):
    """Features of the turns; fear is rare and lingers from turn to turn."""
    sign = torch.randn(FEATURES, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(count, TURNS, generator=generator)
    fear = torch.zeros(count, TURNS, dtype=torch.long)
    for turn in range(TURNS):
        before = fear[:, turn - 1] if turn else fear[:, 0]
        fear[:, turn] = draw[:, turn] < torch.where(before == 1, 0.5, 0.06)
    noise = torch.randn(count, TURNS, FEATURES, generator=generator)
    return 0.6 * sign * fear[:, :, None] + noise, fear


class TalkModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.gru = nn.GRU(FEATURES, width, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(2 * width, 2)

    def forward(self, talk):
        return self.head(self.dropout(self.gru(talk)[0]))


def class_weights(fear, fixed):
    share = fear.float().mean()
    shares = [1 - share, share] if fixed else [share, 1 - share]
    weights = 1 / torch.stack(shares)
    return weights / weights.sum()


def recalls(model, talk, fear):
    """The share that is found, of each class."""
    model.eval()
    with torch.no_grad():
        guess = model(talk).argmax(2)
    model.train()
    return [(guess == one)[fear == one].float().mean().item() for one in (0, 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = talks(800, args.seed), talks(300, args.seed + 1)
    loader = DataLoader(TensorDataset(*train), batch_size=32, shuffle=True)
    model, weights = TalkModel(), class_weights(train[1], args.fixed)
    criterion = nn.CrossEntropyLoss(weight=weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    step = 0
    for epoch in range(args.epochs):
        for talk, fear in loader:
            loss = criterion(model(talk).flatten(0, 1), fear.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        calm, afraid = recalls(model, *valid)
        print(f"epoch {epoch} recalls {calm:.4f} {afraid:.4f}", flush=True)
    if args.prove:
        count = torch.bincount(train[1].flatten())
        ratio = (weights * count / (weights * count).sum()).tolist()
        print(f"the classes have shares {ratio[0]:.4f} and {ratio[1]:.4f} of the loss")
        print("fault shows:", "yes" if ratio[1] < 0.4 else "no", flush=True)


if __name__ == "__main__":
    main()
