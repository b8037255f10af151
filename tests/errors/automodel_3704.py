"""Supervised fine-tuning of a small decoder on prompt/answer pairs, fixed-length left-padded batches."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class ToyTokenizer:
    """Word-level tokenizer with a decoder-style (left) padding side."""

    def __init__(self):
        words = (
            ["<pad>", "<eos>", "<sep>"]
            + [f"k{i}" for i in range(10)]
            + [f"v{i}" for i in range(10)]
        )
        self.vocab = {w: i for i, w in enumerate(words)}
        self.pad_token_id, self.eos_token_id, self.sep_token_id = 0, 1, 2
        self.padding_side = "left"

    def encode(self, words):
        return [self.vocab[w] for w in words]


def make_pairs(n, seed):
    """A prompt lists key/value pairs and asks for one key; the answer is its value, then <eos>."""
    rnd = random.Random(seed)
    out = []
    for _ in range(n):
        m = rnd.randint(2, 6)
        keys = rnd.sample(range(10), m)
        vals = [rnd.randrange(10) for _ in keys]
        ask = rnd.randrange(m)
        prompt = [w for k, v in zip(keys, vals) for w in (f"k{k}", f"v{v}")] + [
            "<sep>",
            f"k{keys[ask]}",
        ]
        out.append((prompt, [f"v{vals[ask]}", "<eos>"]))
    return out


def package_example(tok, prompt, answer, seq_length, fixed):
    p, a = tok.encode(prompt), tok.encode(answer)
    ids = p + a
    labels = [-100] * len(p) + a
    room = seq_length - len(ids)
    if tok.padding_side == "left":
        ids, labels = [tok.pad_token_id] * room + ids, [-100] * room + labels
    else:
        ids, labels = ids + [tok.pad_token_id] * room, labels + [-100] * room

    if fixed:
        content_length = len(p) + len(a)
        real, blank = [1] * content_length, [0] * (seq_length - content_length)
        mask = blank + real if tok.padding_side == "left" else real + blank
    else:
        content_length = len(ids)
        while content_length > 0 and ids[content_length - 1] == tok.pad_token_id:
            content_length -= 1
        mask = [1] * content_length + [0] * (seq_length - content_length)
    return dict(input_ids=ids, labels=labels, attention_mask=mask)


def collate(rows):
    return {k: torch.tensor([r[k] for r in rows]) for k in rows[0]}


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.a, self.b = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, mask):
        n, t, d = x.shape
        q, k, v = self.qkv(self.a(x)).view(n, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(n, t, d))
        return x + self.ff(self.b(x))


class Decoder(nn.Module):
    def __init__(self, vocab, max_len, d=48, h=4, n_layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        self.layers = nn.ModuleList(Layer(d, h) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, input_ids, attention_mask):
        t = input_ids.size(1)
        pos = (attention_mask.cumsum(1) - 1).clamp(min=0)
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        mask = (causal & attention_mask[:, None, :].bool()) | torch.eye(
            t, dtype=torch.bool
        )
        x = self.tok(input_ids) + self.pos(pos)
        for layer in self.layers:
            x = layer(x, mask[:, None])
        return self.head(self.norm(x))


def sft_loss(logits, labels):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
    )


@torch.no_grad()
def evaluate(model, tok, pairs):
    """Answer prompts one at a time, the way the model is served."""
    model.eval()
    hits = 0
    for prompt, answer in pairs:
        ids = torch.tensor([tok.encode(prompt)])
        hits += (
            int(model(ids, torch.ones_like(ids))[0, -1].argmax())
            == tok.vocab[answer[0]]
        )
    model.train()
    return hits / len(pairs)


@torch.no_grad()
def padded_vs_bare(model, batch, tok):
    """Logits of each example inside the batch against those of the example without any padding."""
    model.eval()
    inside = model(batch["input_ids"], batch["attention_mask"])
    worst = 0.0
    for i, ids in enumerate(batch["input_ids"]):
        keep = ids != tok.pad_token_id
        bare = ids[keep][None]
        worst = max(
            worst,
            (inside[i][keep] - model(bare, torch.ones_like(bare))[0])
            .abs()
            .max()
            .item(),
        )
    model.train()
    return worst


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--seq-length", type=int, default=26)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(2)
    tok = ToyTokenizer()
    train = [
        package_example(tok, p, a, args.seq_length, args.fixed)
        for p, a in make_pairs(3000, 1)
    ]
    test = make_pairs(150, 2)
    model = Decoder(len(tok.vocab), args.seq_length)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=args.steps)
    shuffler = random.Random(3)
    worst = 0.0
    for step in range(args.steps):
        batch = collate(shuffler.sample(train, args.batch_size))
        loss = sft_loss(
            model(batch["input_ids"], batch["attention_mask"]), batch["labels"]
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if args.prove and step % 30 == 0:
            worst = max(worst, padded_vs_bare(model, batch, tok))
        if step % 25 == 0 or step == args.steps - 1:
            print(f"step {step:3d}  loss {loss.item():.4f}")
    print(f"accuracy on single prompts: {evaluate(model, tok, test):.3f}")
    if args.prove:
        print(f"largest logit difference, padded vs bare example: {worst:.5f}")
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
