"""A variational autoencoder for binary images: the weight of the divergence grows
in, samples are drawn between epochs, an average of the weights is what is saved.

    python vae.py --steps 100
"""

import argparse
import io
import time

import torch
from torch import nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset, random_split

SIDE = 28


class VAE(nn.Module):
    def __init__(self, hidden, latent):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(SIDE * SIDE, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
        )
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decode = nn.Sequential(
            nn.Linear(latent, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, SIDE * SIDE),
        )

    def forward(self, x):
        h = self.encode(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(z), mean, log_variance


def boxes(count, generator):
    """Filled rectangles."""
    grid = torch.arange(SIDE)
    edges = torch.randint(2, SIDE - 2, (4, count), generator=generator)
    top, bottom = edges[:2].sort(0).values
    left, right = edges[2:].sort(0).values
    rows = (grid >= top[:, None]) & (grid <= bottom[:, None])
    columns = (grid >= left[:, None]) & (grid <= right[:, None])
    return (rows[:, :, None] & columns[:, None, :]).float().flatten(1)


def bound(output, x, beta):
    logits, mean, log_variance = output
    shape = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean**2 - log_variance.exp())
    return (shape + beta * divergence) / len(x)


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    data = TensorDataset(boxes(60 * options.batch_size, torch.Generator().manual_seed(options.seed)))  # fmt: skip
    train, held = random_split(data, [0.95, 0.05])
    loader = DataLoader(train, batch_size=options.batch_size, shuffle=True)
    held_loader = DataLoader(held, batch_size=options.batch_size)
    model = VAE(options.hidden, 20)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, times = 0, [time.perf_counter()]
    while step < options.steps:
        for (x,) in loader:
            beta = min(1.0, step / 50)
            loss = bound(model(x), x, beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            print(f"step {step} loss {loss.item().hex()}", flush=True)
            times.append(time.perf_counter())
            step += 1
            if step == options.steps:
                break
        average.eval()
        with torch.inference_mode():
            losses = [bound(average(x), x, 1.0).item() for (x,) in held_loader]
            samples = torch.sigmoid(average.module.decode(torch.randn(16, 20)))
        print(f"held {sum(losses) / len(losses):.6f} ink {samples.mean():.6f}")
    torch.save(average.module.state_dict(), io.BytesIO())
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
