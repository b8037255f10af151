"""Two-turn chat SFT on a toy "sort these digits" assistant.

    python mbridge_4660.py --steps 140
"""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class ToyTokenizer:
    def __init__(self):
        self.vocab = ["<eos>", "<user>", "<assistant>"] + [str(d) for d in range(10)]
        self.ids = {t: i for i, t in enumerate(self.vocab)}
        self.eos_token_id = self.ids["<eos>"]
        self.pad_token_id = None

    def encode(self, tokens):
        return [self.ids[t] for t in tokens]

    def __len__(self):
        return len(self.vocab)


def load_tokenizer():
    tok = ToyTokenizer()
    if tok.pad_token_id is None:
        tok.pad_token_id = tok.eos_token_id
    return tok


def make_turn(rng):
    digits = [rng.randrange(10) for _ in range(rng.randint(2, 5))]
    return digits, sorted(digits)


def make_dialogue(rng, n_turns=2):
    return [make_turn(rng) for _ in range(n_turns)]


class ChatDataset(Dataset):
    def __init__(self, dialogues, tok, seq_length, fixed=False):
        self.dialogues, self.tok, self.seq_length = dialogues, tok, seq_length
        self.fixed = fixed

    def __len__(self):
        return len(self.dialogues)

    def tokenize(self, dialogue):
        ids, spans = [], []
        for question, answer in dialogue:
            ids += self.tok.encode(
                ["<user>"] + [str(d) for d in question] + ["<assistant>"]
            )
            start = len(ids)
            ids += self.tok.encode([str(d) for d in answer] + ["<eos>"])
            spans.append((start, len(ids)))
        n_real = min(len(ids), self.seq_length + 1)
        ids = ids[: self.seq_length + 1]
        ids += [self.tok.pad_token_id] * (self.seq_length + 1 - len(ids))
        return ids, spans, n_real

    def __getitem__(self, i):
        ids, spans, n_real = self.tokenize(self.dialogues[i])
        ids = torch.tensor(ids)
        input_ids, labels = ids[:-1], ids[1:].clone()
        loss_mask = torch.zeros(self.seq_length)
        for s, e in spans:
            loss_mask[s - 1 : e - 1] = 1.0
        if self.fixed:
            loss_mask[n_real - 1 :] = 0.0
        else:
            loss_mask[labels == self.tok.pad_token_id] = 0.0
        ends = torch.zeros(self.seq_length)
        for _, e in spans:
            if e - 2 < self.seq_length:
                ends[e - 2] = 1.0
        return {
            "input_ids": input_ids,
            "labels": labels,
            "loss_mask": loss_mask,
            "turn_ends": ends,
        }


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.ln1(x))
            .view(b, t, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class ChatLM(nn.Module):
    def __init__(self, vocab, dim=64, layers=2, heads=4, max_len=40):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x))


@torch.no_grad()
def evaluate(model, tok, questions, max_new=8):
    model.eval()
    exact = prefix = stopped = 0
    for question, answer in questions:
        ids = tok.encode(["<user>"] + [str(d) for d in question] + ["<assistant>"])
        out = []
        for _ in range(max_new):
            nxt = model(torch.tensor([ids + out]))[0, -1].argmax().item()
            out.append(nxt)
            if nxt == tok.eos_token_id:
                break
        gold = tok.encode([str(d) for d in answer] + ["<eos>"])
        exact += out == gold
        prefix += out[: len(gold) - 1] == gold[:-1]
        stopped += out[-1] == tok.eos_token_id
    model.train()
    n = len(questions)
    return {"exact": exact / n, "digits_right": prefix / n, "stopped": stopped / n}


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=140)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--seq-length", type=int, default=26)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    tok = load_tokenizer()
    train = ChatDataset(
        [make_dialogue(rng) for _ in range(2000)], tok, args.seq_length, args.fixed
    )
    test_questions = [make_turn(rng) for _ in range(24)]
    loader = DataLoader(
        train,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(args.seed),
    )

    model = ChatLM(len(tok), max_len=args.seq_length + 10)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, args.lr, total_steps=args.steps + 1, pct_start=0.1
    )

    step, ends_total, ends_weighted = 0, 0.0, 0.0
    while step < args.steps:
        for batch in loader:
            logits = model(batch["input_ids"])
            per_token = F.cross_entropy(
                logits.flatten(0, 1), batch["labels"].flatten(), reduction="none"
            )
            mask = batch["loss_mask"].flatten()
            loss = (per_token * mask).sum() / mask.sum().clamp(min=1)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            ends_total += batch["turn_ends"].sum().item()
            ends_weighted += (batch["turn_ends"] * batch["loss_mask"]).sum().item()
            if step % 20 == 0:
                print(
                    f"step {step:4d}  loss {loss.item():.4f}  lr {sched.get_last_lr()[0]:.2e}"
                )
            step += 1
            if step >= args.steps:
                break

    scores = evaluate(model, tok, test_questions)
    print("eval: " + "  ".join(f"{k} {v:.2f}" for k, v in scores.items()))
    if args.prove:
        share = ends_weighted / max(ends_total, 1)
        print(
            f"turn ends in the batches: {ends_total:.0f}, share with loss weight: {share:.3f}"
        )
        print(f"fault shows: {'yes' if share < 0.99 else 'no'}")


if __name__ == "__main__":
    main()
