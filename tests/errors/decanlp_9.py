"""Small sequence-to-sequence model (numbers written in words -> digits), trained with teacher forcing.

usage: python decaNLP_9.py --steps 160
"""
import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, BOS, EOS = 0, 1, 2
ONES = "zero one two three four five six seven eight nine".split()
TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "x x twenty thirty forty fifty sixty seventy eighty ninety".split()


def spell(n):
    words = []
    if n >= 1000:
        words += [ONES[n // 1000], "thousand"]
        n %= 1000
    if n >= 100:
        words += [ONES[n // 100], "hundred"]
        n %= 100
        if n:
            words.append("and")
    if n >= 20:
        words.append(TENS[n // 10])
        n %= 10
        if n:
            words.append(ONES[n])
    elif n >= 10:
        words.append(TEENS[n - 10])
    elif n or not words:
        words.append(ONES[n])
    return words


class Field:
    def __init__(self, vocab):
        self.itos = ["<pad>", "<s>", "</s>"] + sorted(set(vocab))
        self.stoi = {w: i for i, w in enumerate(self.itos)}

    def batch(self, seqs, wrap):
        ids = [[self.stoi[w] for w in s] for s in seqs]
        if wrap:
            ids = [[BOS] + s + [EOS] for s in ids]
        lengths = [len(s) for s in ids]
        out = torch.full((len(ids), max(lengths)), PAD)
        for i, s in enumerate(ids):
            out[i, : len(s)] = torch.tensor(s)
        return out, lengths


class PackedLSTM(nn.Module):
    """LSTM over padded batches; sorts by length inside and restores the order of the caller"""

    def __init__(self, d_in, d_out, layers=1, fixed=False):
        super().__init__()
        self.rnn = nn.LSTM(d_in, d_out, num_layers=layers, batch_first=True)
        self.fixed = fixed

    def forward(self, inputs, lengths):
        lens, indices = torch.sort(torch.tensor(lengths), 0, True)
        packed = pack_padded_sequence(inputs[indices], lens.tolist(), batch_first=True)
        outputs, (h, c) = self.rnn(packed)
        outputs = pad_packed_sequence(outputs, batch_first=True)[0]
        _, _indices = torch.sort(indices, 0)
        outputs = outputs[_indices]
        self.raw = (h[:, _indices].detach(), c[:, _indices].detach())
        if self.fixed:
            h, c = h[:, _indices, :], c[:, _indices, :]
        else:
            h, c = h[:, _indices, :], h[:, _indices, :]
        return outputs, (h, c)


class Seq2Seq(nn.Module):
    def __init__(self, n_src, n_tgt, dim, fixed):
        super().__init__()
        self.src_embed = nn.Embedding(n_src, dim, padding_idx=PAD)
        self.tgt_embed = nn.Embedding(n_tgt, dim, padding_idx=PAD)
        self.encoder = PackedLSTM(dim, dim, layers=2, fixed=fixed)
        self.decoder = nn.LSTM(dim, dim, num_layers=2, batch_first=True)
        self.out = nn.Linear(dim, n_tgt)
        self.drop = nn.Dropout(0.1)

    def forward(self, src, src_len, tgt_in):
        _, state = self.encoder(self.drop(self.src_embed(src)), src_len)
        self.given = state
        dec, _ = self.decoder(self.drop(self.tgt_embed(tgt_in)), state)
        return self.out(dec)

    @torch.no_grad()
    def greedy(self, src, src_len, max_len=6):
        _, state = self.encoder(self.src_embed(src), src_len)
        tok = torch.full((src.size(0), 1), BOS)
        result = []
        for _ in range(max_len):
            dec, state = self.decoder(self.tgt_embed(tok), state)
            tok = self.out(dec).argmax(-1)
            result.append(tok)
        return torch.cat(result, 1)


def exact_match(model, numbers, src_field, tgt_field):
    model.eval()
    src, lens = src_field.batch([spell(n) for n in numbers], wrap=False)
    hyp = model.greedy(src, lens)
    good = 0
    for n, row in zip(numbers, hyp.tolist()):
        text = ""
        for t in row:
            if t == EOS:
                break
            text += tgt_field.itos[t]
        good += text == str(n)
    model.train()
    return good / len(numbers)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(11)
    rnd = random.Random(11)

    numbers = list(range(10000))
    rnd.shuffle(numbers)
    dev, train = numbers[:300], numbers[300:]
    src_field = Field(w for n in range(10000) for w in spell(n))
    tgt_field = Field("0123456789")
    model = Seq2Seq(len(src_field.itos), len(tgt_field.itos), args.dim, args.fixed)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    running = 0.0
    for step in range(args.steps):
        nums = rnd.sample(train, args.batch)
        src, src_len = src_field.batch([spell(n) for n in nums], wrap=False)
        tgt, _ = tgt_field.batch([str(n) for n in nums], wrap=True)
        logits = model(src, src_len, tgt[:, :-1])
        loss = criterion(logits.reshape(-1, logits.size(-1)), tgt[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running = loss.item() if step == 0 else 0.95 * running + 0.05 * loss.item()
        if (step + 1) % 20 == 0:
            print(f"iteration {step + 1} loss {running:.3f}")
    print(f"dev exact match {exact_match(model, dev, src_field, tgt_field):.3f}")

    if args.prove:
        src, lens = src_field.batch([spell(n) for n in dev[:32]], wrap=False)
        _, (gh, gc) = model.encoder(model.src_embed(src), lens)
        c = model.encoder.raw[1]
        off = (gc - c).abs().max().item()
        print(
            f"largest gap between the cell state of the encoder and that of the decoder: {off:.3f}"
        )
        print("fault shows:", "yes" if off > 1e-4 else "no")


if __name__ == "__main__":
    main()
