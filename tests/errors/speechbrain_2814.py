"""Speech is learned without labels by two ranks: masked frames get codes to be guessed.

The codes come from a fixed random projection with a fixed codebook; the encoder is
trained data-parallel. speechbrain/speechbrain#2814.
"""

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BANDS, CODES = 16, 24


class RandomQuantizer(nn.Module):
    """Projects frames and gives the number of the nearest code; it never learns."""

    def __init__(self, width=8):
        super().__init__()
        self.projection = nn.Parameter(torch.randn(BANDS, width), requires_grad=False)
        codes = F.normalize(torch.randn(CODES, width), dim=1)
        self.codes = nn.Parameter(codes, requires_grad=False)

    @torch.no_grad()
    def forward(self, frames):
        return (F.normalize(frames @ self.projection, dim=-1) @ self.codes.T).argmax(-1)


class Encoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first = nn.Linear(BANDS, width)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.1)
        self.guess = nn.Linear(2 * width, CODES)

    def forward(self, frames):
        states, _ = self.rnn(F.gelu(self.first(frames)))
        return self.guess(self.dropout(states))


def speech(count, seed, length=40):
    generator = torch.Generator().manual_seed(6)
    sounds = torch.randn(10, BANDS, generator=generator)
    generator = torch.Generator().manual_seed(seed)
    spoken = torch.randint(10, (count, length // 5 + 1), generator=generator)
    frames = sounds[spoken].repeat_interleave(5, 1)[:, :length]
    noise = 0.3 * torch.randn(count, length, BANDS, generator=generator)
    return TensorDataset(frames + noise)


def masked(frames, share=0.3):
    mask = torch.rand(frames.shape[:2]) < share
    noise = 0.1 * torch.randn_like(frames)
    return torch.where(mask[:, :, None], noise, frames), mask


def wrap(modules):
    """DistributedDataParallel takes modules that have something to train only."""
    result = {}
    for name, module in modules.items():
        trains = any(p.requires_grad for p in module.parameters())
        result[name] = DistributedDataParallel(module) if trains else module
    return result


def prove(quantizer, rank):
    tables = [torch.empty_like(quantizer.projection) for _ in range(2)]
    dist.all_gather(tables, quantizer.projection.detach())
    if rank == 0:
        gap = (tables[0] - tables[1]).abs().max().item()
        print(f"the ranks' projections differ by {gap:.4f}", flush=True)
        print("fault shows:", "yes" if gap > 0 else "no", flush=True)


def train(rank, port, options):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.manual_seed(1986 if options.fixed else 1986 + rank)
    modules = wrap({"quantizer": RandomQuantizer(), "encoder": Encoder()})
    # Masks and dropout are to differ between the ranks.
    torch.manual_seed(2000 + rank)
    data = speech(768, 1)
    sampler = DistributedSampler(data, 2, rank, seed=3)
    loader = DataLoader(data, batch_size=24, sampler=sampler)
    encoder = modules["encoder"]
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=4e-3)
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for (frames,) in loader:
            if step == options.steps:
                break
            seen, mask = masked(frames)
            targets = modules["quantizer"](frames)
            loss = F.cross_entropy(encoder(seen)[mask], targets[mask])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(encoder.parameters(), 5.0)
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        epoch += 1
    if options.prove:
        prove(modules["quantizer"], rank)
    dist.barrier()
    dist.destroy_process_group()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=60)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, args=(port, options), nprocs=2)


if __name__ == "__main__":
    main()
