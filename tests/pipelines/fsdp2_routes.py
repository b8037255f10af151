"""A sharded transformer (FSDP2, fully_shard) on two CPU ranks: predicts the arrival
times of buses from the stops before. Every layer is sharded, then the root; the
gradient norm is clipped and the full weights are gathered on rank 0 at the end.

    python fsdp2_routes.py --steps 30
"""

import argparse
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ranks import leave_group

LINES, STOPS = 5, 16


class ArrivalModel(nn.Module):
    """Delays and stop numbers in, the next delay out, at each stop."""

    def __init__(self, dim=48, layers=2):
        super().__init__()
        self.line = nn.Embedding(LINES, dim)
        self.stop = nn.Embedding(STOPS, dim)
        self.delay = nn.Linear(1, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.next_delay = nn.Linear(dim, 1)

    def forward(self, line, delays):
        steps = delays.shape[1]
        h = self.line(line).unsqueeze(1) + self.stop(torch.arange(steps))
        h = h + self.delay(delays.unsqueeze(-1))
        mask = nn.Transformer.generate_square_subsequent_mask(steps)
        for layer in self.layers:
            h = layer(h, src_mask=mask, is_causal=True)
        return delays + self.next_delay(self.norm(h)).squeeze(-1)


def trips(count, generator):
    """Each line loses time at stops of its own and makes up for a part of it."""
    fixed = torch.Generator().manual_seed(1)
    slow = 0.6 * torch.rand(LINES, STOPS + 1, generator=fixed)
    line = torch.randint(0, LINES, (count,), generator=generator)
    delay = 0.5 * torch.randn(count, generator=generator)
    found = []
    for stop in range(STOPS + 1):
        noise = 0.05 * torch.randn(count, generator=generator)
        delay = 0.7 * delay + slow[line, stop] + noise
        found.append(delay)
    delays = torch.stack(found, dim=1)
    return line, delays[:, :-1], delays[:, 1:]


def run(rank, world, port, args):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(args.seed)
    model = ArrivalModel()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    generator = torch.Generator().manual_seed(args.seed * 100 + rank)
    for step in range(args.steps):
        line, delays, following = trips(args.batch_size, generator)
        loss = nn.functional.mse_loss(model(line, delays), following)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
        optimizer.step()
        if step % 3 == 0 or step == args.steps - 1:
            total = norm.full_tensor().item()
            if rank == 0:
                print(
                    f"step {step} loss {loss.item():.6f} norm {total:.4f}", flush=True
                )

    state = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if rank == 0:
        whole = ArrivalModel()
        whole.load_state_dict(state)
        whole.eval()
        line, delays, following = trips(200, torch.Generator().manual_seed(0))
        with torch.no_grad():
            loss = nn.functional.mse_loss(whole(line, delays), following)
        print(f"held-out loss {loss.item():.5f}", flush=True)
    dist.barrier()
    leave_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=12)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(run, args=(2, port, args), nprocs=2)
