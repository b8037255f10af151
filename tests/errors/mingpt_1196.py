"""Character GPT trained with DistributedDataParallel (gloo, two processes on one host)."""
import argparse
import math
import os
import tempfile
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class GPTConfig:
    vocab_size: int = 0
    block_size: int = 24
    n_layer: int = 1
    n_head: int = 4
    n_embd: int = 48


@dataclass
class TrainerConfig:
    max_steps: int = 50
    batch_size: int = 8
    grad_norm_clip: float = 1.0
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    use_amp: bool = True
    log_every: int = 10
    fixed: bool = False
    prove: bool = False


class CharDataset(Dataset):
    def __init__(self, block_size, n_sentences=800):
        g = torch.Generator().manual_seed(5)
        who, verb = ["the king", "a fool", "my lord", "the old nurse", "juliet"], [
            "sees",
            "loves",
            "mocks",
            "follows",
            "buries",
        ]
        pick = torch.randint(5, (n_sentences, 3), generator=g).tolist()
        text = "".join(f"{who[a]} {verb[b]} {who[c]}.\n" for a, b, c in pick)
        chars = sorted(set(text))
        self.stoi = {c: i for i, c in enumerate(chars)}
        self.vocab_size, self.block_size = len(chars), block_size
        self.data = torch.tensor([self.stoi[c] for c in text])

    def __len__(self):
        return len(self.data) - self.block_size - 1

    def __getitem__(self, i):
        chunk = self.data[i : i + self.block_size + 1]
        return chunk[:-1], chunk[1:]


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head = c.n_head
        self.ln1, self.ln2 = nn.LayerNorm(c.n_embd), nn.LayerNorm(c.n_embd)
        self.qkv, self.proj = nn.Linear(c.n_embd, 3 * c.n_embd), nn.Linear(
            c.n_embd, c.n_embd
        )
        self.mlp = nn.Sequential(
            nn.Linear(c.n_embd, 4 * c.n_embd),
            nn.GELU(),
            nn.Linear(4 * c.n_embd, c.n_embd),
        )

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = [
            t.view(B, T, self.n_head, -1).transpose(1, 2)
            for t in self.qkv(self.ln1(x)).split(C, 2)
        ]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok, self.pos = nn.Embedding(c.vocab_size, c.n_embd), nn.Embedding(
            c.block_size, c.n_embd
        )
        self.blocks = nn.Sequential(*[Block(c) for _ in range(c.n_layer)])
        self.ln_f, self.head = nn.LayerNorm(c.n_embd), nn.Linear(
            c.n_embd, c.vocab_size, bias=False
        )
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        logits = self.head(self.ln_f(self.blocks(x)))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.reshape(-1)
            )
        return logits, loss


def create_optimizer(model, c):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": c.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ],
        lr=c.learning_rate,
        betas=(0.9, 0.95),
    )


class Trainer:
    def __init__(self, config, model, optimizer, train_dataset):
        self.config, self.optimizer = config, optimizer
        self.rank = dist.get_rank()
        self.model = DDP(model)
        self.sampler = DistributedSampler(train_dataset, shuffle=True, seed=3)
        self.loader = DataLoader(
            train_dataset,
            batch_size=config.batch_size,
            sampler=self.sampler,
            drop_last=True,
        )
        self.scaler = (
            torch.amp.GradScaler("cpu", enabled=config.use_amp)
            if config.use_amp
            else None
        )
        self.step, self.norms = 0, []

    def _run_batch(self, source, targets):
        c = self.config
        with torch.amp.autocast("cpu", dtype=torch.bfloat16, enabled=c.use_amp):
            _, loss = self.model(source, targets)
        self.optimizer.zero_grad(set_to_none=True)
        if c.use_amp:
            self.scaler.scale(loss).backward()
            if c.fixed:
                self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), c.grad_norm_clip)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), c.grad_norm_clip)
            self.optimizer.step()
        if c.prove:
            self.norms.append(
                torch.stack([p.grad.norm() for p in self.model.parameters()])
                .norm()
                .item()
            )
        self.step += 1
        return loss.item()

    def train(self):
        epoch = 0
        while self.step < self.config.max_steps:
            self.sampler.set_epoch(epoch)
            for source, targets in self.loader:
                if self.step >= self.config.max_steps:
                    break
                for g in self.optimizer.param_groups:
                    g["lr"] = (
                        self.config.learning_rate
                        * min(1.0, (self.step + 1) / 10)
                        * (
                            0.55
                            + 0.45
                            * math.cos(math.pi * self.step / self.config.max_steps)
                        )
                    )
                loss = self._run_batch(source, targets)
                if self.rank == 0 and self.step % self.config.log_every == 0:
                    print(
                        f"[RANK{self.rank}] Epoch {epoch} | Iter {self.step} | Train Loss {loss:.5f}",
                        flush=True,
                    )
            epoch += 1


def worker(rank, world, init_file, cfg):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + init_file, rank=rank, world_size=world
    )
    torch.manual_seed(1337)
    config = TrainerConfig(**cfg)
    gpt_cfg = GPTConfig()
    data = CharDataset(gpt_cfg.block_size)
    gpt_cfg.vocab_size = data.vocab_size
    model = GPT(gpt_cfg)
    trainer = Trainer(config, model, create_optimizer(model, config), data)
    trainer.train()
    if config.prove and rank == 0:
        print(
            "fault shows:",
            "yes" if max(trainer.norms) < 1e-3 * config.grad_norm_clip else "no",
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as d:
        mp.spawn(
            worker,
            args=(
                2,
                os.path.join(d, "store"),
                asdict(TrainerConfig(max_steps=a.steps, fixed=a.fixed, prove=a.prove)),
            ),
            nprocs=2,
        )
