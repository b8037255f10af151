"""Fine-tuning of a small language model that is interrupted and resumed mid-epoch.

After allenai/open-instruct, pull request 681.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    vocab: int = 40
    n_train: int = 768
    n_val: int = 192
    prompt_len: int = 6
    dim: int = 48
    heads: int = 4
    layers: int = 2
    batch_size: int = 32
    epochs: int = 5
    lr: float = 4e-3
    warmup: int = 10
    interrupt_after: int = 17
    seed: int = 5


class Instructions(Dataset):
    """Prompt, separator, and the prompt backwards through a table as the answer."""

    def __init__(self, n, cfg, seed):
        g = torch.Generator().manual_seed(seed)
        table = (
            torch.randperm(cfg.vocab - 1, generator=torch.Generator().manual_seed(99))
            + 1
        )
        prompt = torch.randint(1, cfg.vocab, (n, cfg.prompt_len), generator=g)
        sep = torch.zeros(n, 1, dtype=torch.long)
        answer = table[prompt.flip(1) - 1]
        self.ids = torch.cat([prompt, sep, answer], 1)
        self.labels = self.ids.clone()
        self.labels[:, : cfg.prompt_len + 1] = -100

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


class EpochBatchSampler(Sampler):
    def __init__(self, n, batch_size, seed):
        self.n, self.bs, self.seed, self.epoch, self.skip = n, batch_size, seed, 0, 0

    def __len__(self):
        return self.n // self.bs

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        perm = torch.randperm(self.n, generator=g)[: len(self) * self.bs].view(
            -1, self.bs
        )
        yield from perm[self.skip :].tolist()


class CausalLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        n = 2 * cfg.prompt_len + 1
        self.tok, self.pos = nn.Embedding(cfg.vocab, cfg.dim), nn.Embedding(n, cfg.dim)
        layer = lambda: nn.TransformerEncoderLayer(
            cfg.dim, cfg.heads, 2 * cfg.dim, 0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.ModuleList(layer() for _ in range(cfg.layers))
        self.norm, self.head = nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, cfg.vocab)
        self.register_buffer("mask", torch.triu(torch.ones(n, n, dtype=torch.bool), 1))

    def forward(self, ids):
        n = ids.shape[1]
        x = self.tok(ids) + self.pos.weight[:n]
        for b in self.blocks:
            x = b(x, src_mask=self.mask[:n, :n])
        return self.head(self.norm(x))


def lm_loss(model, ids, labels):
    logits = model(ids)[:, :-1]
    return F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        labels[:, 1:].reshape(-1),
        ignore_index=-100,
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = sum(lm_loss(model, *b).item() * len(b[0]) for b in loader) / len(
        loader.dataset
    )
    model.train()
    return loss


def skip_always(resume_batch_idx, epoch, starting_epoch):
    return resume_batch_idx


def skip_once(resume_batch_idx, epoch, starting_epoch):
    return resume_batch_idx if epoch == starting_epoch else 0


def train(cfg, skip, ckpt_dir, max_steps=None, resume=False):
    torch.manual_seed(cfg.seed)
    train_set, val_set = Instructions(cfg.n_train, cfg, 1), Instructions(
        cfg.n_val, cfg, 2
    )
    sampler = EpochBatchSampler(cfg.n_train, cfg.batch_size, cfg.seed)
    loader = DataLoader(train_set, batch_sampler=sampler)
    val_loader = DataLoader(val_set, 64)
    model = CausalLM(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.0)
    total = cfg.epochs * len(sampler)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(
            (s + 1) / cfg.warmup, max(0.0, (total - s) / (total - cfg.warmup))
        ),
    )
    completed, starting_epoch, resume_batch_idx = 0, 0, 0
    path = os.path.join(ckpt_dir, "step.pt")
    if resume:
        state = torch.load(path)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        completed = state["step"]
        starting_epoch, resume_batch_idx = divmod(completed, len(sampler))
        print(f"resumed at epoch {starting_epoch}, batch {resume_batch_idx}")
    for epoch in range(starting_epoch, cfg.epochs):
        sampler.epoch = epoch
        sampler.skip = skip(resume_batch_idx, epoch, starting_epoch)
        running, n = 0.0, 0
        for ids, labels in loader:
            opt.zero_grad()
            loss = lm_loss(model, ids, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            completed += 1
            running, n = running + loss.item(), n + 1
            if completed == max_steps:
                parts = {"model": model, "opt": opt, "sched": sched}
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**state, "step": completed}, path)
                print(f"step {completed} loss {running / n:.4f}, preempted", flush=True)
                return completed, total
        val = evaluate(model, val_loader)
        print(
            f"epoch {epoch} step {completed} train {running / n:.4f} val {val:.4f}",
            flush=True,
        )
    return completed, total


def run(cfg, skip):
    with tempfile.TemporaryDirectory() as d:
        train(cfg, skip, d, max_steps=cfg.interrupt_after)
        return train(cfg, skip, d, resume=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    done, total = run(cfg, skip_once if args.fixed else skip_always)
    if args.prove:
        print(f"{done} of {total} batches were trained on")
        print("fault shows:", "yes" if done < total else "no", flush=True)


if __name__ == "__main__":
    main()
