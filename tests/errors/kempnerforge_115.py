"""Pretrain a small decoder in two jobs: the first is cut by the time limit of the cluster and
leaves a checkpoint, the second continues from it."""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class TokenStream:
    """Endless synthetic text; position in the stream is part of the checkpoint."""

    def __init__(self, vocab, seq, seed):
        g = torch.Generator().manual_seed(seed)
        self.vocab, self.seq = vocab, seq
        self.table = torch.randint(0, vocab, (vocab, vocab, 2), generator=g)
        self.gen = torch.Generator().manual_seed(seed + 1)

    def batch(self, n):
        rows = [
            torch.randint(0, self.vocab, (n,), generator=self.gen) for _ in range(2)
        ]
        for _ in range(self.seq - 1):
            pick = (torch.rand(n, generator=self.gen) < 0.15).long()
            rows.append(self.table[rows[-2] % 6, rows[-1], pick])
        return torch.stack(rows, 1)

    def state_dict(self):
        return {"gen": self.gen.get_state()}

    def load_state_dict(self, state):
        self.gen.set_state(state["gen"])


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.w1, self.w2 = nn.Linear(d, 3 * d, bias=False), nn.Linear(
            3 * d, d, bias=False
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x))
            .view(b, t, 3, self.h, d // self.h)
            .permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        return x + self.w2(F.silu(self.w1(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab, seq, d=64, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(seq + 1, d)
        self.blocks = nn.Sequential(*[Block(d, 4) for _ in range(layers)])
        self.norm, self.out = nn.RMSNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        return self.out(self.norm(self.blocks(x)))


def read_into(template, saved):
    """Fill a nested template from the saved tree, tensors in place."""
    for key, value in template.items():
        if key not in saved:
            continue
        if isinstance(value, dict):
            read_into(value, saved[key])
        elif isinstance(value, list):
            template[key] = [
                read_into(v, s) if isinstance(v, dict) else s
                for v, s in zip(value, saved[key])
            ]
        elif torch.is_tensor(value):
            value.detach().copy_(saved[key])
        else:
            template[key] = saved[key]
    return template


def allocate_state(optimizer):
    """Let the optimizer create its per-parameter tensors without moving a weight."""
    rates = [g["lr"] for g in optimizer.param_groups]
    for g in optimizer.param_groups:
        g["lr"] = 0.0
        for p in g["params"]:
            p.grad = torch.zeros_like(p)
    optimizer.step()
    optimizer.zero_grad()
    for g, lr in zip(optimizer.param_groups, rates):
        g["lr"] = lr


class CheckpointManager:
    def __init__(self, folder, allocate=False):
        self.path = os.path.join(folder, "last.pt")
        self.allocate = allocate

    def save(self, job, step):
        torch.save(
            {
                "model": job.model.state_dict(),
                "optimizer": job.optimizer.state_dict(),
                "scheduler": job.scheduler.state_dict(),
                "data": job.data.state_dict(),
                "step": step,
            },
            self.path,
        )

    def load(self, job):
        saved = torch.load(self.path, weights_only=False)
        if self.allocate:
            allocate_state(job.optimizer)
        template = {
            "model": job.model.state_dict(),
            "optimizer": job.optimizer.state_dict(),
        }
        read_into(template, saved)
        job.model.load_state_dict(template["model"])
        job.optimizer.load_state_dict(template["optimizer"])
        job.scheduler.load_state_dict(saved["scheduler"])
        job.data.load_state_dict(saved["data"])
        return saved["step"]


class Job:
    def __init__(self, args, seed):
        torch.manual_seed(seed)
        self.args = args
        self.data = TokenStream(args.vocab, args.seq, seed=3)
        self.model = Decoder(args.vocab, args.seq)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.05
        )
        warmup, total = 20, args.steps
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: min((s + 1) / warmup, 1.0 - 0.9 * s / total)
        )

    def loss(self, ids):
        logits = self.model(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    def train(self, first, last):
        for step in range(first, last):
            loss = self.loss(self.data.batch(self.args.batch))
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            if step % 20 == 0 or step in (first + 1, last - 1):
                print(
                    f"step {step:4d} loss {loss.item():.4f} "
                    f"lr {self.optimizer.param_groups[0]['lr']:.2e}"
                )

    def moment_norm(self):
        state = self.optimizer.state_dict()["state"]
        if not state:
            return 0.0
        return (
            torch.stack([s["exp_avg_sq"].norm() for s in state.values()]).norm().item()
        )

    @torch.no_grad()
    def evaluate(self):
        held = TokenStream(self.args.vocab, self.args.seq, seed=3)
        held.gen.manual_seed(12345)
        return self.loss(held.batch(128)).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=140)
    p.add_argument(
        "--cut", type=float, default=0.5, help="share of the steps in the first job"
    )
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--vocab", type=int, default=28)
    p.add_argument("--seq", type=int, default=24)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        checkpoints = CheckpointManager(folder, allocate=args.fixed)
        cut = int(args.steps * args.cut)
        first = Job(args, seed=0)
        first.train(0, cut)
        checkpoints.save(first, cut)
        left = first.moment_norm()
        print(
            f"-- time limit, checkpoint at step {cut}, eval loss {first.evaluate():.4f}"
        )

        second = Job(args, seed=1)
        step = checkpoints.load(second)
        found = second.moment_norm()
        print(f"-- resumed at step {step}, eval loss {second.evaluate():.4f}")
        second.train(step, args.steps)
        print(f"final eval loss {second.evaluate():.4f}")

    if args.prove:
        print(
            f"norm of the second moments: saved {left:.4e}, after loading {found:.4e}"
        )
        print("fault shows:", "yes" if abs(found - left) > 1e-6 * left else "no")


if __name__ == "__main__":
    main()
