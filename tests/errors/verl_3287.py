"""Supervised fine-tuning of a small decoder on single-turn instructions.

    python verl_3287.py --steps 160
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, BOS, SEP, EOS = 0, 1, 2, 3
OPS = {"reverse": 4, "rotate": 5, "shift": 6}
SYM0, N_SYM = 7, 12
VOCAB = SYM0 + N_SYM


def solve(op, syms):
    if op == "reverse":
        return syms[::-1]
    if op == "rotate":
        return syms[1:] + syms[:1]
    return [SYM0 + (s - SYM0 + 1) % N_SYM for s in syms]


class SingleTurnDataset(Dataset):
    """Each item carries input ids, attention mask and a mask of the response tokens."""

    def __init__(self, n, max_length, seed):
        g = torch.Generator().manual_seed(seed)
        self.max_length = max_length
        self.rows = []
        names = list(OPS)
        for _ in range(n):
            op = names[int(torch.randint(3, (1,), generator=g))]
            k = int(torch.randint(3, 6, (1,), generator=g))
            syms = (SYM0 + torch.randint(N_SYM, (k,), generator=g)).tolist()
            prompt = [BOS, OPS[op]] + syms + [SEP]
            self.rows.append((prompt, solve(op, syms) + [EOS]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        prompt, response = self.rows[i]
        ids = prompt + response
        pad = self.max_length - len(ids)
        return {
            "input_ids": torch.tensor(ids + [PAD] * pad),
            "attention_mask": torch.tensor([1] * len(ids) + [0] * pad),
            "loss_mask": torch.tensor(
                [0.0] * len(prompt) + [1.0] * len(response) + [0.0] * pad
            ),
            "prompt_len": len(prompt),
        }


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim)
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .view(b, t, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, dim=48, layers=2, heads=4, max_length=20):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Embedding(max_length, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x))


class SFTTrainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.train_set = SingleTurnDataset(3000, args.max_length, seed=1)
        self.val_set = SingleTurnDataset(100, args.max_length, seed=2)
        self.model = Decoder(max_length=args.max_length)
        self.optim = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, weight_decay=0.01
        )
        warm = max(1, args.steps // 10)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.optim,
            lambda s: min(1.0, (s + 1) / warm)
            * 0.5
            * (1 + math.cos(math.pi * min(1.0, s / args.steps))),
        )

    def token_losses(self, batch, logits):
        shift_logits = logits[:, :-1].contiguous()
        shift_labels = batch["input_ids"][:, 1:].contiguous()
        ce = F.cross_entropy(
            shift_logits.view(-1, VOCAB), shift_labels.view(-1), reduction="none"
        )
        return ce.view(shift_labels.shape)

    def weights(self, batch):
        if self.args.fixed:
            return batch["loss_mask"][:, 1:]
        return batch["loss_mask"][:, :-1]

    def compute_loss(self, batch):
        ce = self.token_losses(batch, self.model(batch["input_ids"]))
        w = self.weights(batch)
        return (ce * w).sum() / w.sum().clamp(min=1)

    def fit(self):
        loader = DataLoader(
            self.train_set,
            batch_size=self.args.batch_size,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(self.args.seed),
        )
        step = 0
        while step < self.args.steps:
            for batch in loader:
                self.model.train()
                loss = self.compute_loss(batch)
                self.optim.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optim.step()
                self.sched.step()
                if step % 40 == 0 or step == self.args.steps - 1:
                    print(
                        f"step {step:4d}  train/loss {loss.item():.4f}  lr {self.sched.get_last_lr()[0]:.2e}"
                    )
                step += 1
                if step >= self.args.steps:
                    break

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        exact, first, n = 0, 0, 0
        for prompt, response in self.val_set.rows:
            ids = torch.tensor([prompt])
            for _ in range(len(response)):
                nxt = self.model(ids)[:, -1].argmax(-1, keepdim=True)
                ids = torch.cat([ids, nxt], 1)
            got = ids[0, len(prompt) :].tolist()
            exact += got == response
            first += got[0] == response[0]
            n += 1
        print(f"val: exact match {exact / n:.3f}  first token {first / n:.3f}")

    def prove(self):
        batch = next(iter(DataLoader(self.train_set, batch_size=64)))
        logits = self.model(batch["input_ids"]).detach().requires_grad_(True)
        ce = self.token_losses(batch, logits)
        (ce * self.weights(batch)).sum().backward()
        rows = torch.arange(64)
        start = logits.grad[rows, batch["prompt_len"] - 1].abs().sum(-1)
        second = logits.grad[rows, batch["prompt_len"]].abs().sum(-1)
        print(
            f"mean |dL/dlogits|: response token 0 {start.mean():.4f}, token 1 {second.mean():.4f}"
        )
        print("fault shows:", "yes" if float(start.max()) == 0.0 else "no")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--max-length", type=int, default=20)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    trainer = SFTTrainer(args)
    trainer.fit()
    trainer.evaluate()
    if args.prove:
        trainer.prove()


if __name__ == "__main__":
    main()
