# Flow-matching model on streamed "video latents": prompt id -> motion code.
import argparse
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FRAMES, CH, PROMPTS = 6, 4, 24


class LatentShards:
    """Stands for a remote bucket that is read record by record."""

    def __init__(self, total, seed):
        self.total, self.seed = total, seed
        g = torch.Generator().manual_seed(seed)
        self.start = torch.randn(PROMPTS, CH, generator=g)
        self.speed = torch.randn(PROMPTS, CH, generator=g) * 0.4

    def read(self, i):
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        prompt = int(torch.randint(PROMPTS, (1,), generator=g))
        t = torch.arange(FRAMES)[:, None].float()
        latent = (
            self.start[prompt]
            + self.speed[prompt] * t
            + 0.3 * torch.randn(FRAMES, CH, generator=g)
        )
        return {"index": i, "prompt": prompt, "latent": latent}


class StreamingLatents(IterableDataset):
    def __init__(self, bucket, partition):
        self.bucket, self.partition = bucket, partition

    def __iter__(self):
        records = range(self.bucket.total)
        info = get_worker_info()
        if self.partition and info is not None:
            records = itertools.islice(records, info.id, None, info.num_workers)
        for i in records:
            yield self.bucket.read(i)


class Preprocessing(IterableDataset):
    def __init__(self, source, mean, std):
        self.source, self.mean, self.std = source, mean, std

    def __iter__(self):
        for rec in self.source:
            yield {**rec, "latent": (rec["latent"] - self.mean) / self.std}


class VelocityNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.prompt = nn.Embedding(PROMPTS, width)
        self.time = nn.Sequential(
            nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.inp = nn.Linear(FRAMES * CH, width)
        self.mid = nn.ModuleList(
            [
                nn.Sequential(
                    nn.LayerNorm(width),
                    nn.Linear(width, 2 * width),
                    nn.SiLU(),
                    nn.Linear(2 * width, width),
                )
                for _ in range(2)
            ]
        )
        self.out = nn.Linear(width, FRAMES * CH)

    def forward(self, x, t, prompt):
        h = self.inp(x.flatten(1)) + self.prompt(prompt) + self.time(t[:, None])
        for m in self.mid:
            h = h + m(h)
        return self.out(h).view_as(x)


def flow_loss(model, latent, prompt, g=None):
    noise = torch.randn(latent.shape, generator=g)
    t = torch.rand(len(latent), generator=g)
    mixed = (1 - t)[:, None, None] * latent + t[:, None, None] * noise
    return (model(mixed, t, prompt) - (noise - latent)).pow(2).mean()


@torch.no_grad()
def sample(model, prompt, n_steps=12):
    g = torch.Generator().manual_seed(77)
    x = torch.randn(len(prompt), FRAMES, CH, generator=g)
    for k in range(n_steps):
        t = torch.full((len(prompt),), 1 - k / n_steps)
        x = x - model(x, t, prompt) / n_steps
    return x


def cycle_batches(loader, record):
    while True:
        for batch in loader:
            record.append(batch["index"].tolist())
            yield batch


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch_size", type=int, default=16)
    ap.add_argument("--num_workers", type=int, default=2)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    bucket = LatentShards(total=960, seed=9)
    probe = torch.stack([bucket.read(i)["latent"] for i in range(64)])
    mean, std = probe.mean((0, 1)), probe.std((0, 1))
    stream = Preprocessing(StreamingLatents(bucket, partition=args.fixed), mean, std)
    loader = DataLoader(
        stream, batch_size=args.batch_size, num_workers=args.num_workers
    )

    held_out = LatentShards(total=0, seed=9)
    val = [held_out.read(i) for i in range(5000, 5256)]
    val_latent = (torch.stack([r["latent"] for r in val]) - mean) / std
    val_prompt = torch.tensor([r["prompt"] for r in val])

    model = VelocityNet()
    opt = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=1e-3
    )
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=args.steps)

    record, running = [], 0.0
    batches = cycle_batches(loader, record)
    for step in range(args.steps):
        batch = next(batches)
        loss = flow_loss(model, batch["latent"], batch["prompt"])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        running += loss.item()
        if (step + 1) % 15 == 0:
            with torch.no_grad():
                v = flow_loss(
                    model, val_latent, val_prompt, torch.Generator().manual_seed(0)
                ).item()
            print(f"step {step + 1:4d} | loss {running / 15:.4f} | val loss {v:.4f}")
            running = 0.0
    batches.close()

    made = sample(model, torch.arange(PROMPTS)) * std + mean
    t = torch.arange(FRAMES)[None, :, None].float()
    want = bucket.start[:, None] + bucket.speed[:, None] * t
    print(
        f"generated motion, rmse to the prompt's trajectory: {(made - want).pow(2).mean().sqrt().item():.4f}"
    )

    if args.prove:
        steps_per_pass = bucket.total // args.batch_size
        drawn = [i for b in record[:steps_per_pass] for i in b]
        distinct = len(set(drawn))
        print(
            f"first {len(record[:steps_per_pass])} batches: {len(drawn)} records read, {distinct} distinct"
        )
        print("batch 0 ids", record[0][:4], "... batch 1 ids", record[1][:4], "...")
        print("fault shows:", "yes" if distinct < len(drawn) else "no")


if __name__ == "__main__":
    main()
