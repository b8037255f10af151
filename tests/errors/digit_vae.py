import argparse

import torch
from torch import nn
from torch.nn import functional as F

# Small VAE on 12x12 stroke pictures. Follows the classic PyTorch example with a
# KL warm-up and an exponential average of the weights for sampling.

parser = argparse.ArgumentParser(description="stroke VAE")
parser.add_argument("--steps", type=int, default=250, metavar="N")
parser.add_argument("--latent", type=int, default=6)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()
torch.manual_seed(1)

SIDE = 12


def strokes(n):
    """Binary pictures with one horizontal, vertical or diagonal stroke."""
    x = torch.zeros(n, SIDE, SIDE)
    kind = torch.randint(0, 3, (n,))
    pos = torch.randint(2, SIDE - 2, (n,))
    length = torch.randint(5, SIDE, (n,))
    for i in range(n):
        p, m = pos[i].item(), length[i].item()
        if kind[i] == 0:
            x[i, p : p + 2, :m] = 1
        elif kind[i] == 1:
            x[i, :m, p : p + 2] = 1
        else:
            for k in range(m):
                x[i, k, min(SIDE - 1, max(0, k + p - 6))] = 1
    flip = torch.rand(n, SIDE, SIDE) < 0.02
    return torch.where(flip, 1 - x, x).view(n, -1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(SIDE * SIDE, 128)
        self.fc_mu = nn.Linear(128, args.latent)
        self.fc_logvar = nn.Linear(128, args.latent)
        self.fc3 = nn.Linear(args.latent, 128)
        self.fc4 = nn.Linear(128, SIDE * SIDE)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar):
        if args.fixed:
            std = torch.exp(0.5 * logvar)
        else:
            std = torch.exp(logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return self.fc4(F.relu(self.fc3(z)))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(x)
    return bce, kld


train_x, test_x = strokes(4000), strokes(500)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
average = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
)


def test(step):
    model.eval()
    with torch.no_grad():
        logits, mu, logvar = model(test_x)
        bce, kld = elbo_terms(logits, test_x, mu, logvar)
    print(
        f"====> step {step} test bce {bce.item():.2f} kld {kld.item():.2f} elbo {-(bce + kld).item():.2f}"
    )
    model.train()


step = 0
model.train()
while step < args.steps:
    for batch in train_x[torch.randperm(len(train_x))].split(args.batch_size):
        beta = min(1.0, 0.1 + step / 100)
        logits, mu, logvar = model(batch)
        bce, kld = elbo_terms(logits, batch, mu, logvar)
        loss = bce + beta * kld
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        step += 1
        if step % 25 == 0:
            print(
                f"step {step:4d} loss {loss.item():.2f} (bce {bce.item():.2f}, kld {kld.item():.2f}, beta {beta:.2f})"
            )
        if step >= args.steps:
            break
    test(step)

with torch.no_grad():
    samples = torch.sigmoid(average.module.decode(torch.randn(64, args.latent)))
    print(
        f"ink in the samples {samples.mean().item():.3f}, in the data {train_x.mean().item():.3f}"
    )

    if args.prove:
        mu, logvar = model.encode(test_x[:50])
        z = torch.stack([model.reparameterize(mu, logvar) for _ in range(3000)])
        ratio = z.var(0).log().sub(logvar).abs().mean().item()
        print(f"mean |log sampled variance - logvar|: {ratio:.4f}")
        print("fault shows:", "yes" if ratio > 0.04 else "no")
