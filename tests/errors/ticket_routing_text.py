#!/usr/bin/env python
"""
Support-ticket routing: token ids -> one of 8 queues.
Embedding bag of a small transformer encoder, trained from scratch.

  python ticket_routing_text.py --steps 110
"""
import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PAD, VOCAB, QUEUES = 0, 400, 8


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class TicketDataset(Dataset):
    """Tickets are a mix of filler words and a few words typical of the queue."""

    def __init__(self, n=3000, seed=0):
        rng = random.Random(seed)
        self.items = []
        for _ in range(n):
            queue = rng.randrange(QUEUES)
            length = rng.randint(6, 24)
            words = []
            for _ in range(length):
                r = rng.random()
                if r < 0.25:
                    words.append(1 + queue * 20 + rng.randrange(20))
                elif r < 0.33:  # words of another queue, to make it less easy
                    words.append(1 + rng.randrange(QUEUES * 20))
                else:
                    words.append(161 + rng.randrange(VOCAB - 161))
            self.items.append((words, queue))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, idx):
        return self.items[idx]


def collate(batch):
    longest = max(len(w) for w, _ in batch)
    ids = torch.full((len(batch), longest), PAD, dtype=torch.long)
    for i, (w, _) in enumerate(batch):
        ids[i, : len(w)] = torch.tensor(w)
    return ids, torch.tensor([q for _, q in batch])


class TicketRouter(nn.Module):
    def __init__(self, dim=64, heads=4, layers=1, dropout=0.1, output_activation=None):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(32, dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, dim * 2, dropout, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, QUEUES)
        self.output_activation = output_activation or nn.Identity()

    def forward(self, ids):
        mask = ids.eq(PAD)
        h = self.embed(ids) + self.pos(torch.arange(ids.size(1), device=ids.device))
        h = self.norm(self.encoder(h, src_key_padding_mask=mask))
        keep = (~mask).unsqueeze(-1).float()
        pooled = (h * keep).sum(1) / keep.sum(1)
        return self.output_activation(self.out(pooled))


@torch.no_grad()
def evaluate(model, loader, criterion):
    model.eval()
    loss_sum = hits = count = 0
    for ids, queue in loader:
        scores = model(ids)
        loss_sum += criterion(scores, queue).item() * len(queue)
        hits += (scores.argmax(-1) == queue).sum().item()
        count += len(queue)
    model.train()
    return loss_sum / count, hits / count


def lr_lambda(step, warmup=20, total=150):
    if step < warmup:
        return (step + 1) / warmup
    return max(0.05, 1 - (step - warmup) / max(1, total - warmup))


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    return parser.parse_args()


def prove(model, val_loader, criterion):
    model.eval()
    ids, queue = next(iter(val_loader))
    with torch.no_grad():
        scores = model(ids)
        reported = criterion(scores, queue).item()
    sums = scores.sum(-1)
    # lowest loss that scores between 0 and 1 can reach with 8 queues
    floor = float(np.log(np.e + QUEUES - 1) - 1)
    bounded = bool((scores >= 0).all() and (sums - 1).abs().max() < 1e-4)
    print(
        f"scores between 0 and 1 summing to 1: {bounded}, loss {reported:.4f}, floor {floor:.4f}"
    )
    print("fault shows:", "yes" if bounded and reported > floor - 1e-4 else "no")


def main():
    args = parse_args()
    seed_everything(args.seed)

    data = TicketDataset()
    train_set, val_set = random_split(
        data, [2500, 500], generator=torch.Generator().manual_seed(args.seed)
    )
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, shuffle=True, collate_fn=collate
    )
    val_loader = DataLoader(val_set, batch_size=125, collate_fn=collate)

    activation = nn.Softmax(dim=-1)
    if args.fixed:
        activation = None
    model = TicketRouter(output_activation=activation)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: lr_lambda(s, total=args.steps)
    )
    print(
        f"{sum(p.numel() for p in model.parameters())} parameters, {len(train_set)} tickets"
    )

    step, epoch = 0, 0
    model.train()
    while step < args.steps:
        seen, loss_total = 0, 0.0
        for ids, queue in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(ids), queue)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            loss_total += loss.item() * len(queue)
            seen += len(queue)
            step += 1
            if step == args.steps:
                break
        epoch += 1
        val_loss, val_acc = evaluate(model, val_loader, criterion)
        print(
            f"epoch {epoch} step {step} train loss {loss_total / seen:.4f} val loss {val_loss:.4f} acc {val_acc:.3f}"
        )

    if args.prove:
        prove(model, val_loader, criterion)


if __name__ == "__main__":
    main()
