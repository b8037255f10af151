"""Pre-training of a byte-level decoder with gradient accumulation and validation."""

import argparse
import functools
import json
import math
import os
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Callable

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Training:
    local_batch_size: int = 8
    global_batch_size: int = 32
    seq_len: int = 48
    steps: int = 72
    max_norm: float = 1.0


@dataclass
class OptimizerConfig:
    lr: float = 5e-3
    weight_decay: float = 0.1
    warmup_steps: int = 8


@dataclass
class Validation:
    freq: int = 12
    steps: int = 6
    target_loss: float = 1.0


@dataclass
class JobConfig:
    training: Training = field(default_factory=Training)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    validation: Validation = field(default_factory=Validation)
    seed: int = 0
    fixed: bool = False


WORDS = (
    "the a small old green river stone bird house wind walks sees finds under over "
    "near quiet and then"
).split()


class CorpusDataset:
    """An endless stream of tokens of made-up sentences."""

    def __init__(self, seq_len, seed):
        self.seq_len = seq_len
        self.rng = np.random.default_rng(seed)
        table = np.random.default_rng(11)
        weights = table.dirichlet(np.full(len(WORDS), 0.15), len(WORDS))
        self.transition = weights
        self.word = 0
        self.buffer = []

    def sentence(self):
        words = []
        for _ in range(int(self.rng.integers(4, 9))):
            self.word = self.rng.choice(len(WORDS), p=self.transition[self.word])
            words.append(WORDS[self.word])
        return " ".join(words) + ". "

    def __iter__(self):
        while True:
            while len(self.buffer) <= self.seq_len:
                self.buffer += self.sentence().encode()
            chunk = torch.tensor(self.buffer[: self.seq_len + 1])
            self.buffer = self.buffer[self.seq_len :]
            yield chunk[:-1], chunk[1:]


def batches(dataset, batch_size):
    stream = iter(dataset)
    while True:
        inputs, labels = zip(*[next(stream) for _ in range(batch_size)])
        yield torch.stack(inputs), torch.stack(labels)


# components


def cross_entropy_loss(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))


def rescale_accumulated_loss(unwrapped_loss_fn, accumulation_steps):
    """Divides the loss, so that the sum over the accumulation steps is a mean."""

    @functools.wraps(unwrapped_loss_fn)
    def accumulated_loss_fn(*args, **kwargs):
        return unwrapped_loss_fn(*args, **kwargs) / accumulation_steps

    accumulated_loss_fn.unwrapped = unwrapped_loss_fn
    return accumulated_loss_fn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = [
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in self.wqkv(x).chunk(3, -1)
        ]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, heads)
        self.feed_forward = FeedForward(dim, 2 * dim)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self, seq_len, vocab=128, dim=48, heads=4, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.positions = nn.Parameter(0.02 * torch.randn(seq_len, dim))
        self.layers = nn.ModuleList(TransformerBlock(dim, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


class MetricsProcessor:
    def __init__(self, path):
        self.path, self.rows = path, []

    def log(self, step, loss, grad_norm, lr):
        self.rows.append({"step": step, "loss": loss, "grad_norm": grad_norm})
        if step == 1 or step % 12 == 0:
            print(
                f"step: {step:3d}  loss: {loss:8.5f}  grad_norm: {grad_norm:7.4f}  "
                f"lr: {lr:.2e}"
            )

    def log_validation(self, step, loss):
        perplexity = math.exp(loss)
        self.rows.append({"step": step, "validation_loss": loss})
        print(
            f"validate step: {step:3d}  loss: {loss:8.5f}  perplexity: {perplexity:.3f}"
        )

    def close(self):
        with open(self.path, "w") as f:
            json.dump(self.rows, f)


class Validator:
    def __init__(self, config: JobConfig, loss_fn: Callable, metrics: MetricsProcessor):
        self.config, self.loss_fn, self.metrics = config, loss_fn, metrics

    @torch.no_grad()
    def validate(self, model, step):
        model.eval()
        dataset = CorpusDataset(self.config.training.seq_len, self.config.seed + 5000)
        loader = batches(dataset, self.config.training.local_batch_size)
        losses = []
        for _ in range(self.config.validation.steps):
            inputs, labels = next(loader)
            losses.append(self.loss_fn(model(inputs), labels))
        loss = torch.stack(losses).mean().item()
        self.metrics.log_validation(step, loss)
        model.train()
        return loss


class Trainer:
    def __init__(self, config: JobConfig, folder):
        self.config, self.folder = config, folder
        training = config.training
        torch.manual_seed(config.seed)
        self.gradient_accumulation_steps = (
            training.global_batch_size // training.local_batch_size
        )
        self.model = Transformer(training.seq_len)
        self.loss_fn = rescale_accumulated_loss(
            cross_entropy_loss, self.gradient_accumulation_steps
        )
        self.metrics = MetricsProcessor(os.path.join(folder, "metrics.json"))
        validation_loss_fn = self.loss_fn
        if config.fixed:
            validation_loss_fn = self.loss_fn.unwrapped
        self.validator = Validator(config, validation_loss_fn, self.metrics)
        self.dataloader = batches(
            CorpusDataset(training.seq_len, config.seed), training.local_batch_size
        )
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=config.optimizer.lr,
            weight_decay=config.optimizer.weight_decay,
            betas=(0.9, 0.95),
        )
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, self.linear_warmup_linear_decay
        )
        self.step = 0

    def linear_warmup_linear_decay(self, step):
        warmup, total = self.config.optimizer.warmup_steps, self.config.training.steps
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, (total - step) / (total - warmup))

    def train_step(self):
        self.optimizer.zero_grad()
        accumulated = []
        for _ in range(self.gradient_accumulation_steps):
            inputs, labels = next(self.dataloader)
            loss = self.loss_fn(self.model(inputs), labels)
            loss.backward()
            accumulated.append(loss.detach())
        grad_norm = nn.utils.clip_grad_norm_(
            self.model.parameters(), self.config.training.max_norm
        )
        lr = self.lr_scheduler.get_last_lr()[0]
        self.optimizer.step()
        self.lr_scheduler.step()
        loss = torch.sum(torch.stack(accumulated)).item()
        self.metrics.log(self.step, loss, grad_norm.item(), lr)

    def save(self):
        state = {"model": self.model.state_dict(), "step": self.step}
        torch.save(state, os.path.join(self.folder, f"step-{self.step}.pt"))

    def train(self):
        validation = self.config.validation
        reached = None
        while self.step < self.config.training.steps:
            self.step += 1
            self.train_step()
            if self.step % validation.freq == 0:
                loss = self.validator.validate(self.model, self.step)
                self.save()
                if reached is None and loss < validation.target_loss:
                    reached = self.step
        self.metrics.close()
        print(f"validation target {validation.target_loss} reached at step {reached}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = JobConfig(seed=args.seed, fixed=args.fixed)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(config, folder).train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
