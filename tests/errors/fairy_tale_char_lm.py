"""Character language model (GRU) on a made-up fairy tale corpus, DDP on two CPU processes.

The job runs in two time slots; the second goes on from the checkpoint of the first.
The warm-up + linear decay schedule is defined in optimizer steps.
"""
import argparse
import os
import random
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SEQ = 48


def corpus(seed=6, sentences=900):
    rng = random.Random(seed)
    who = [
        "the king",
        "the fox",
        "an old miller",
        "the youngest daughter",
        "a soldier",
        "the witch",
        "her brother",
    ]
    did = [
        "went to",
        "looked for",
        "dreamt of",
        "was afraid of",
        "came back from",
        "sang about",
        "sold",
    ]
    what = [
        "the castle",
        "the dark forest",
        "a golden apple",
        "the well",
        "the sea",
        "seven ravens",
        "a silver coin",
    ]
    tail = [
        "and wept",
        "and laughed",
        "until morning",
        "for three days",
        "but nobody saw it",
        "as the moon rose",
        "",
    ]
    out = []
    for _ in range(sentences):
        out.append(
            " ".join(
                w
                for w in (
                    rng.choice(who),
                    rng.choice(did),
                    rng.choice(what),
                    rng.choice(tail),
                )
                if w
            )
            + ". "
        )
    return "".join(out)


class CharDataset(Dataset):
    def __init__(self, text, stoi):
        self.ids = torch.tensor([stoi[c] for c in text])

    def __len__(self):
        return (len(self.ids) - 1) // SEQ

    def __getitem__(self, i):
        a = i * SEQ
        return self.ids[a : a + SEQ], self.ids[a + 1 : a + SEQ + 1]


class CharGRU(nn.Module):
    def __init__(self, vocab, emb=24, hidden=80):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.rnn = nn.GRU(emb, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def lr_factor(total):
    warmup = max(1, total // 8)

    def f(step):
        if step < warmup:
            return (step + 1) / warmup
        return max(0.02, (total - step) / (total - warmup))

    return f


def save_checkpoint(path, model, optimizer, scheduler, step, epoch):
    torch.save(
        {
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "step": step,
            "epoch": epoch,
        },
        path,
    )


def load_checkpoint(path, model, optimizer, scheduler, fixed):
    ckpt = torch.load(path, map_location="cpu")
    model.module.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    if fixed:
        scheduler.load_state_dict(ckpt["scheduler"])
    return ckpt["step"], ckpt["epoch"]


def run_slot(rank, world, args, path, stop_at, log):
    torch.manual_seed(args.seed)

    text = corpus()
    stoi = {c: i for i, c in enumerate(sorted(set(text)))}
    cut = int(0.9 * len(text))
    train, valid = CharDataset(text[:cut], stoi), CharDataset(text[cut:], stoi)
    sampler = DistributedSampler(
        train, world, rank, shuffle=True, seed=args.seed, drop_last=True
    )
    loader = DataLoader(train, batch_size=16, sampler=sampler, drop_last=True)

    model = DistributedDataParallel(CharGRU(len(stoi)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor(args.steps))
    criterion = nn.CrossEntropyLoss()

    step, epoch = 0, 0
    if os.path.exists(path):
        step, epoch = load_checkpoint(path, model, optimizer, scheduler, args.fixed)
        if rank == 0:
            print(f"resume from step {step}", flush=True)

    while step < stop_at:
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = criterion(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            log[step] = optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()
            step += 1
            if rank == 0 and step % 20 == 0:
                print(
                    f"step {step:4d} loss {loss.item():.4f} lr {log[step - 1]:.5f}",
                    flush=True,
                )
            if step >= stop_at:
                break
        epoch += 1

    if rank == 0:
        save_checkpoint(path, model, optimizer, scheduler, step, epoch)
        model.eval()
        with torch.no_grad():
            x, y = zip(*[valid[i] for i in range(len(valid))])
            v = criterion(
                model.module(torch.stack(x)).flatten(0, 1), torch.stack(y).flatten()
            ).item()
        print(f"valid loss {v:.4f} after step {step}", flush=True)
    dist.barrier()


def worker(rank, world, port, args, path, log):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    for stop_at in (args.steps // 2, args.steps):  # two time slots on the cluster
        run_slot(rank, world, args, path, stop_at, log)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=44)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    log = torch.zeros(args.steps + 1, dtype=torch.float64).share_memory_()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "ckpt.pt")
        mp.spawn(worker, args=(2, free_port(), args, path, log), nprocs=2)

    if args.prove:
        f = lr_factor(args.steps)
        off = max(abs(log[t].item() - args.lr * f(t)) for t in range(args.steps))
        print(
            f"largest difference between the used and the scheduled learning rate: {off:.6f}"
        )
        print("fault shows:", "yes" if off > 1e-5 else "no")


if __name__ == "__main__":
    main()
