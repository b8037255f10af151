"""A transformer finds false edges in a dynamic graph of payments between accounts.

For each edge it reads the earlier edges of both of its ends. After GeneralDyG, issue 6.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

ACCOUNTS, GROUPS, HISTORY = 30, 3, 6


class EdgeTransformer(nn.Module):
    def __init__(self, probabilities, width=32):
        super().__init__()
        self.account = nn.Embedding(ACCOUNTS, width)
        self.role = nn.Embedding(3, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.activation = nn.Sigmoid() if probabilities else nn.Identity()

    def forward(self, ends, past):
        tokens = torch.cat([ends, past.flatten(1)], 1)
        role = torch.tensor([0, 0] + [1] * HISTORY + [2] * HISTORY)
        hidden = self.encoder(self.account(tokens) + self.role(role))
        pair = hidden[:, 0] * hidden[:, 1] + hidden.mean(1)
        return self.activation(self.classifier(pair)).squeeze(1)


def payments(count, seed):
    """Most payments stay in a group of accounts; the false ones are drawn anew."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape, high):
        return torch.randint(high, shape, generator=generator)

    size = ACCOUNTS // GROUPS
    group = draw((count,), GROUPS)
    label = (torch.rand(count, generator=generator) < 0.3).float()
    other = torch.where(label > 0, (group + 1 + draw((count,), GROUPS - 1)), group)
    other = other % GROUPS
    ends = torch.stack([group, other], 1) * size + draw((count, 2), size)
    home = torch.stack([group, other], 1)[:, :, None]
    stray = torch.rand(count, 2, HISTORY, generator=generator) < 0.2
    home = torch.where(stray, draw((count, 2, HISTORY), GROUPS), home)
    past = home * size + draw((count, 2, HISTORY), size)
    return TensorDataset(ends, past, label)


def auc(score, label):
    rank = torch.empty(len(score))
    rank[score.argsort()] = torch.arange(1.0, len(score) + 1)
    positive = label.sum()
    area = rank[label > 0].sum() - positive * (positive + 1) / 2
    return (area / (positive * (len(label) - positive))).item()


@torch.no_grad()
def predict(model, data):
    model.eval()
    return torch.cat([model(ends, past) for ends, past, _ in DataLoader(data, 200)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train = DataLoader(payments(1920, args.seed), batch_size=64, shuffle=True)
    valid = payments(400, args.seed + 1)
    model = EdgeTransformer(probabilities=not args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for ends, past, label in train:
            loss = F.binary_cross_entropy_with_logits(model(ends, past), label)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        area = auc(predict(model, valid), valid.tensors[2])
        print(f"epoch {epoch} auc {area:.4f}", flush=True)
    if args.prove:
        chance = predict(model, valid).sigmoid()
        print(f"chances of the loss from {chance.min():.4f} to {chance.max():.4f}")
        print("fault shows:", "yes" if chance.min() >= 0.5 else "no", flush=True)


if __name__ == "__main__":
    main()
