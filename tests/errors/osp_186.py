"""OSP-186: the training goes on from the averaged weights.

Source: PKU-YuanGroup/Open-Sora-Plan#186. For a validation the script stores the
model's weights, copies the moving average into the model, and forgets to restore:
every validation replaces what the optimizer has learned by the average. --fixed
restores the weights.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EMAModel:
    def __init__(self, parameters, decay):
        self.shadow = [p.detach().clone() for p in parameters]
        self.decay = decay
        self.stored = None

    @torch.no_grad()
    def step(self, parameters):
        for average, parameter in zip(self.shadow, parameters):
            average.lerp_(parameter, 1 - self.decay)

    def store(self, parameters):
        self.stored = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def copy_to(self, parameters):
        for parameter, average in zip(parameters, self.shadow):
            parameter.copy_(average)

    @torch.no_grad()
    def restore(self, parameters):
        for parameter, value in zip(parameters, self.stored):
            parameter.copy_(value)
        self.stored = None


class NoisePredictor(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.time = nn.Linear(1, 32)
        self.inputs = nn.Linear(size, 32)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.out = nn.Linear(32, size)

    def forward(self, x, t):
        return self.out(self.body(self.inputs(x) + self.time(t)))


def diffusion_loss(model, clean):
    noise = torch.randn_like(clean)
    t = torch.rand(len(clean), 1)
    return nn.functional.mse_loss(model(clean + t * (noise - clean), t), noise - clean)


@torch.no_grad()
def log_validation(model, ema, clean, restore):
    ema.store(model.parameters())
    ema.copy_to(model.parameters())
    model.eval()
    loss = diffusion_loss(model, clean).item()
    model.train()
    if restore:
        ema.restore(model.parameters())
    return loss


def weights(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def curves(count):
    phase = 6.28 * torch.rand(count, 1)
    return TensorDataset(torch.sin(phase + torch.linspace(0, 6.28, 16)))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(curves(256), batch_size=32, shuffle=True)
    held_out = curves(64).tensors[0]
    model = NoisePredictor()
    ema = EMAModel(list(model.parameters()), decay=0.95)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    step = 0
    jumped = False
    while step < options.steps:
        for (clean,) in loader:
            if step == options.steps:
                break
            loss = diffusion_loss(model, clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.step(model.parameters())
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 8 == 7:
                before = weights(model)
                score = log_validation(model, ema, held_out, options.fixed)
                jumped = jumped or not torch.equal(before, weights(model))
                print(f"validation {score:.4f}", flush=True)
            step += 1
    if options.prove:
        print("fault shows:", "yes" if jumped else "no")


if __name__ == "__main__":
    main()
