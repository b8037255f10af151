"""Fine-tune a bird-call classifier on 150 labelled clips, starting from a pretrained filter bank.

The "released" checkpoint is a windowed wavelet bank computed here, which stands in
for a downloaded file.
"""
import argparse
import io
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SPECIES = 6
CLIP = 256
FRAME = 32
N_FILTERS = 16


def chirps(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, SPECIES, (n,), generator=g)
    t = torch.arange(FRAME) / FRAME
    clips = 0.9 * torch.randn(n, 1, CLIP, generator=g)
    for i in range(n):
        for _ in range(4):
            at = int(torch.randint(0, CLIP - FRAME, (1,), generator=g))
            phase = 2 * math.pi * torch.rand(1, generator=g)
            f = 3.0 + 1.3 * y[i].item()
            call = torch.sin(2 * math.pi * f * t + phase) * torch.hann_window(FRAME)
            clips[i, 0, at : at + FRAME] += 1.9 * call
    return clips, y


def released_checkpoint():
    t = torch.arange(FRAME) / FRAME
    freq = torch.linspace(1.7, 10.8, N_FILTERS // 2).view(-1, 1)
    angle = 2 * math.pi * freq * t
    bank = torch.cat([torch.sin(angle), torch.cos(angle)]) * torch.hann_window(FRAME)
    bank = bank / bank.norm(dim=1, keepdim=True)
    state = {"stem.weight": bank.unsqueeze(1), "stem.bias": torch.zeros(N_FILTERS)}
    buf = io.BytesIO()
    torch.save(state, buf)
    buf.seek(0)
    return buf


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, N_FILTERS, FRAME, stride=2)
        self.norm = nn.BatchNorm1d(N_FILTERS)
        self.fc1 = nn.Linear(2 * N_FILTERS, 32)
        self.fc2 = nn.Linear(32, SPECIES)

    def forward(self, x):
        h = self.norm(torch.log1p(self.stem(x).square()))
        h = torch.cat([h.mean(-1), h.std(-1)], dim=1)
        return self.fc2(F.dropout(F.relu(self.fc1(h)), 0.2, self.training))


def init_weights(m):
    if isinstance(m, (nn.Conv1d, nn.Linear)):
        nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        nn.init.zeros_(m.bias)


def build_model(checkpoint, fixed):
    model = CallNet()
    state = torch.load(checkpoint)
    if fixed:
        model.apply(init_weights)
    result = model.load_state_dict(state, strict=False)
    print(
        "loaded",
        len(state),
        "tensors; left to train from scratch:",
        len(result.missing_keys),
    )
    if not fixed:
        model.apply(init_weights)
    return model, state


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=25)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(17)
    model, state = build_model(released_checkpoint(), args.fixed)
    at_start = model.stem.weight.detach().clone()

    x, y = chirps(150, seed=600)
    xt, yt = chirps(400, seed=700)

    optimizer = torch.optim.AdamW(
        [
            {"params": model.stem.parameters(), "lr": 2e-4},
            {
                "params": [
                    p for n, p in model.named_parameters() if not n.startswith("stem")
                ],
                "lr": 4e-3,
            },
        ],
        weight_decay=1e-2,
    )
    gen = torch.Generator().manual_seed(18)

    for epoch in range(args.epochs):
        model.train()
        losses = []
        for idx in torch.randperm(len(x), generator=gen).split(30):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if epoch % 4 == 0 or epoch == args.epochs - 1:
            print(
                f"epoch {epoch:3d} loss {sum(losses) / len(losses):.4f} "
                f"test acc {accuracy(model, xt, yt):.3f}"
            )

    if args.prove:
        diff = (at_start - state["stem.weight"]).abs().max().item()
        print(
            f"stem weights before the first step, max distance to the checkpoint: {diff:.5f}"
        )
        print("fault shows:", "yes" if diff > 1e-6 else "no")


if __name__ == "__main__":
    main()
