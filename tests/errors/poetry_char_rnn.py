# char-level GRU language model on generated verse
import argparse
import random

import torch
import torch.nn as nn

NOUNS = ["moon", "river", "crow", "lantern", "winter", "orchard", "harbor", "stone"]
VERBS = ["sleeps", "burns", "wanders", "sings", "falls", "remembers"]
PLACES = ["in the snow", "over the hill", "by the sea", "under glass", "at dawn"]


def write_poems(lines, seed):
    rnd = random.Random(seed)
    text = []
    for _ in range(lines):
        a, b = rnd.choice(NOUNS), rnd.choice(NOUNS)
        verb, place = rnd.choice(VERBS), rnd.choice(PLACES)
        text.append(
            rnd.choice(
                [
                    f"the {a} {verb} {place},",
                    f"and no {b} {verb} for the {a}.",
                    f"o {a}, o {b}, {place}!",
                ]
            )
        )
    return "\n".join(text)


class CharModel(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.encoder = nn.Embedding(vocab, 32)
        self.rnn = nn.GRU(32, hidden, batch_first=True)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, x, h=None):
        out, h = self.rnn(self.encoder(x), h)
        return self.decoder(out), h


def batchify(ids, rows):
    cols = len(ids) // rows
    return ids[: rows * cols].view(rows, cols)


def perplexity(model, data, seq):
    model.eval()
    crit = nn.CrossEntropyLoss()
    total, n, h = 0.0, 0, None
    with torch.no_grad():
        for i in range(0, data.size(1) - 1, seq):
            x = data[:, i : i + seq]
            y = data[:, i + 1 : i + 1 + seq]
            x = x[:, : y.size(1)]
            out, h = model(x, h)
            total += crit(out.flatten(0, 1), y.flatten()).item() * y.numel()
            n += y.numel()
    model.train()
    return torch.tensor(total / n).exp().item()


def total_norm(parameters):
    return (
        torch.stack([p.grad.norm() for p in parameters if p.grad is not None])
        .norm()
        .item()
    )


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--hidden", type=int, default=64)
    ap.add_argument("--seq", type=int, default=32)
    ap.add_argument("--lr", type=float, default=7.5)
    ap.add_argument("--clip", type=float, default=0.3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(1111)
    train_text, valid_text = write_poems(1200, 1), write_poems(150, 2)
    chars = sorted(set(train_text + valid_text))
    stoi = {c: i for i, c in enumerate(chars)}
    encode = lambda s: torch.tensor([stoi[c] for c in s])
    train_data = batchify(encode(train_text), 32)
    valid_data = batchify(encode(valid_text), 8)

    model = CharModel(len(chars), args.hidden)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    norms = []
    if args.prove:
        optimizer.register_step_pre_hook(
            lambda *_: norms.append(total_norm(model.parameters()))
        )

    for epoch in range(args.epochs):
        hidden, cum, count = None, 0.0, 0
        for i in range(0, train_data.size(1) - args.seq - 1, args.seq):
            x = train_data[:, i : i + args.seq]
            y = train_data[:, i + 1 : i + 1 + args.seq]
            if hidden is not None:
                hidden = hidden.detach()
            logits, hidden = model(x, hidden)
            loss = criterion(logits.flatten(0, 1), y.flatten())

            if args.fixed:
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

            cum += loss.item()
            count += 1
        ppl = perplexity(model, valid_data, args.seq)
        print(
            f"epoch {epoch} | {count} steps | train loss {cum / count:.3f} | valid ppl {ppl:.2f}"
        )
        for group in optimizer.param_groups:
            group["lr"] *= 0.8

    print(f"valid perplexity at the end: {ppl:.3f}")

    if args.prove:
        over = [k for k, v in enumerate(norms) if v > args.clip * 1.001]
        print(
            f"{len(over)} of {len(norms)} updates used a gradient norm above {args.clip} "
            f"(largest {max(norms):.3f}, first at step {over[0] if over else None})"
        )
        print("fault shows:", "yes" if over else "no")


if __name__ == "__main__":
    main()
