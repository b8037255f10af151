"""Trains a small language model on receipts, with recomputed blocks and dropout.

After OLMo-core, pull request 828.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

TOKENS, LENGTH = 40, 32


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden):
        parts = self.qkv(self.norms[0](hidden)).chunk(3, 2)
        heads = [part.unflatten(2, (4, -1)).transpose(1, 2) for part in parts]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        hidden = hidden + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return hidden + self.dropout(self.mlp(self.norms[1](hidden)))


class ReceiptModel(nn.Module):
    def __init__(self, width=48, depth=3, dropout=0.2):
        super().__init__()
        self.token = nn.Embedding(TOKENS, width)
        self.place = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, TOKENS))
        self.checkpointing, self.preserve_rng_state = False, True

    def apply_activation_checkpointing(self, preserve_rng_state):
        self.checkpointing, self.preserve_rng_state = True, preserve_rng_state

    def forward(self, receipt):
        hidden = self.token(receipt) + self.place(torch.arange(receipt.shape[1]))
        for block in self.blocks:
            if self.checkpointing and self.training:
                hidden = checkpoint(
                    block, hidden, use_reentrant=False,
                    preserve_rng_state=self.preserve_rng_state,
                )  # fmt: skip
            else:
                hidden = block(hidden)
        return self.head(hidden)


def receipts(count, seed):
    """Each token hangs on the last one and on the one four places before."""
    rules = torch.randint(
        TOKENS, (TOKENS, 8), generator=torch.Generator().manual_seed(4)
    )
    generator = torch.Generator().manual_seed(seed)
    receipt = torch.randint(TOKENS, (count, LENGTH + 1), generator=generator)
    for at in range(4, LENGTH + 1):
        ruled = rules[receipt[:, at - 1], receipt[:, at - 4] % 8]
        free = torch.rand(count, generator=generator) < 0.1
        receipt[:, at] = torch.where(free, receipt[:, at], ruled)
    return receipt


def loss_of(model, receipt):
    logits = model(receipt[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), receipt[:, 1:].flatten())


def gradient(model, receipt, checkpointing):
    model.zero_grad()
    model.checkpointing = checkpointing
    torch.manual_seed(0)
    loss_of(model, receipt).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = receipts(1024, args.seed), receipts(256, args.seed + 1)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    model = ReceiptModel()
    model.apply_activation_checkpointing(preserve_rng_state=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for receipt in loader:
            loss = loss_of(model, receipt)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        with torch.no_grad():
            held = loss_of(model, valid).item()
        print(f"epoch {epoch} validation {held:.4f}", flush=True)
    if args.prove:
        model.train()
        kept = gradient(model, valid[:32], False)
        gap = (gradient(model, valid[:32], True) - kept).norm() / kept.norm()
        print(f"recomputed gradients differ from kept ones by a share of {gap:.6f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
