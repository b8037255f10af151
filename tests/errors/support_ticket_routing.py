"""
Ticket routing: which team should answer an incoming support ticket?

A small transformer encoder over word ids. The made-up tickets contain two
trigger words; the team depends on the combination, so that words have to be
looked at together.
"""
import argparse
import logging
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(
    stream=sys.stdout, level=logging.INFO, format="%(name)s | %(message)s"
)
log = logging.getLogger("routing")

PAD, CLS = 0, 1
VOCAB = 200
PRODUCTS = list(range(10, 14))
PROBLEMS = list(range(20, 24))
MAX_TOKENS = 40
TEAMS = 4


class TicketDataset(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(8, 33, (1,), generator=g))
            words = torch.randint(30, VOCAB, (length,), generator=g)
            a = int(torch.randint(0, 4, (1,), generator=g))
            b = int(torch.randint(0, 4, (1,), generator=g))
            where = torch.randperm(length, generator=g)[:2]
            words[where[0]] = PRODUCTS[a]
            words[where[1]] = PROBLEMS[b]
            self.items.append(
                (torch.cat([torch.tensor([CLS]), words]), (a + b) % TEAMS)
            )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    lengths = torch.tensor([len(t) for t, _ in batch])
    ids = pad_sequence([t for t, _ in batch], batch_first=True, padding_value=PAD)
    ids = nn.functional.pad(ids, (0, MAX_TOKENS - ids.size(1)), value=PAD)
    return ids, lengths, torch.tensor([y for _, y in batch])


class TicketEncoder(nn.Module):
    def __init__(self, args, d=48, heads=4, layers=2):
        super().__init__()
        self.args = args
        self.tok = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(1, MAX_TOKENS, d) * 0.02)
        layer = nn.TransformerEncoderLayer(
            d, heads, dim_feedforward=96, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
        )
        self.out = nn.Linear(2 * d, TEAMS)

    def hidden(self, ids, lengths):
        mask = torch.arange(ids.size(1))[None, :] < lengths[:, None]
        x = self.tok(ids) + self.pos[:, : ids.size(1)]
        key_mask = mask
        if self.args.fixed:
            key_mask = ~mask
        h = self.encoder(x, src_key_padding_mask=key_mask)
        return h, mask

    def forward(self, ids, lengths):
        h, mask = self.hidden(ids, lengths)
        m = mask.unsqueeze(-1).float()
        mean = (h * m).sum(1) / m.sum(1)
        return self.out(torch.cat([h[:, 0], mean], dim=-1))


def run_epoch(model, loader, optimizer=None, scheduler=None, budget=None):
    model.train(optimizer is not None)
    loss_sum, hits, count, steps = 0.0, 0, 0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for ids, lengths, y in loader:
            if budget is not None and steps >= budget:
                break
            logits = model(ids, lengths)
            loss = nn.functional.cross_entropy(logits, y)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
            steps += 1
            loss_sum += loss.item() * len(y)
            hits += (logits.argmax(1) == y).sum().item()
            count += len(y)
    return loss_sum / count, hits / count, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=200, help="number of optimizer steps"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(7)
    train_set, dev_set = TicketDataset(1600, 1), TicketDataset(320, 2)
    train_loader = DataLoader(
        train_set, args.batch_size, shuffle=True, collate_fn=collate
    )
    dev_loader = DataLoader(dev_set, 64, collate_fn=collate)

    model = TicketEncoder(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 1) / 30)
    )

    done, epoch = 0, 0
    while done < args.steps:
        loss, acc, n = run_epoch(
            model, train_loader, optimizer, scheduler, args.steps - done
        )
        done += n
        epoch += 1
        dev_loss, dev_acc, _ = run_epoch(model, dev_loader)
        log.info(
            "epoch %d (%d steps) train %.4f/%.3f dev %.4f/%.3f",
            epoch,
            done,
            loss,
            acc,
            dev_loss,
            dev_acc,
        )

    if args.prove:
        model.eval()
        ids, lengths, _ = next(iter(dev_loader))
        changed = ids.clone()
        changed[:, 3] = 30 + (changed[:, 3] + 5) % (VOCAB - 30)
        with torch.no_grad():
            first = model.hidden(ids, lengths)[0][:, 0]
            second = model.hidden(changed, lengths)[0][:, 0]
        print("fault shows:", "yes" if (first - second).abs().max() < 1e-6 else "no")


if __name__ == "__main__":
    main()
