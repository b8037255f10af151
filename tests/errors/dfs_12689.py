"""LoRA adaptation of a small character model, with checkpointing and --resume style restarts.

The job is cut after --restart-at steps and continued from the newest checkpoint, the way a
preempted cluster job would be.
"""
import argparse
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, CTX = 28, 24


def markov_text(length, seed, dialect):
    rng, table, local = (
        random.Random(seed),
        random.Random(1000),
        random.Random(2000 + dialect),
    )
    nxt = {
        (a, b): [table.randrange(VOCAB) for _ in range(2)]
        for a in range(VOCAB)
        for b in range(4)
    }
    if dialect:
        for key in nxt:
            if local.random() < 0.3:
                nxt[key] = [local.randrange(VOCAB) for _ in range(2)]
    out = [0, 1]
    while len(out) < length:
        out.append(rng.choices(nxt[(out[-1], out[-2] % 4)], weights=[4, 1])[0])
    return torch.tensor(out)


class CharModel(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.prev = nn.Linear(dim, dim, bias=False)
        self.fc1 = nn.Linear(dim, 3 * dim)
        self.fc2 = nn.Linear(3 * dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        e = self.emb(ids)
        last = F.pad(e, (0, 0, 1, 0))[:, :-1]
        x = e + self.prev(last)
        x = x + self.fc2(F.gelu(self.fc1(x)))
        return self.head(self.norm(x))


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha):
        super().__init__()
        self.base = base
        self.scale = alpha / r
        self.lora_A = nn.Parameter(
            torch.randn(r, base.in_features) / base.in_features**0.5
        )
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(
            F.linear(x, self.lora_A), self.lora_B
        )


def add_adapters(model, r, alpha):
    model.requires_grad_(False)
    for name in ("prev", "fc1", "fc2", "head"):
        setattr(model, name, LoRALinear(getattr(model, name), r, alpha))
    return [p for n, p in model.named_parameters() if "lora_" in n]


def lora_state_dict(model):
    return {
        k: v.detach().clone() for k, v in model.state_dict().items() if "lora_" in k
    }


class Job:
    def __init__(self, args, base_state, workdir, generation):
        self.args, self.workdir = args, workdir
        torch.manual_seed(args.seed + generation)
        self.model = CharModel()
        self.model.load_state_dict(base_state)
        self.params = add_adapters(self.model, args.rank, args.alpha)
        self.opt = torch.optim.AdamW(self.params, lr=args.lr, weight_decay=1e-2)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.opt, args.steps, eta_min=args.lr / 20
        )
        self.data = markov_text(20000, 7, dialect=1)
        self.val = markov_text(4000, 8, dialect=1)
        self.gen = torch.Generator().manual_seed(args.seed)
        self.step = 0

    def save(self):
        path = os.path.join(self.workdir, f"checkpoint-{self.step}")
        os.makedirs(path, exist_ok=True)
        torch.save(
            {
                "optimizer": self.opt.state_dict(),
                "scheduler": self.sched.state_dict(),
                "step": self.step,
                "sampler": self.gen.get_state(),
            },
            os.path.join(path, "state.pt"),
        )
        torch.save(lora_state_dict(self.model), os.path.join(path, "lora_weights.pt"))
        print(f"saved {os.path.basename(path)}")

    def resume(self):
        dirs = sorted(
            (d for d in os.listdir(self.workdir) if d.startswith("checkpoint-")),
            key=lambda d: int(d.split("-")[1]),
        )
        path = os.path.join(self.workdir, dirs[-1])
        state = torch.load(os.path.join(path, "state.pt"))
        self.opt.load_state_dict(state["optimizer"])
        self.sched.load_state_dict(state["scheduler"])
        self.gen.set_state(state["sampler"])
        self.step = state["step"]
        if self.args.fixed:
            weights = torch.load(os.path.join(path, "lora_weights.pt"))
            self.model.load_state_dict(weights, strict=False)
        print(f"resuming from {dirs[-1]}")
        return path

    def batch(self, data, gen):
        at = torch.randint(len(data) - CTX - 1, (self.args.batch_size,), generator=gen)
        rows = torch.stack([data[i : i + CTX + 1] for i in at])
        return rows[:, :-1], rows[:, 1:]

    def train(self, until):
        while self.step < until:
            x, y = self.batch(self.data, self.gen)
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.params, 1.0)
            self.opt.step()
            self.sched.step()
            if self.step % 25 == 0:
                print(
                    f"step {self.step:4d} loss {loss.item():.4f} lr {self.sched.get_last_lr()[0]:.2e}"
                )
            self.step += 1
            if self.step % self.args.checkpointing_steps == 0:
                self.save()

    @torch.no_grad()
    def evaluate(self):
        rows = self.val[:3990].view(-1, 30)
        return F.cross_entropy(
            self.model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()
        ).item()


def pretrained_base(steps=120):
    torch.manual_seed(99)
    model, data = CharModel(), markov_text(20000, 5, dialect=0)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    gen = torch.Generator().manual_seed(99)
    for _ in range(steps):
        at = torch.randint(len(data) - CTX - 1, (32,), generator=gen)
        rows = torch.stack([data[i : i + CTX + 1] for i in at])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"base model ready, loss {loss.item():.4f}")
    return model.state_dict()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--restart-at", type=int, default=150)
    ap.add_argument("--checkpointing-steps", type=int, default=50)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--rank", type=int, default=8)
    ap.add_argument("--alpha", type=float, default=16)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cut = min(
        args.restart_at,
        args.steps // 2 if args.steps < args.restart_at else args.restart_at,
    )
    args.checkpointing_steps = min(args.checkpointing_steps, max(1, cut))

    base = pretrained_base()
    with tempfile.TemporaryDirectory() as workdir:
        first = Job(args, base, workdir, generation=0)
        first.train(cut)
        print(f"interrupted at step {first.step}, val loss {first.evaluate():.4f}")
        second = Job(args, base, workdir, generation=1)
        path = second.resume()
        at_disk = torch.load(os.path.join(path, "lora_weights.pt"))
        in_model = lora_state_dict(second.model)
        gap = max(float((at_disk[k] - in_model[k]).abs().max()) for k in at_disk)
        second.train(args.steps)
        print(f"final val loss {second.evaluate():.4f}")
    if args.prove:
        print(
            f"largest |adapter in model - adapter on disk| right after the restart: {gap:.5f}"
        )
        print("fault shows:", "yes" if gap > 1e-6 else "no")


if __name__ == "__main__":
    main()
