"""Forecasts the power of wind turbines (MLP mixer over sensors and hours) with
DeepSpeed on two ranks: ZeRO stage 1 over gloo on the CPU, gradients accumulated and
clipped by the engine, its warm-up and decay of the rate, and a checkpoint that is
written halfway and read into a second engine at the end.

    python deepspeed_turbines.py --steps 40
"""

import argparse
import os
import socket
import tempfile

import deepspeed
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

HOURS, SENSORS, WORLD, MICRO, ACCUMULATE = 24, 8, 2, 16, 2

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo, no compiler


def config(steps):
    schedule = {
        "warmup_min_lr": 0.0,
        "warmup_max_lr": 4e-3,
        "warmup_num_steps": max(2, steps // 8),
        "warmup_type": "linear",
        "total_num_steps": steps,
    }
    return {
        "train_micro_batch_size_per_gpu": MICRO,
        "gradient_accumulation_steps": ACCUMULATE,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 1},
        "scheduler": {"type": "WarmupDecayLR", "params": schedule},
        "steps_per_print": 1000000,
    }


def turbines(count, seed):
    rng = torch.Generator().manual_seed(seed)
    weather = torch.randn(count, SENSORS, 1, generator=rng)
    drift = 0.3 * torch.randn(count, SENSORS, HOURS, generator=rng).cumsum(2)
    sensors = weather + drift
    wind = 1.5 + sensors[:, 0, -6:].mean(1) + 0.3 * sensors[:, 1].mean(1)
    power = wind.clamp(0, 3) ** 2 / 3 + 0.4 * torch.tanh(sensors[:, 2, -1])
    return TensorDataset(sensors, power + 0.05 * torch.randn(count, generator=rng))


class MixerBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_sensors = nn.Sequential(
            nn.Linear(SENSORS, 32), nn.GELU(), nn.Linear(32, SENSORS)
        )
        self.over_width = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.over_sensors(self.before(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_width(self.after(x))


class Mixer(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.inside = nn.Linear(HOURS, width)
        self.blocks = nn.Sequential(*(MixerBlock(width) for _ in range(depth)))
        self.outside = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, sensors):
        return self.outside(self.blocks(self.inside(sensors)).mean(1)).squeeze(1)


def engine_for(steps):
    model = Mixer()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.02}]
    groups.append({"params": rest, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=4e-3)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config(steps))[
        0
    ]


@torch.no_grad()
def validate(engine, held_out, rank):
    """Mean squared error over both ranks' shares."""
    engine.eval()
    sensors, power = (part[rank::WORLD] for part in held_out.tensors)
    total = (engine(sensors) - power).square().sum()
    dist.all_reduce(total)
    engine.train()
    return total.item() / len(held_out)


def train(engine, data, held_out, rank, args, folder):
    sampler = DistributedSampler(data, WORLD, rank, seed=args.seed)
    loader = DataLoader(data, MICRO, sampler=sampler, drop_last=True)
    epoch = 0
    while engine.global_steps < args.steps:
        sampler.set_epoch(epoch)
        for sensors, power in loader:
            loss = nn.functional.mse_loss(engine(sensors), power)
            engine.backward(loss)
            last = engine.is_gradient_accumulation_boundary()
            engine.step()
            if last and engine.global_steps == args.steps // 2:
                engine.save_checkpoint(folder, tag="half")
            if last and engine.global_steps == args.steps:
                break
        epoch += 1
        error, rate = validate(engine, held_out, rank), engine.get_lr()[0]
        if rank == 0:
            line = f"step {engine.global_steps} loss {loss.item():.4f}"
            print(f"{line} val {error:.4f} lr {rate:.2e}", flush=True)


def work(rank, args, port, folder):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    deepspeed.init_distributed("gloo")
    torch.manual_seed(args.seed)
    data, held_out = turbines(640, 1), turbines(256, 2)
    engine = engine_for(args.steps)
    train(engine, data, held_out, rank, args, folder)
    second = engine_for(args.steps)
    second.load_checkpoint(folder, tag="half")
    error = validate(second, held_out, rank)
    if rank == 0:
        print(f"checkpoint of step {second.global_steps}: val {error:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=13)
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (arguments, port, folder), nprocs=WORLD)
