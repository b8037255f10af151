import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


# --------------------------------------------------------------------------- #
# data: a stream of token blocks, grouped in "files" with their own vocabulary #
# --------------------------------------------------------------------------- #
def build_blocks(n_files, blocks_per_file, block_size, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    blocks, origin = [], []
    for f in range(n_files):
        words = torch.randperm(vocab, generator=g)[: vocab // 3]
        follow = words[torch.randint(len(words), (vocab, 2), generator=g)]
        for _ in range(blocks_per_file):
            seq = [int(words[0])]
            for _ in range(block_size):
                choice = int(torch.rand(1, generator=g) < 0.15)
                seq.append(int(follow[seq[-1], choice]))
            blocks.append(seq)
            origin.append(f)
    return torch.tensor(blocks), torch.tensor(origin)


class StreamingLoader:
    """Batches in order of the stream; its position can be stored and restored."""

    def __init__(self, blocks, batch_size):
        self.blocks, self.batch_size = blocks, batch_size
        self.start = 0
        self.position = 0

    def __len__(self):
        return len(self.blocks) // self.batch_size

    def __iter__(self):
        self.position = self.start
        while self.position < len(self):
            lo = self.position * self.batch_size
            self.position += 1
            yield self.blocks[lo : lo + self.batch_size]

    def state_dict(self):
        return {"position": self.position % len(self)}

    def load_state_dict(self, state):
        self.start = state["position"]


class CycleIterator:
    def __init__(self, iterable, fixed=False):
        self.iterable = iterable
        self.epoch = 0
        self.fixed = fixed
        self._iterator = None

    def __next__(self):
        if self._iterator is None:
            self._iterator = iter(self.iterable)
        try:
            return next(self._iterator)
        except StopIteration:
            if self.fixed:
                self.iterable.start = 0
            self._iterator = iter(self.iterable)
            self.epoch += 1
            return next(self._iterator)

    def __iter__(self):
        return self


class GPT(nn.Module):
    def __init__(self, vocab, block_size, n_embd=48, n_head=4, n_layer=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(
            block_size, n_embd
        )
        self.blocks = nn.ModuleList()
        for _ in range(n_layer):
            self.blocks.append(
                nn.ModuleDict(
                    dict(
                        ln1=nn.LayerNorm(n_embd),
                        attn=nn.MultiheadAttention(n_embd, n_head, batch_first=True),
                        ln2=nn.LayerNorm(n_embd),
                        mlp=nn.Sequential(
                            nn.Linear(n_embd, 3 * n_embd),
                            nn.GELU(),
                            nn.Linear(3 * n_embd, n_embd),
                        ),
                    )
                )
            )
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.register_buffer(
            "mask",
            torch.triu(torch.ones(block_size, block_size, dtype=torch.bool), 1),
            persistent=False,
        )

    def forward(self, idx):
        t = idx.shape[1]
        x = self.wte(idx) + self.wpe.weight[:t]
        for b in self.blocks:
            h = b["ln1"](x)
            x = (
                x
                + b["attn"](h, h, h, attn_mask=self.mask[:t, :t], need_weights=False)[0]
            )
            x = x + b["mlp"](b["ln2"](x))
        return self.lm_head(self.ln_f(x))


def block_loss(model, batch):
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def validate(model, val, origin):
    model.eval()
    logits = model(val[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), val[:, 1:], reduction="none").mean(1)
    model.train()
    per_file = [loss[origin == f].mean().item() for f in range(int(origin.max()) + 1)]
    return loss.mean().item(), per_file


def learning_rate(it, max_iters, peak, warmup=10):
    if it < warmup:
        return peak * (it + 1) / warmup
    return peak * (
        0.1
        + 0.45 * (1 + math.cos(math.pi * (it - warmup) / max(1, max_iters - warmup)))
    )


def setup(args, blocks):
    torch.manual_seed(args.seed)
    model = GPT(args.vocab, args.block_size)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1
    )
    loader = StreamingLoader(blocks, args.batch_size)
    return {
        "model": model,
        "optimizer": optimizer,
        "train_dataloader": loader,
        "iter_num": 0,
    }


def save(state, path):
    torch.save(
        {k: v if isinstance(v, int) else v.state_dict() for k, v in state.items()}, path
    )


def load(state, path):
    ckpt = torch.load(path)
    for k, v in ckpt.items():
        if isinstance(v, int):
            state[k] = v
        else:
            state[k].load_state_dict(v)


def fit(state, args, until):
    model, optimizer = state["model"], state["optimizer"]
    train_iterator = CycleIterator(state["train_dataloader"], args.fixed)
    while state["iter_num"] < until:
        batch = next(train_iterator)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(state["iter_num"], args.steps, args.lr)
        loss = block_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if state["iter_num"] % 20 == 0:
            print(
                f"iter {state['iter_num']:3d} | epoch {train_iterator.epoch} | loss {loss.item():.4f}"
            )
        state["iter_num"] += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument(
        "--stop-at",
        type=int,
        default=32,
        help="iteration of the checkpoint the run is resumed from",
    )
    p.add_argument("--batch-size", type=int, default=12)
    p.add_argument("--block-size", type=int, default=24)
    p.add_argument("--vocab", type=int, default=60)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=21)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    blocks, origin = build_blocks(5, 108, args.block_size, args.vocab, args.seed)
    val_ids = torch.arange(len(blocks)) % 9 == 8
    train_blocks, val, val_origin = blocks[~val_ids], blocks[val_ids], origin[val_ids]

    with tempfile.TemporaryDirectory() as out_dir:
        path = os.path.join(out_dir, "lit_model.pth")
        state = setup(args, train_blocks)
        fit(state, args, until=min(args.stop_at, args.steps))
        save(state, path)
        print(
            f"checkpoint at iteration {state['iter_num']}, {len(state['train_dataloader'])} iterations per epoch"
        )

        state = setup(args, train_blocks)
        load(state, path)
        print(f"resumed at iteration {state['iter_num']}")
        fit(state, args, until=args.steps)
        loss, per_file = validate(state["model"], val, val_origin)
        print(
            f"val loss {loss:.4f}, by file: " + " ".join(f"{x:.3f}" for x in per_file)
        )

        if args.prove:
            again = setup(args, train_blocks)
            load(again, path)
            it, counts = CycleIterator(again["train_dataloader"], args.fixed), {}
            while it.epoch < 2:
                next(it)
                counts[it.epoch] = counts.get(it.epoch, 0) + 1
            total = len(again["train_dataloader"])
            print(
                f"batches in the second epoch of the resumed run: {counts[1]} of {total}"
            )
            print(f"fault shows: {'yes' if counts[1] < total else 'no'}")


if __name__ == "__main__":
    main()
