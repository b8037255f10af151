"""Trains an encoder and decoder that writes out amounts of money in words.

After transformers, issue 7896.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

PAD, START, END, DIGIT, WORD = 0, 1, 2, 3, 13
TENS, HUNDRED, THOUSAND = 18, 28, 29
VOCABULARY = WORD + 30


class AmountModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        self.place = nn.Embedding(24, width)
        self.transformer = nn.Transformer(
            width, 4, 2, 2, 96, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, VOCABULARY)

    def embed(self, ids):
        return self.token(ids) + self.place(torch.arange(ids.shape[1]))

    def forward(self, ids, decoder_ids, labels=None):
        causal = nn.Transformer.generate_square_subsequent_mask(
            decoder_ids.shape[1], dtype=torch.bool
        )
        hidden = self.transformer(
            self.embed(ids), self.embed(decoder_ids), tgt_mask=causal,
            src_key_padding_mask=ids == PAD, memory_key_padding_mask=ids == PAD,
        )  # fmt: skip
        logits = self.head(hidden)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def spell(number):
    """The words of a number below a million, as ids."""
    words = []
    for part, more in ((number // 1000, True), (number % 1000, False)):
        hundreds, rest = divmod(part, 100)
        if hundreds:
            words += [hundreds, HUNDRED]
        if rest >= 20:
            words += [TENS + rest // 10] + ([rest % 10] if rest % 10 else [])
        elif rest:
            words.append(rest)
        if part and more:
            words.append(THOUSAND)
    return [WORD + word for word in words]


def amounts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        digits = int(torch.randint(1, 7, (), generator=generator))
        number = int(torch.randint(1, 10**digits, (), generator=generator))
        source = [DIGIT + int(digit) for digit in str(number)]
        made.append((torch.tensor(source), torch.tensor([*spell(number), END])))
    return made


class Collator:
    def __init__(self, label_pad):
        self.label_pad = label_pad

    def __call__(self, batch):
        sources, targets = zip(*batch)
        pad = nn.utils.rnn.pad_sequence
        shifted = [torch.cat([torch.tensor([START]), one[:-1]]) for one in targets]
        return {
            "ids": pad(sources, batch_first=True, padding_value=PAD),
            "decoder_ids": pad(shifted, batch_first=True, padding_value=PAD),
            "labels": pad(targets, batch_first=True, padding_value=self.label_pad),
        }


@torch.no_grad()
def accuracy(model, loader):
    """The share of words that are right, given those before them."""
    model.eval()
    right = count = 0
    for batch in loader:
        labels = batch.pop("labels")
        real = (labels != -100) & (labels != PAD)
        right += (model(**batch).argmax(2) == labels)[real].sum().item()
        count += real.sum().item()
    return right / count


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
    collate = Collator(-100 if args.fixed else PAD)
    train, valid = amounts(2048, args.seed), amounts(256, args.seed + 1)
    loader = DataLoader(train, 64, shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid, 64, collate_fn=collate)
    model = AmountModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = counted = words = 0
    for epoch in range(args.epochs):
        model.train()
        for batch in loader:
            counted += (batch["labels"] != -100).sum().item()
            words += (batch["decoder_ids"] != PAD).sum().item()
            loss, _ = model(**batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} accuracy {accuracy(model, valid_loader):.4f}", flush=True)
    if args.prove:
        print(f"the loss was a mean over {counted} labels of {words} words")
        print("fault shows:", "yes" if counted > words else "no", flush=True)


if __name__ == "__main__":
    main()
