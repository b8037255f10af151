# Activity recognition from wrist accelerometers.
# Phase 1: masked-signal pretraining on unlabeled windows. Phase 2: fine-tune on few labels.
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ACTIVITIES = ["walk", "run", "cycle", "stairs", "sit"]
WINDOW = 128
PRETRAIN_STEPS = 80


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--steps", type=int, default=180, help="total optimizer steps, both phases"
    )
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def record_windows(n, seed):
    r = np.random.default_rng(seed)
    label = r.integers(0, len(ACTIVITIES), n)
    t = np.arange(WINDOW) / 32.0
    freq = np.array([1.8, 2.7, 1.3, 1.6, 0.15])[label] * r.normal(1, 0.06, n)
    amp = np.array([0.8, 1.6, 0.6, 0.9, 0.15])[label] * r.uniform(0.6, 1.4, n)
    harm = np.array([0.3, 0.5, 0.05, 0.7, 0.1])[label]
    x = np.zeros((n, 3, WINDOW))
    for axis in range(3):
        ph = r.uniform(0, 2 * np.pi, (n, 1))
        w = 2 * np.pi * freq[:, None] * t
        x[:, axis] = amp[:, None] * (
            np.sin(w + ph) + harm[:, None] * np.sin(2 * w + ph)
        )
    x += r.normal(0, 0.5, x.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(label)


def make_encoder():
    return nn.Sequential(
        nn.Conv1d(3, 32, 7, stride=2, padding=3),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 48, 5, stride=2, padding=2),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Conv1d(48, 64, 5, stride=2, padding=2),
        nn.BatchNorm1d(64),
        nn.ReLU(),
    )


class MaskedAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = make_encoder()
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(64, 48, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(48, 32, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose1d(32, 3, 4, 2, 1),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


class ActivityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = make_encoder()
        self.classifier = nn.Linear(64, len(ACTIVITIES))

    def forward(self, x):
        return self.classifier(self.encoder(x).mean(-1))


def pretrain(args, path, steps):
    x, _ = record_windows(2000, seed=0)
    net = nn.DataParallel(MaskedAutoencoder())
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(steps):
        xb = x[torch.randint(0, len(x), (args.batch,))]
        keep = (
            (torch.rand(len(xb), 1, WINDOW // 8) > 0.4).float().repeat_interleave(8, -1)
        )
        rec = net(xb * keep)
        loss = ((rec - xb) ** 2 * (1 - keep)).sum() / ((1 - keep).sum() * 3)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"pretrain {step:3d} loss {loss.item():.4f}")
    torch.save(net.state_dict(), path)


def load_pretrained(args, net, path):
    state = torch.load(path, map_location="cpu")
    if args.fixed:
        state = {k.removeprefix("module."): v for k, v in state.items()}
    # the decoder is not needed here and the classifier is new
    net.load_state_dict(state, strict=False)
    return net


def finetune(args, net, steps):
    x, y = record_windows(150, seed=1)
    opt = torch.optim.Adam(
        [
            {"params": net.encoder.parameters(), "lr": 1e-4},
            {"params": net.classifier.parameters(), "lr": 5e-3},
        ]
    )
    net.train()
    for step in range(steps):
        i = torch.randint(0, len(x), (args.batch,))
        loss = F.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"finetune {step:3d} loss {loss.item():.4f}")


@torch.no_grad()
def test(net):
    net.eval()
    x, y = record_windows(600, seed=2)
    return (net(x).argmax(1) == y).float().mean().item()


def main():
    args = get_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "mae.pth")
        n_pre = min(PRETRAIN_STEPS, args.steps)
        pretrain(args, path, n_pre)
        net = load_pretrained(args, ActivityNet(), path)
        if args.prove:
            first = torch.load(path)["module.encoder.0.weight"]
            same = torch.equal(net.encoder[0].weight, first)
        finetune(args, net, args.steps - n_pre)
    print(f"test accuracy {test(net):.3f}")
    if args.prove:
        print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
