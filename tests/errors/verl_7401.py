"""Supervised fine-tuning of a small causal model on instructions, with checkpoints.

A run may be cut into several jobs: every job resumes from the newest checkpoint and
ends after its own share of the updates.
"""

import argparse
import itertools
import logging
import os
import tempfile
from dataclasses import dataclass
from typing import Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

logger = logging.getLogger("sft")

PAD, BOS, SEP, EOS = 0, 1, 2, 3
LETTER0, OPS0, VOCAB = 8, 4, 8 + 12


@dataclass
class SFTConfig:
    train_size: int = 768
    val_size: int = 120
    batch_size: int = 24
    total_epochs: int = 4
    save_freq: int = 32
    test_freq: int = 16
    lr: float = 4e-3
    warmup: int = 8
    weight_decay: float = 0.01
    clip_grad: float = 1.0
    seed: int = 0
    fixed: bool = False


class InstructionDataset(Dataset):
    """Copy, reverse or rotate a word of four to six letters."""

    def __init__(self, count, seed, length=18):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(count):
            word = (LETTER0 + rng.integers(0, 12, rng.integers(3, 6))).tolist()
            op = int(rng.integers(0, 3))
            answer = [word, word[::-1], word[1:] + word[:1]][op]
            prompt = [BOS, OPS0 + op, *word, SEP]
            ids = prompt + answer + [EOS]
            mask = [0] * len(prompt) + [1] * (len(answer) + 1)
            pad = length - len(ids)
            self.items.append((ids + [PAD] * pad, mask + [0] * pad))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, item):
        ids, mask = self.items[item]
        return torch.tensor(ids), torch.tensor(mask, dtype=torch.float32)


class EpochSampler(Sampler):
    def __init__(self, size, seed):
        self.size, self.seed, self.epoch = size, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.size

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(torch.randperm(self.size, generator=generator).tolist())


class StatefulDataLoader:
    """Batches over a sampler; the number of samples yielded is part of the state."""

    def __init__(self, dataset, batch_size, sampler):
        self.dataset, self.batch_size, self.sampler = dataset, batch_size, sampler
        self.samples_yielded = 0
        self.next_iter_state = None

    def __len__(self):
        return len(self.sampler) // self.batch_size

    def state_dict(self):
        return {"samples_yielded": self.samples_yielded}

    def load_state_dict(self, state):
        self.next_iter_state = state

    def __iter__(self):
        skip = 0
        if self.next_iter_state is not None:
            skip = self.next_iter_state["samples_yielded"]
            self.next_iter_state = None
        self.samples_yielded = skip
        indices = itertools.islice(iter(self.sampler), skip, None)
        while True:
            rows = list(itertools.islice(indices, self.batch_size))
            if len(rows) < self.batch_size:
                return
            self.samples_yielded += len(rows)
            ids, masks = zip(*[self.dataset[row] for row in rows])
            yield torch.stack(ids), torch.stack(masks)


class CausalLM(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2, length=18):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, dim)
        self.places = nn.Embedding(length, dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, ids):
        length = ids.shape[1]
        x = self.tokens(ids) + self.places(torch.arange(length))
        x = self.body(x, mask=self.mask[:length, :length], is_causal=True)
        return self.head(self.norm(x))


class CheckpointHandler:
    """Saves and restores engine and data loader under one folder."""

    def __init__(self, engine, train_dataloader, folder, fixed):
        self.engine, self.train_dataloader = engine, train_dataloader
        self.folder, self.fixed = folder, fixed

    def save_checkpoint(self, step):
        path = os.path.join(self.folder, f"global_step_{step}")
        os.makedirs(path, exist_ok=True)
        torch.save(self.engine.state_dict(), os.path.join(path, "engine.pt"))
        data = self.train_dataloader.state_dict()
        torch.save(data, os.path.join(path, "data.pt"))
        with open(
            os.path.join(self.folder, "latest_checkpointed_iteration.txt"), "w"
        ) as f:
            f.write(str(step))

    def find_latest(self) -> Optional[int]:
        tracker = os.path.join(self.folder, "latest_checkpointed_iteration.txt")
        if not os.path.exists(tracker):
            return None
        with open(tracker) as f:
            return int(f.read())

    def load_checkpoint(self) -> int:
        step = self.find_latest()
        if step is None:
            return 0
        path = os.path.join(self.folder, f"global_step_{step}")
        self.engine.load_state_dict(torch.load(os.path.join(path, "engine.pt")))
        data = torch.load(os.path.join(path, "data.pt"))
        boundary = step % len(self.train_dataloader) == 0
        if not (self.fixed and boundary):
            self.train_dataloader.load_state_dict(data)
        logger.info("resumed from %s", os.path.basename(path))
        return step


class Engine:
    def __init__(self, cfg, total_steps):
        self.cfg = cfg
        self.module = CausalLM()
        self.optimizer = torch.optim.AdamW(
            self.module.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda s: min((s + 1) / cfg.warmup, 1) * max(0.02, 1 - s / total_steps),
        )

    def state_dict(self):
        return {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }

    def load_state_dict(self, state):
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    def loss(self, ids, mask):
        logits = self.module(ids[:, :-1])
        losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        return (losses * mask[:, 1:]).sum() / mask[:, 1:].sum()

    def train_batch(self, ids, mask):
        loss = self.loss(ids, mask)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), self.cfg.clip_grad)
        self.optimizer.step()
        lr = self.scheduler.get_last_lr()[0]
        self.scheduler.step()
        return {"train/loss": loss.item(), "train/lr": lr}

    @torch.no_grad()
    def infer(self, dataset):
        self.module.eval()
        ids, mask = map(torch.stack, zip(*[dataset[i] for i in range(len(dataset))]))
        loss = self.loss(ids, mask).item()
        right = (self.module(ids[:, :-1]).argmax(-1) == ids[:, 1:]) | (mask[:, 1:] == 0)
        self.module.train()
        return {"val/loss": loss, "val/exact": right.all(1).float().mean().item()}


class SFTTrainer:
    def __init__(self, cfg, folder):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        train_dataset = InstructionDataset(cfg.train_size, cfg.seed)
        self.val_dataset = InstructionDataset(cfg.val_size, cfg.seed + 1)
        self.sampler = EpochSampler(len(train_dataset), cfg.seed)
        self.loader = StatefulDataLoader(train_dataset, cfg.batch_size, self.sampler)
        self.steps_per_epoch = len(self.loader)
        self.total_steps = self.steps_per_epoch * cfg.total_epochs
        self.engine = Engine(cfg, self.total_steps)
        self.ckpt = CheckpointHandler(self.engine, self.loader, folder, cfg.fixed)
        self.resume_global_step = self.ckpt.load_checkpoint()

    def fit(self, stop_at=None):
        global_step = self.resume_global_step
        start_epoch = global_step // self.steps_per_epoch
        updates, metrics = 0, {}
        for epoch in range(start_epoch, self.cfg.total_epochs):
            self.sampler.set_epoch(epoch)
            for ids, mask in self.loader:
                global_step += 1
                updates += 1
                metrics = self.engine.train_batch(ids, mask)
                last = global_step == self.total_steps
                if last or global_step % self.cfg.test_freq == 0:
                    metrics.update(self.engine.infer(self.val_dataset))
                    text = " ".join(f"{k}:{v:.5f}" for k, v in metrics.items())
                    logger.info("step:%d epoch:%d %s", global_step, epoch, text)
                if last or global_step % self.cfg.save_freq == 0:
                    self.ckpt.save_checkpoint(global_step)
                if global_step == stop_at:
                    return updates
        final = self.engine.infer(self.val_dataset)
        text = " ".join(f"{k}:{v:.5f}" for k, v in final.items())
        logger.info("training complete at step %d %s", global_step, text)
        return updates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job-steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    cfg = SFTConfig(seed=args.seed, fixed=args.fixed)
    with tempfile.TemporaryDirectory() as folder:
        first = SFTTrainer(cfg, folder).fit(stop_at=args.job_steps)
        second = SFTTrainer(cfg, folder).fit()
    logger.info("updates: first job %d, second job %d", first, second)


if __name__ == "__main__":
    main()
