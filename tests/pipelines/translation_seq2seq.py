"""Encoder-decoder transformer on an invented language pair, batches built by token count."""
import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler

PAD, BOS, EOS = 0, 1, 2
N_WORDS = 16
VOCAB = 3 + N_WORDS


def build_corpora(sizes, seed):
    """Every word is replaced through a dictionary, and neighbours swap in pairs."""
    rng = random.Random(seed)
    lexicon = list(range(3, 3 + N_WORDS))
    rng.shuffle(lexicon)
    seen, corpora = set(), []
    for size in sizes:
        pairs = []
        while len(pairs) < size:
            src = tuple(rng.choices(lexicon, k=rng.randint(3, 7)))
            if src in seen:
                continue
            seen.add(src)
            tgt = [lexicon[w - 3] for w in src]
            for k in range(0, len(tgt) - 1, 2):
                tgt[k], tgt[k + 1] = tgt[k + 1], tgt[k]
            pairs.append((list(src), tgt))
        corpora.append(pairs)
    return corpora


class TokenBatchSampler(Sampler):
    """Sentences of similar length together, at most max_tokens padded source tokens a batch."""

    def __init__(self, lengths, max_tokens, seed, shuffle=True):
        self.lengths, self.max_tokens, self.seed, self.shuffle, self.epoch = (
            lengths,
            max_tokens,
            seed,
            shuffle,
            0,
        )

    def set_epoch(self, epoch):
        self.epoch = epoch

    def batches(self):
        rng = random.Random(self.seed + self.epoch)
        order = list(range(len(self.lengths)))
        if self.shuffle:
            rng.shuffle(order)
        order.sort(
            key=lambda i: self.lengths[i]
        )  # stable, so equal lengths stay shuffled
        batches, current = [], []
        for i in order:
            if current and (len(current) + 1) * self.lengths[i] > self.max_tokens:
                batches.append(current)
                current = []
            current.append(i)
        batches.append(current)
        if self.shuffle:
            rng.shuffle(batches)
        return batches

    def __iter__(self):
        return iter(self.batches())

    def __len__(self):
        return len(self.batches())


def collate(batch):
    src = [torch.tensor(s + [EOS]) for s, _ in batch]
    tgt = [torch.tensor([BOS] + t + [EOS]) for _, t in batch]
    return tuple(
        pad_sequence(seqs, batch_first=True, padding_value=PAD) for seqs in (src, tgt)
    )


class Translator(nn.Module):
    def __init__(self, d=64, heads=4, layers=1, dropout=0.05, max_len=16):
        super().__init__()
        self.d, self.scale = d, 0.5 * math.sqrt(d)
        self.src_emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(VOCAB, d, padding_idx=PAD)
        for emb in (self.src_emb, self.tgt_emb):
            nn.init.normal_(emb.weight, std=d**-0.5)
            nn.init.zeros_(emb.weight.data[PAD])
        pos = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        self.register_buffer(
            "pe", torch.cat([torch.sin(pos * div), torch.cos(pos * div)], dim=1)
        )
        self.drop = nn.Dropout(dropout)
        enc = nn.TransformerEncoderLayer(
            d, heads, 2 * d, dropout, batch_first=True, norm_first=True
        )
        dec = nn.TransformerDecoderLayer(
            d, heads, 2 * d, dropout, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            enc, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(dec, layers, norm=nn.LayerNorm(d))
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def embed(self, table, ids):
        return self.drop(table(ids) * self.scale + self.pe[: ids.size(1)])

    def encode(self, src):
        pad = src == PAD
        return (
            self.encoder(self.embed(self.src_emb, src), src_key_padding_mask=pad),
            pad,
        )

    def decode(self, tgt, memory, memory_pad):
        n = tgt.size(1)
        causal = torch.ones(n, n, dtype=torch.bool).triu(1)
        h = self.decoder(
            self.embed(self.tgt_emb, tgt),
            memory,
            tgt_mask=causal,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=memory_pad,
        )
        return F.linear(
            h, self.tgt_emb.weight, self.bias
        )  # output tied to the target embedding

    def forward(self, src, tgt_in):
        return self.decode(tgt_in, *self.encode(src))


def loss_sum(logits, gold, smoothing=0.0):
    return F.cross_entropy(
        logits.flatten(0, 1),
        gold.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=smoothing,
    )


@torch.no_grad()
def greedy(model, src, max_len=9):
    memory, pad = model.encode(src)
    out = torch.full((len(src), 1), BOS)
    done = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(max_len):
        nxt = model.decode(out, memory, pad)[:, -1].argmax(-1)
        nxt = nxt.masked_fill(done, PAD)
        out = torch.cat([out, nxt.unsqueeze(1)], 1)
        done |= nxt == EOS
    return out


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    nll = tokens = exact = n = 0
    for src, tgt in loader:
        gold = tgt[:, 1:]
        nll += loss_sum(model(src, tgt[:, :-1]), gold).item()
        tokens += (gold != PAD).sum().item()
        hyp = greedy(model, src)
        exact += sum(
            [w for w in h if w != PAD] == [w for w in t if w != PAD]
            for h, t in zip(hyp.tolist(), tgt.tolist())
        )
        n += len(src)
    model.train()
    return math.exp(nll / tokens), exact / n


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=220)
    ap.add_argument("--accum", type=int, default=2)
    ap.add_argument("--max-tokens", type=int, default=224)
    return ap.parse_args()


def make_loaders(max_tokens):
    train_set, val_set = build_corpora([3000, 100], seed=6)
    sampler = TokenBatchSampler([len(s) + 1 for s, _ in train_set], max_tokens, seed=6)
    val_sampler = TokenBatchSampler(
        [len(s) + 1 for s, _ in val_set], 1000, seed=0, shuffle=False
    )
    train_loader = DataLoader(train_set, batch_sampler=sampler, collate_fn=collate)
    val_loader = DataLoader(val_set, batch_sampler=val_sampler, collate_fn=collate)
    return train_loader, val_loader


def main():
    args = parse_args()
    torch.manual_seed(6)
    train_loader, val_loader = make_loaders(args.max_tokens)
    sampler = train_loader.batch_sampler

    model = Translator()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9
    )
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: 0.15 * model.d**-0.5 * min((s + 1) ** -0.5, (s + 1) * 60**-1.5),
    )

    def update(group):
        """One optimizer step over a list of batches, normalised by all target tokens in it."""
        n_tokens = sum((tgt[:, 1:] != PAD).sum().item() for _, tgt in group)
        optimizer.zero_grad()
        total = 0.0
        for src, tgt in group:
            loss = (
                loss_sum(model(src, tgt[:, :-1]), tgt[:, 1:], smoothing=0.1) / n_tokens
            )
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        noam.step()
        return total

    step = epoch = 0
    model.train()
    while step < args.steps:
        sampler.set_epoch(epoch)
        group, n_batches = [], len(sampler)
        for i, batch in enumerate(train_loader):
            group.append(batch)
            if len(group) == args.accum or i + 1 == n_batches:
                loss, group = update(group), []
                step += 1
                if step % 20 == 0:
                    print(
                        f"step {step} epoch {epoch} loss {loss:.4f} lr {noam.get_last_lr()[0]:.2e}"
                    )
                if step == args.steps:
                    break
        ppl, exact = evaluate(model, val_loader)
        print(f"  epoch {epoch} val ppl {ppl:.2f} exact {exact:.3f}")
        epoch += 1


if __name__ == "__main__":
    main()
