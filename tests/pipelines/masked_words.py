"""Masked language model on sentences of a toy grammar. A tenth of the chosen words
stay as they are, a tenth become random ones, the rest [MASK]; short sentences are
padded and the encoder gets the padding as a key padding mask. Batches are made of
sentences of about the same length.

    python masked_words.py --steps 30
"""

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
EATS = {"cow": "grass", "cat": "mice", "bear": "honey", "hen": "corn", "seal": "fish"}
PLACES = {"cow": "barn", "cat": "house", "bear": "wood", "hen": "yard", "seal": "sea"}
ADJECTIVES = ["old", "young", "small", "brown", "hungry", "lazy"]
WORDS = sorted(
    {"the", "eats", "in", "and", "sleeps", *EATS, *EATS.values(), *PLACES.values()}
    | set(ADJECTIVES)
)
VOCAB = {w: i for i, w in enumerate(SPECIAL + WORDS)}
PAD, CLS, SEP, MASK = range(4)


def clause(rng):
    animal = rng.choice(list(EATS))
    words = ["the", *rng.sample(ADJECTIVES, rng.randint(0, 1)), animal]
    words += ["eats", EATS[animal]] if rng.random() < 0.7 else ["sleeps"]
    return words + ["in", "the", PLACES[animal]] * (rng.random() < 0.6)


def corpus(n, seed):
    rng, sentences = random.Random(seed), []
    for _ in range(n):
        words = clause(rng)
        while rng.random() < 0.4 and len(words) < 20:
            words += ["and"] + clause(rng)
        sentences.append([CLS] + [VOCAB[w] for w in words] + [SEP])
    return sentences  # a list is a data set, too


class LengthBuckets(Sampler):
    """Batches of neighbours by length (ties at random), in random order."""

    def __init__(self, lengths, batch_size, seed):
        self.lengths, self.batch_size = lengths, batch_size
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        key = lambda i: self.lengths[i] + 2 * self.rng.random()
        order = sorted(range(len(self.lengths)), key=key)
        starts = [i * self.batch_size for i in range(len(self))]
        self.rng.shuffle(starts)
        for start in starts:
            yield order[start : start + self.batch_size]


class MaskingCollator:
    def __init__(self, p=0.2, seed=0):
        self.p, self.generator = p, torch.Generator().manual_seed(seed)

    def __call__(self, sentences):
        longest = max(map(len, sentences))
        ids = torch.tensor([s + [PAD] * (longest - len(s)) for s in sentences])
        labels = ids.clone()
        odds = torch.full(ids.shape, self.p).masked_fill(ids < len(SPECIAL), 0.0)
        chosen = torch.bernoulli(odds, generator=self.generator).bool()
        chosen[:, 2] |= ~chosen.any(1)  # every sentence has a word to guess
        labels[~chosen] = -100
        dice = torch.rand(ids.shape, generator=self.generator)
        words = (len(SPECIAL), len(VOCAB))
        noise = torch.randint(*words, ids.shape, generator=self.generator)
        inputs = torch.where(chosen & (dice < 0.8), MASK, ids)
        inputs = torch.where(chosen & (dice >= 0.9), noise, inputs)
        return {"input_ids": inputs, "pad_mask": ids == PAD, "labels": labels}


class TinyBert(nn.Module):
    def __init__(self, d=96, heads=4, layers=2, max_len=64):
        super().__init__()
        self.tok = nn.Embedding(len(VOCAB), d, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, d)
        self.norm = nn.LayerNorm(d)
        layer = nn.TransformerEncoderLayer(
            d, heads, 2 * d, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
        )
        self.decoder = nn.Linear(d, len(VOCAB))

    def forward(self, input_ids, pad_mask):
        where = torch.arange(input_ids.size(1))
        x = self.norm(self.tok(input_ids) + self.pos(where))
        x = self.encoder(x, src_key_padding_mask=pad_mask)
        return self.decoder(x)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = asked = 0
    for batch in loader:
        labels = batch.pop("labels")
        guess = model(**batch).argmax(-1)
        hits += ((guess == labels) & (labels != -100)).sum().item()
        asked += (labels != -100).sum().item()
    model.train()
    return hits / asked


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    train = corpus(1920, seed=1)
    buckets = LengthBuckets([len(s) for s in train], 64, seed=2)
    masking = MaskingCollator(seed=3)
    loader = DataLoader(train, batch_sampler=buckets, collate_fn=masking)
    held_out = corpus(200, seed=4)

    model = TinyBert()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    warmup = torch.optim.lr_scheduler.LinearLR(opt, 0.2, 1.0, total_iters=5)
    loss_fn = nn.CrossEntropyLoss()
    step = 0
    while step < args.steps:
        for batch in loader:
            labels = batch.pop("labels")
            logits = model(**batch)
            loss = loss_fn(logits.view(-1, len(VOCAB)), labels.view(-1))
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            warmup.step()
            step += 1
            if step % 5 == 0:
                # a new collator each time: the same words are hidden
                valid = DataLoader(held_out, 50, collate_fn=MaskingCollator(seed=5))
                acc = evaluate(model, valid)
                print(f"{step:3d} mlm loss {loss.item():.4f} held out {acc:.3f}")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
