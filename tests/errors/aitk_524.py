"""Fine-tunes a small denoiser of rings; samples come from averaged weights.

After ostris/ai-toolkit, issue 524.
"""

import argparse
import copy
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval()
        for parameter in self.shadow.parameters():
            parameter.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for average, parameter in zip(self.shadow.parameters(), model.parameters()):
            average.lerp_(parameter, 1 - self.decay)


class Denoiser(nn.Module):
    def __init__(self, dim=2, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden),
            nn.SiLU(), nn.Linear(hidden, dim),
        )  # fmt: skip

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None]], 1))


def rings(count, seed):
    gen = torch.Generator().manual_seed(seed)
    angle = torch.rand(count, generator=gen) * 6.2832
    outer = (torch.rand(count, generator=gen) < 0.5).float()
    radius = 1 + outer + 0.05 * torch.randn(count, generator=gen)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


class TrainProcess:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = Denoiser()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        data = TensorDataset(rings(1024, 1))
        self.loader = DataLoader(data, args.batch_size, shuffle=True)
        self.ema = None
        self.ema_config = {"use_ema": args.use_ema, "ema_decay": args.ema_decay}
        self.step_num = 0
        if self.ema_config["use_ema"]:
            print(f"Using EMA (decay {args.ema_decay})", flush=True)

    def setup_ema(self):
        if self.ema_config["use_ema"]:
            self.ema = EMA(self.model, self.ema_config["ema_decay"])

    def hook_before_train_loop(self):
        self.model.train()

    def train_loss(self, clean):
        t = torch.rand(len(clean))
        noise = torch.randn_like(clean)
        noisy = (1 - t[:, None]) * clean + t[:, None] * noise
        return F.mse_loss(self.model(noisy, t), noise - clean)

    def hook_train_loop(self, batch):
        loss = self.train_loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update(self.model)
        return loss.item()

    def inference_model(self):
        return self.ema.shadow if self.ema is not None else self.model

    @torch.no_grad()
    def sample(self, count=256, steps=20):
        """How far samples are from the nearer ring."""
        model = self.inference_model()
        gen = torch.Generator().manual_seed(7)
        x = torch.randn(count, 2, generator=gen)
        for i in range(steps, 0, -1):
            x = x - model(x, torch.full((count,), i / steps)) / steps
        radius = x.norm(dim=1)
        return torch.minimum((radius - 1).abs(), (radius - 2).abs()).mean().item()

    def save(self, path):
        state = self.inference_model().state_dict()
        torch.save({"model": state, "step": self.step_num}, path)

    def run(self, path):
        self.hook_before_train_loop()
        while self.step_num < self.args.steps:
            for (batch,) in self.loader:
                loss = self.hook_train_loop(batch)
                if self.step_num % self.args.sample_every == 0:
                    print(
                        f"step {self.step_num} loss {loss:.4f} "
                        f"distance of samples {self.sample():.3f}",
                        flush=True,
                    )
                self.step_num += 1
                if self.step_num == self.args.steps:
                    break
        self.save(path)
        print(f"saved; distance of samples {self.sample():.3f}", flush=True)


class EmaTrainProcess(TrainProcess):
    def hook_before_train_loop(self):
        super().hook_before_train_loop()
        self.setup_ema()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument(
        "--use-ema", action=argparse.BooleanOptionalAction, default=True
    )
    parser.add_argument("--ema-decay", type=float, default=0.95)
    parser.add_argument("--sample-every", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    process = (EmaTrainProcess if args.fixed else TrainProcess)(args)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        process.run(path)
        saved = torch.load(path)["model"]
    if args.prove:
        raw = process.model.state_dict()
        apart = max((saved[key] - raw[key]).abs().max().item() for key in raw)
        print(f"saved and last weights differ by at most {apart:.6f}")
        print("fault shows:", "yes" if apart == 0 else "no", flush=True)


if __name__ == "__main__":
    main()
