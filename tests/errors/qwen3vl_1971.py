"""
Fine-tune a toy vision-language model on visual question answering, data parallel on two CPU
processes (gloo). Annotations come from several "files" that are concatenated, as in the usual
instruction tuning recipes.

    python qwen3vl_1971.py --epochs 3
"""
import argparse
import os
import random
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

N_COLORS, GRID = 6, 4
QUESTIONS = ["top_left", "top_right", "bottom_left", "bottom_right", "count"]


def read_annotations(name, n, seed):
    """Stand-in for json.load: a list of dicts with id, image grid, question and answer."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        grid = [[rng.randrange(N_COLORS) for _ in range(GRID)] for _ in range(GRID)]
        q = rng.randrange(len(QUESTIONS)) if name == "mixed" else rng.randrange(4)
        if q == 4:
            answer = N_COLORS + min(sum(c == 0 for r in grid for c in r), 5)
        else:
            answer = grid[-1 if q >= 2 else 0][-1 if q % 2 else 0]
        rows.append(
            {"id": f"{name}-{i}", "grid": grid, "question": q, "answer": answer}
        )
    return rows


class LazySupervisedDataset(Dataset):
    def __init__(self, sources, args):
        list_data_dict = []
        for name, n, seed in sources:
            list_data_dict += read_annotations(name, n, seed)
        if not args.fixed:
            random.shuffle(list_data_dict)
        self.list_data_dict = list_data_dict

    def __len__(self):
        return len(self.list_data_dict)

    def __getitem__(self, i):
        row = self.list_data_dict[i]
        grid = torch.tensor(row["grid"])
        pixels = F.one_hot(grid, N_COLORS).permute(2, 0, 1).float()
        key = int(row["id"].split("-")[1]) + (
            0 if row["id"].startswith("pos") else 100000
        )
        return {
            "pixels": pixels + 0.1 * torch.randn_like(pixels),
            "question": row["question"],
            "answer": row["answer"],
            "key": key,
        }


class ToyVLM(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.patch = nn.Conv2d(N_COLORS, dim, 1)
        self.pos = nn.Parameter(torch.randn(1, GRID * GRID, dim) * 0.1)
        self.question = nn.Embedding(len(QUESTIONS), dim)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )
        self.head = nn.Linear(dim, 2 * N_COLORS)

    def forward(self, pixels, question):
        tokens = self.patch(pixels).flatten(2).transpose(1, 2) + self.pos
        q = self.question(question)[:, None]
        x = q + self.attn(q, tokens, tokens, need_weights=False)[0]
        x = x + self.mlp(self.norm(x))
        return self.head(x[:, 0])


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def evaluate(model, args):
    model.eval()
    rows = read_annotations("mixed", 600, seed=999)
    grid = torch.tensor([r["grid"] for r in rows])
    pixels = F.one_hot(grid, N_COLORS).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        logits = model(pixels, torch.tensor([r["question"] for r in rows]))
    answers = torch.tensor([r["answer"] for r in rows])
    model.train()
    return (
        F.cross_entropy(logits, answers).item(),
        (logits.argmax(1) == answers).float().mean().item(),
    )


# size: the whole run in one place, read from top to bottom
def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    set_seed(args.seed)
    model = ToyVLM()
    set_seed(args.seed + rank)

    dataset = LazySupervisedDataset([("pos", 400, 1), ("mixed", 560, 2)], args)
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, seed=args.seed)
    loader = DataLoader(
        dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True
    )
    ddp = DDP(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr)
    total = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=total
    )

    step, consumed = 0, []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = F.cross_entropy(
                ddp(batch["pixels"], batch["question"]), batch["answer"]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if epoch == 0:
                consumed.append(batch["key"])
            if rank == 0 and step % 15 == 0:
                print(
                    f"epoch {epoch} step {step:3d} loss {loss.item():.4f}", flush=True
                )
            step += 1
        if rank == 0:
            val_loss, acc = evaluate(model, args)
            print(
                f"epoch {epoch} done: val loss {val_loss:.4f} accuracy {acc:.3f}",
                flush=True,
            )

    if args.prove:
        mine = torch.cat(consumed)
        both = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(both, mine)
        keys = torch.cat(both)
        distinct = keys.unique().numel()
        if rank == 0:
            print(
                f"first epoch: {keys.numel()} samples read, {distinct} distinct, "
                f"dataset holds {len(dataset)}"
            )
            print(
                "fault shows:", "yes" if distinct < keys.numel() else "no", flush=True
            )
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    cli = parser.parse_args()
    mp.spawn(worker, args=(2, free_port(), cli), nprocs=2)
