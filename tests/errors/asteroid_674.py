"""Two-process training of a small speech-enhancement style network (SI-SDR objective)."""
import argparse
import copy
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SR, LEN = 1000, 192


class Mixtures(Dataset):
    """Harmonic "voices" mixed with an interfering voice (single) or with voice and noise (both)."""

    def __init__(self, n_voices, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(LEN) / SR
        self.items = []
        for _ in range(n_voices):
            clean = self._voice(t, 60.0, 120.0, g)
            rival = self._voice(t, 180.0, 340.0, g)
            for condition in ("both", "single"):
                mix = clean + 0.8 * rival
                if condition == "both":
                    mix = mix + 1.2 * torch.randn(LEN, generator=g)
                self.items.append((mix, clean))

    @staticmethod
    def _voice(t, low, high, g):
        f0 = low + (high - low) * torch.rand(1, generator=g)
        out = torch.zeros(LEN)
        for k in range(1, 4):
            amp = torch.rand(1, generator=g) / k
            out += amp * torch.sin(
                2 * torch.pi * k * f0 * t + 6.28 * torch.rand(1, generator=g)
            )
        return out / out.pow(2).mean().sqrt()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Masker(nn.Module):
    def __init__(self, n_filters=32, kernel=32, stride=8):
        super().__init__()
        self.enc = nn.Conv1d(
            1, n_filters, kernel, stride, padding=kernel // 2, bias=False
        )
        self.norm = nn.GroupNorm(1, n_filters)
        self.body = nn.Sequential(
            nn.Conv1d(n_filters, 32, 3, padding=1),
            nn.PReLU(),
            nn.Conv1d(32, 32, 3, padding=2, dilation=2),
            nn.PReLU(),
            nn.Conv1d(32, n_filters, 1),
            nn.Sigmoid(),
        )
        self.dec = nn.ConvTranspose1d(
            n_filters, 1, kernel, stride, padding=kernel // 2, bias=False
        )

    def forward(self, x):
        h = self.enc(x[:, None])
        return self.dec(h * self.body(self.norm(h)))[:, 0]


def neg_si_sdr(est, ref):
    est = est - est.mean(-1, keepdim=True)
    ref = ref - ref.mean(-1, keepdim=True)
    proj = (
        (est * ref).sum(-1, keepdim=True)
        / (ref.pow(2).sum(-1, keepdim=True) + 1e-8)
        * ref
    )
    ratio = proj.pow(2).sum(-1) / ((est - proj).pow(2).sum(-1) + 1e-8)
    return -10 * torch.log10(ratio + 1e-8)


class EarlyStopping:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.wait = float("inf"), 0

    def step(self, value):
        improved = value < self.best - self.min_delta
        if improved:
            self.best, self.wait = value, 0
        else:
            self.wait += 1
        return improved, self.wait >= self.patience


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total, count = 0.0, 0
    for mix, clean in loader:
        total += neg_si_sdr(model(mix), clean).sum().item()
        count += len(mix)
    model.train()
    return torch.tensor([total, float(count)])


# size: the whole run in one place, read from top to bottom
def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)

    train_set, val_set, test_set = Mixtures(96, 1), Mixtures(20, 2), Mixtures(48, 3)
    train_sampler = DistributedSampler(
        train_set, world, rank, shuffle=True, seed=args.seed
    )
    val_sampler = DistributedSampler(val_set, world, rank, shuffle=False)
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, sampler=train_sampler, drop_last=True
    )
    val_loader = DataLoader(val_set, batch_size=24, sampler=val_sampler)

    net = Masker()
    model = DistributedDataParallel(net)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    stopper = EarlyStopping(args.patience, args.min_delta)
    best_state, step, gaps = None, 0, []

    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        running = 0.0
        for mix, clean in train_loader:
            loss = neg_si_sdr(model(mix), clean).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            running += loss.item()
            step += 1
        sums = validate(net, val_loader)
        if args.fixed:
            dist.all_reduce(sums)
        val_loss = (sums[0] / sums[1]).item()
        if args.prove:
            everyone = sums.clone()
            dist.all_reduce(everyone)
            gaps.append(abs(val_loss - (everyone[0] / everyone[1]).item()))
        improved, stop = stopper.step(val_loss)
        if improved:
            best_state = copy.deepcopy(net.state_dict())
        decision = torch.tensor([float(stop)])
        dist.broadcast(decision, src=0)
        if rank == 0:
            print(
                f"epoch {epoch:2d} step {step:4d} train {running / len(train_loader):8.3f} val_loss {val_loss:8.3f}"
                f"{'  * best' if improved else ''}",
                flush=True,
            )
        if decision.item() > 0:
            if rank == 0:
                print(f"early stop after epoch {epoch} (step {step})", flush=True)
            break

    if rank == 0:
        net.load_state_dict(best_state)
        s = validate(net, DataLoader(test_set, batch_size=32))
        print(f"test SI-SDR {-(s[0] / s[1]).item():.3f} dB", flush=True)
        if args.prove:
            print(
                f"largest distance between val_loss and the loss over the whole validation set: {max(gaps):.4f} dB"
            )
            print("fault shows:", "yes" if max(gaps) > 1e-3 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=16)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--patience", type=int, default=2)
    ap.add_argument("--min-delta", type=float, default=0.02)
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(2, port, args), nprocs=2)


if __name__ == "__main__":
    main()
