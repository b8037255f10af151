import argparse
import math
import random

import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_

# Character-level LSTM on recipe sentences. Truncated BPTT, state carried across chunks.

VERBS = ["mix", "stir", "chop", "boil", "fry", "bake", "whisk", "add"]
THINGS = [
    "the onions",
    "two eggs",
    "the flour",
    "some butter",
    "fresh basil",
    "the dough",
    "warm milk",
    "red lentils",
]
TAILS = [
    "for ten minutes",
    "until golden",
    "in a large pan",
    "over low heat",
    "with a pinch of salt",
    "and set aside",
]


def write_corpus(n_sentences, seed):
    rnd = random.Random(seed)
    out = []
    for _ in range(n_sentences):
        verb = rnd.choice(VERBS)
        # some things go with some verbs more often
        thing = THINGS[(VERBS.index(verb) + rnd.choice([0, 0, 0, 1, 3])) % len(THINGS)]
        tail = rnd.choice(TAILS)
        out.append(f"{verb} {thing} {tail}.")
        if rnd.random() < 0.2:
            out.append("serve hot!")
    return " ".join(out)


class Vocabulary:
    def __init__(self, text):
        self.chars = sorted(set(text))
        self.index = {c: i for i, c in enumerate(self.chars)}

    def __len__(self):
        return len(self.chars)

    def encode(self, text):
        return torch.tensor([self.index[c] for c in text])

    def decode(self, ids):
        return "".join(self.chars[i] for i in ids)


def batchify(ids, batch):
    n = len(ids) // batch
    return ids[: n * batch].view(batch, n)


class CharLSTM(nn.Module):
    def __init__(self, vocab, embed=24, hidden=96, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, embed)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True, dropout=0.1)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        h, state = self.lstm(self.embed(x), state)
        return self.decoder(h), state


def chunks(data, bptt):
    for i in range(0, data.size(1) - 1 - bptt, bptt):
        yield data[:, i : i + bptt], data[:, i + 1 : i + 1 + bptt]


@torch.no_grad()
def bits_per_char(model, data, criterion, bptt):
    model.eval()
    state, total, n = None, 0.0, 0
    for x, y in chunks(data, bptt):
        logits, state = model(x, state)
        total += criterion(logits.flatten(0, 1), y.flatten()).item()
        n += 1
    model.train()
    return total / max(n, 1) / math.log(2)


@torch.no_grad()
def sample(model, vocab, start="mix ", length=60, temperature=0.7):
    model.eval()
    gen = torch.Generator().manual_seed(0)
    state, text = None, start
    x = vocab.encode(start)[None]
    for _ in range(length):
        logits, state = model(x, state)
        p = torch.softmax(logits[0, -1] / temperature, -1)
        x = torch.multinomial(p, 1, generator=gen)[None]
        text += vocab.decode([x.item()])
    model.train()
    return text


def total_norm(model):
    return math.sqrt(
        sum(
            p.grad.pow(2).sum().item() for p in model.parameters() if p.grad is not None
        )
    )


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--bptt", type=int, default=32)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--lr", type=float, default=5.5)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(1234)

    text = write_corpus(2000, 0)
    vocab = Vocabulary(text)
    ids = vocab.encode(text)
    cut = int(0.95 * len(ids))
    train_data, valid_data = batchify(ids[:cut], args.batch), batchify(ids[cut:], 8)
    print(f"{len(ids)} characters, {len(vocab)} symbols")

    model = CharLSTM(len(vocab))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(
        optimizer, step_size=max(1, args.steps // 3), gamma=0.5
    )

    step, loss_sum, norms = 0, 0.0, []
    while step < args.steps:
        state = None
        for x, y in chunks(train_data, args.bptt):
            if state is not None:
                state = tuple(s.detach() for s in state)
            optimizer.zero_grad()
            logits, state = model(x, state)
            loss = criterion(logits.flatten(0, 1), y.flatten())
            if args.fixed:
                loss.backward()
                clip_grad_norm_(model.parameters(), args.clip)
            else:
                clip_grad_norm_(model.parameters(), args.clip)
                loss.backward()
            if args.prove:
                norms.append(total_norm(model))
            optimizer.step()
            scheduler.step()
            loss_sum += loss.item()
            step += 1
            if step % 30 == 0:
                bpc = bits_per_char(model, valid_data, criterion, args.bptt)
                print(
                    f"step {step:4d} | loss {loss_sum / 30:.3f} | valid bpc {bpc:.3f} | lr {scheduler.get_last_lr()[0]}"
                )
                loss_sum = 0.0
            if step >= args.steps:
                break

    print("sample:", sample(model, vocab))
    if args.prove:
        above = [i for i, v in enumerate(norms) if v > args.clip * 1.01]
        print(
            f"largest norm used {max(norms):.3f}, {len(above)} of {len(norms)} updates over {args.clip}, "
            f"first at step {above[0] if above else None}"
        )
        print("fault shows:", "yes" if above else "no")


if __name__ == "__main__":
    main()
