import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PAD = 0
N_PHONES = 24  # 1..24, 0 is <pad>
N_TAGS = 9  # 1..9,  0 is <pad>


def make_utterances(n, seed):
    g = torch.Generator().manual_seed(seed)
    lang = torch.Generator().manual_seed(0)
    table = torch.randint(1, N_TAGS + 1, (N_PHONES + 1, 3), generator=lang)
    data = []
    for _ in range(n):
        # most utterances are short, a few are long
        length = int(
            4
            + 8 * torch.rand(1, generator=g)
            + 28 * (torch.rand(1, generator=g) < 0.12)
        )
        phones = torch.randint(1, N_PHONES + 1, (length,), generator=g)
        prev = torch.cat([torch.zeros(1, dtype=torch.long), phones[:-1]])
        tags = table[phones, prev % 3]
        flip = torch.rand(length, generator=g) < 0.05
        tags = torch.where(
            flip, torch.randint(1, N_TAGS + 1, (length,), generator=g), tags
        )
        data.append((phones, tags))
    return data


def collate(batch):
    phones = pad_sequence([b[0] for b in batch], batch_first=True, padding_value=PAD)
    tags = pad_sequence([b[1] for b in batch], batch_first=True, padding_value=PAD)
    lengths = torch.tensor([len(b[0]) for b in batch])
    return phones, tags, lengths


class Tagger(nn.Module):
    def __init__(self, dim=24, hidden=32):
        super().__init__()
        self.emb = nn.Embedding(N_PHONES + 1, dim, padding_idx=PAD)
        self.rnn = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, N_TAGS + 1)

    def forward(self, phones, lengths):
        e = self.emb(phones)
        packed = nn.utils.rnn.pack_padded_sequence(
            e, lengths, batch_first=True, enforce_sorted=False
        )
        h, _ = self.rnn(packed)
        h, _ = nn.utils.rnn.pad_packed_sequence(h, batch_first=True)
        return self.out(h)


@torch.no_grad()
def tag_accuracy(model, loader):
    model.eval()
    right = count = 0
    for phones, tags, lengths in loader:
        pred = model(phones, lengths).argmax(-1)
        real = tags != PAD
        right += ((pred == tags) & real).sum().item()
        count += real.sum().item()
    model.train()
    return right / count


# size: the whole run in one place, read from top to bottom
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(1)
    train_loader = DataLoader(
        make_utterances(1500, 31),
        batch_size=32,
        shuffle=True,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(2),
        drop_last=True,
    )
    dev_loader = DataLoader(make_utterances(160, 32), batch_size=64, collate_fn=collate)

    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.1, total_iters=args.steps
    )
    if args.fixed:
        criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.05)
    else:
        criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def loss_of(batch):
        phones, tags, lengths = batch
        logits = model(phones, lengths)
        return criterion(logits.reshape(-1, N_TAGS + 1), tags.reshape(-1)), logits

    step = 0
    while step < args.steps:
        for batch in train_loader:
            loss, _ = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 25 == 0 or step == 1:
                print(
                    f"step {step:4d}  loss {loss.item():.4f}  dev tag acc {tag_accuracy(model, dev_loader):.4f}"
                )
            if step == args.steps:
                break
    print(f"final dev tag acc {tag_accuracy(model, dev_loader):.4f}")

    if args.prove:
        batch = next(iter(dev_loader))
        loss, logits = loss_of(batch)
        real = batch[1] != PAD
        wanted = nn.functional.cross_entropy(
            logits[real], batch[1][real], label_smoothing=0.05
        )
        print(f"share of real positions in the batch {real.float().mean():.2f}")
        print(
            f"loss used {loss.item():.4f}, loss over real positions {wanted.item():.4f}"
        )
        print(
            "fault shows:", "yes" if abs(loss.item() - wanted.item()) > 1e-4 else "no"
        )


if __name__ == "__main__":
    main()
