"""Suggested replies for short messages: GRU encoder, GRU decoder with teacher forcing."""
import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB = 30
MAX_REPLY = 20


def conversation(rng):
    """A reply picks up the content words of the message, inflected; most replies are short."""
    n = int(torch.randint(3, 10, (1,), generator=rng))
    msg = torch.randint(FIRST, VOCAB, (n,), generator=rng)
    content = msg[msg % 3 != 0]
    reply = FIRST + (content - FIRST + 5) % (VOCAB - FIRST)
    if msg[0] % 2 == 0:
        reply = reply.flip(0)
    if torch.rand(1, generator=rng) < 0.1:
        reply = torch.cat([reply, reply])
    return msg, torch.cat([reply[: MAX_REPLY - 1], torch.tensor([EOS])])


def corpus(n, seed):
    rng = torch.Generator().manual_seed(seed)
    return [conversation(rng) for _ in range(n)]


def collate(pairs):
    src = pad_sequence([p[0] for p in pairs], batch_first=True, padding_value=PAD)
    src_len = torch.tensor([len(p[0]) for p in pairs])
    tgt = torch.full((len(pairs), MAX_REPLY), PAD)
    for i, (_, reply) in enumerate(pairs):
        tgt[i, : len(reply)] = reply
    start = torch.full((len(pairs), 1), BOS)
    return src, src_len, torch.cat([start, tgt[:, :-1]], 1), tgt


class Seq2Seq(nn.Module):
    def __init__(self, dim=32, hidden=72):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.encoder = nn.GRU(dim, hidden, batch_first=True)
        self.decoder = nn.GRU(dim + hidden, hidden, batch_first=True)
        self.attend = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(2 * hidden, VOCAB)

    def encode(self, src, src_len):
        packed = pack_padded_sequence(
            self.embed(src), src_len, batch_first=True, enforce_sorted=False
        )
        states, last = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        return states, last

    def forward(self, src, src_len, tgt_in):
        states, h = self.encode(src, src_len)
        summary = h[-1][:, None].expand(-1, tgt_in.shape[1], -1)
        y, _ = self.decoder(torch.cat([self.embed(tgt_in), summary], -1), h)
        score = self.attend(y) @ states.transpose(1, 2)
        score = score.masked_fill((src == PAD)[:, None], -1e9)
        context = score.softmax(-1) @ states
        return self.out(torch.cat([y, context], -1))


def make_criterion(fixed):
    if fixed:
        return nn.CrossEntropyLoss(ignore_index=PAD)
    return nn.CrossEntropyLoss()


@torch.no_grad()
def evaluate(model, batch):
    model.eval()
    src, src_len, tgt_in, tgt = batch
    pred = model(src, src_len, tgt_in).argmax(-1)
    real = tgt != PAD
    word = (pred == tgt)[real].float().mean().item()
    whole = ((pred == tgt) | ~real).all(1).float().mean().item()
    model.train()
    return word, whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(2)
    train_pairs = corpus(1500, seed=10)
    held_out = collate(corpus(300, seed=11))
    pick = torch.Generator().manual_seed(12)
    model = Seq2Seq()
    criterion = make_criterion(args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)

    for step in range(args.steps):
        rows = torch.randint(len(train_pairs), (args.batch,), generator=pick).tolist()
        src, src_len, tgt_in, tgt = collate([train_pairs[r] for r in rows])
        logits = model(src, src_len, tgt_in)
        loss = criterion(logits.reshape(-1, VOCAB), tgt.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        if step % 20 == 0 or step == args.steps - 1:
            word, whole = evaluate(model, held_out)
            print(
                f"{step:4d}  loss {loss.item():.4f}  words {word:.3f}  replies {whole:.3f}"
            )

    if args.prove:
        src, src_len, tgt_in, tgt = held_out
        with torch.no_grad():
            logits = model(src, src_len, tgt_in)
            full = criterion(logits.reshape(-1, VOCAB), tgt.reshape(-1)).item()
            real = tgt != PAD
            words = nn.functional.cross_entropy(logits[real], tgt[real]).item()
        print(
            f"training criterion {full:.4f}, cross-entropy of the reply words {words:.4f}"
        )
        print(
            f"share of reply words among the targets {real.float().mean().item():.3f}"
        )
        print("fault shows:", "yes" if abs(full - words) > 1e-3 * words else "no")


if __name__ == "__main__":
    main()
