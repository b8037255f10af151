import argparse
import torch
from torch import nn

# Bone density (g/cm2) from small x-ray crops, float16 autocast with loss scaling.


def crops(n, seed):
    g = torch.Generator().manual_seed(seed)
    density = 0.6 + 0.8 * torch.rand(n, generator=g)
    width = 3.0 + 3.0 * torch.rand(n, 1, 1, generator=g)
    tilt = 0.5 * torch.randn(n, 1, 1, generator=g)
    c = torch.arange(16).float() - 7.5
    yy, xx = torch.meshgrid(c, c, indexing="ij")
    bone = torch.exp(-(((xx + tilt * yy) / width) ** 4))
    tissue = 0.3 + 0.2 * torch.rand(n, 1, 1, generator=g)
    img = (
        tissue
        + density.view(-1, 1, 1) * bone
        + 0.1 * torch.randn(n, 16, 16, generator=g)
    )
    return img - 0.8, (density - 1.0) / 0.23


class DensityNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.patch = nn.Linear(16 * 4, width)
        self.mix = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, img):
        n = img.shape[0]
        patches = img.view(n, 4, 4, 16).flatten(2)
        h = self.patch(patches)
        h = h + self.mix(h)
        return self.head(self.norm(h).mean(1)).squeeze(1)


class AmpTrainer:
    def __init__(self, model, args):
        self.model = model
        self.args = args
        self.opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=args.init_scale)
        self.audit = []

    def norm(self):
        grads = [
            p.grad.flatten() for p in self.model.parameters() if p.grad is not None
        ]
        return torch.cat(grads).norm().item()

    def step(self, x, y):
        args = self.args
        self.opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            pred = self.model(x)
        loss = nn.functional.mse_loss(pred.float(), y)
        self.scaler.scale(loss).backward()
        raw = self.norm() / self.scaler.get_scale() if args.prove else 0.0

        if args.fixed:
            self.scaler.unscale_(self.opt)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.clip)
        else:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.clip)
            self.scaler.unscale_(self.opt)
        if args.prove:
            self.audit.append((min(raw, args.clip), self.norm()))
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item()


@torch.no_grad()
def mae(model, x, y):
    model.eval()
    err = (model(x) - y).abs().mean().item() * 0.23
    model.train()
    return err


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--lr", type=float, default=0.03)
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--init-scale", type=float, default=256.0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(64)
    x, y = crops(1500, 5)
    x_test, y_test = crops(400, 6)
    model = DensityNet()
    trainer = AmpTrainer(model, args)
    g = torch.Generator().manual_seed(12)

    print(f"before training: test mae {mae(model, x_test, y_test):.4f} g/cm2")
    total = 0.0
    for i in range(1, args.steps + 1):
        rows = torch.randint(0, len(x), (args.batch,), generator=g)
        total += trainer.step(x[rows], y[rows])
        if i % 40 == 0:
            print(
                f"{i:4d}/{args.steps}  loss {total / 40:.4f}  "
                f"test mae {mae(model, x_test, y_test):.4f}  "
                f"scale {trainer.scaler.get_scale():.0f}"
            )
            total = 0.0
    print(f"test mae {mae(model, x_test, y_test):.4f} g/cm2")

    if args.prove:
        share = [got / want for want, got in trainer.audit if want > 0]
        mean = sum(share) / len(share)
        print(f"gradient norm at the step / norm that was asked for: {mean:.4f}")
        print("fault shows:", "yes" if mean < 0.9 else "no")


if __name__ == "__main__":
    main()
