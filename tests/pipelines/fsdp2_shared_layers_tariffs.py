"""Sorts customs declarations into chapters of the tariff with an encoder whose three
layers are one and the same (ALBERT fashion), sharded over two ranks by fully_shard.
Two micro-batches make a step, gradients are reduced in the second only; every rank
evaluates its half and the answers are gathered as Python objects.

    python fsdp2_shared_layers_tariffs.py --steps 100
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard

VOCABULARY, CHAPTERS, LENGTH, PAD = 90, 6, 14, 0


def declarations(count, seed):
    """Words 1 to 30 belong to the chapters, five each; the others say nothing. The
    chapter is that of the words which occur twice."""
    g = torch.Generator().manual_seed(seed)
    words = torch.randint(31, VOCABULARY, (count, LENGTH), generator=g)
    chapter = torch.randint(0, CHAPTERS, (count,), generator=g)
    other = (chapter + torch.randint(1, CHAPTERS, (count,), generator=g)) % CHAPTERS
    length = torch.randint(8, LENGTH + 1, (count,), generator=g)
    for i in range(count):
        places = torch.randperm(int(length[i]), generator=g)[:3]
        kinds = torch.tensor([chapter[i], chapter[i], other[i]])
        words[i, places] = 1 + 5 * kinds + torch.randint(0, 5, (3,), generator=g)
        words[i, length[i] :] = PAD
    return words, chapter


class SharedStack(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.depth = depth
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )

    def forward(self, x, padding):
        for _ in range(self.depth):
            x = self.layer(x, src_key_padding_mask=padding)
        return x


class TariffNet(nn.Module):
    def __init__(self, width=32, narrow=12, depth=3):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, narrow, padding_idx=PAD)
        self.widen = nn.Linear(narrow, width)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.stack = SharedStack(width, depth)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CHAPTERS)

    def forward(self, words):
        padding = words == PAD
        x = self.widen(self.words(words)) + self.position
        x = self.norm(self.stack(x, padding))
        real = (~padding).unsqueeze(2).float()
        return self.head((x * real).sum(1) / real.sum(1))


@torch.no_grad()
def evaluate(model, words, chapter, rank, world):
    """Accuracy over all declarations; ranks have equally many batches, as each batch
    gathers parameters."""
    model.eval()
    answers = []
    for x, y in zip(words[rank::world].split(50), chapter[rank::world].split(50)):
        answers += list(zip(model(x).argmax(1).tolist(), y.tolist()))
    model.train()
    everything = [None] * world
    dist.all_gather_object(everything, answers)
    pairs = [pair for part in everything for pair in part]
    return sum(a == b for a, b in pairs) / len(pairs)


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
    model = TariffNet()
    fully_shard(model.stack, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=10)
    criterion = nn.CrossEntropyLoss()
    words, chapter = declarations(2000, seed=1)
    val_words, val_chapter = declarations(400, seed=2)

    shuffle = torch.Generator().manual_seed(args.seed)
    order = torch.empty(0, dtype=torch.long)
    for step in range(args.steps):
        if len(order) < args.batch_size:
            order = torch.randperm(len(words), generator=shuffle)
        batch, order = order[: args.batch_size], order[args.batch_size :]
        micro = batch[rank::world].chunk(2)
        total = torch.zeros(())
        for i, rows in enumerate(micro):
            model.set_requires_gradient_sync(i == len(micro) - 1)
            loss = criterion(model(words[rows]), chapter[rows]) / len(micro)
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        warmup.step()
        dist.all_reduce(total)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {total.item() / world:.6f}", flush=True)
        if (step + 1) % 50 == 0 or step + 1 == args.steps:
            accuracy = evaluate(model, val_words, val_chapter, rank, world)
            if rank == 0:
                print(f"  step {step} accuracy {accuracy:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64, help="of both ranks")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(2, port, args), nprocs=2)
