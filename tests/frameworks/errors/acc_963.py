"""ACC-963: the schedule of the rate moves with every batch, not with every update.

Source: huggingface/accelerate#963. Gradients are accumulated over four batches, and
the scheduler steps each time, whether the optimizer stepped or not: warm-up and decay
pass four times as fast, and the rate is 0 after a quarter of the training. Accelerate's
own wrapper does so no more; a scheduler that was left out of prepare(), as here, still
does. --fixed prepares it.
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_linear_schedule_with_warmup

ACCUMULATE, RATE, WARMUP = 4, 4e-3, 4


class GaitNet(nn.Module):
    def __init__(self, channels=4, width=32, kinds=5):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, width, 5, padding=2),
            nn.GroupNorm(4, width),
            nn.SiLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GroupNorm(4, width),
            nn.SiLU(),
        )
        self.head = nn.Linear(width, kinds)

    def forward(self, x):
        return self.head(self.body(x).mean(-1))


def gaits(count, kinds=5, length=48):
    kind = torch.randint(kinds, (count,))
    pace = 0.25 + 0.15 * kind + 0.03 * torch.randn(count)
    t = torch.arange(length)
    phase = 6.28 * torch.rand(count, 1)
    wave = torch.stack(
        [torch.sin((1 + c) * pace[:, None] * t + (1 + c) * phase) for c in range(4)], 1
    )
    return TensorDataset(wave + 0.5 * torch.randn(wave.shape), kind)


def train(options, accelerator):
    model = GaitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, WARMUP, options.steps)
    loader = DataLoader(gaits(960), batch_size=16, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if options.fixed:
        schedule = accelerator.prepare(schedule)
    rates, losses = [], []
    while True:
        for signal, kind in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(signal), kind)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            if accelerator.sync_gradients:
                mean = sum(losses) / len(losses)
                print(f"step {len(rates) - 1} loss {mean:.4f}", flush=True)
                losses.clear()
                if len(rates) == options.steps:
                    return model, rates


def planned(step, steps):
    if step < WARMUP:
        return RATE * step / WARMUP
    return RATE * (steps - step) / max(1, steps - WARMUP)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    model, rates = train(options, accelerator)
    signal, kind = gaits(400).tensors
    with torch.no_grad():
        right = (model.eval()(signal).argmax(-1) == kind).float().mean().item()
    print(f"accuracy {right:.3f}")
    if options.prove:
        plan = [planned(step, options.steps) for step in range(options.steps)]
        off = max(abs(a - b) for a, b in zip(rates, plan))
        print("fault shows:", "yes" if off > 0.1 * RATE else "no")


if __name__ == "__main__":
    main()
