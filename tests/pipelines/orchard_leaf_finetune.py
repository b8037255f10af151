"""
Fine-tune a small backbone on leaf diseases.

Stage 0: pretrain the backbone on a big(ger) generic task (texture classes).
Stage 1: new head, backbone frozen.
Stage 2: last backbone stage is unfrozen with a smaller learning rate.
"""
import argparse
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F


def texture_images(n, n_classes, g, kind):
    """gratings with class dependent frequency/orientation (+ spots for the leaves)"""
    y = torch.randint(0, n_classes, (n,), generator=g)
    grid = torch.linspace(-1, 1, 20)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    angle = (y.float() / n_classes * 3.14159).view(-1, 1, 1)
    freq = (4 + 3 * (y % 3).float()).view(-1, 1, 1)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    wave = torch.sin(freq * (xx * angle.cos() + yy * angle.sin()) + phase)
    img = torch.stack([wave, 0.5 * wave, -0.3 * wave], 1)
    if kind == "leaf":
        img = img + torch.tensor([-0.2, 0.6, -0.2]).view(1, 3, 1, 1)
        cx, cy = torch.rand(2, n, 1, 1, generator=g) * 1.4 - 0.7
        spot = ((xx - cx) ** 2 + (yy - cy) ** 2 < 0.06).float().unsqueeze(1)
        img = img * (1 - spot) + spot * torch.tensor([0.6, 0.3, 0.1]).view(1, 3, 1, 1)
    return img + 0.5 * torch.randn(img.shape, generator=g), y


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()
    )


class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.backbone = nn.Sequential(
            OrderedDict(
                stem=conv_bn(3, 12),
                stage1=conv_bn(12, 24, 2),
                stage2=conv_bn(24, 32, 2),
                pool=nn.AdaptiveAvgPool2d(1),
                flat=nn.Flatten(),
            )
        )
        self.head = nn.Linear(32, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def batches(x, y, bs, g):
    perm = torch.randperm(len(x), generator=g)
    for i in range(0, len(x), bs):
        idx = perm[i : i + bs]
        yield x[idx], y[idx]


def set_frozen(module, frozen):
    for p in module.parameters():
        p.requires_grad_(not frozen)


def train_mode(model):
    """train() for what is trained; frozen parts keep their running statistics"""
    model.train()
    for m in model.modules():
        own = list(m.parameters(recurse=False))
        if isinstance(m, nn.BatchNorm2d) and not any(p.requires_grad for p in own):
            m.eval()


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def run_epochs(model, opt, x, y, xv, yv, epochs, g, tag, bs=32):
    for ep in range(epochs):
        train_mode(model)
        tot = 0.0
        for xb, yb in batches(x, y, bs, g):
            opt.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            opt.step()
            tot += loss.item() * len(xb)
        print(
            f"[{tag}] epoch {ep + 1} loss {tot / len(x):.4f} val acc {accuracy(model, xv, yv):.3f}"
        )


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=4, help="epochs of each stage")
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


def main():
    opts = parse_args()
    torch.manual_seed(opts.seed)
    g = torch.Generator().manual_seed(opts.seed)

    # ---- stage 0
    px, py = texture_images(800, 10, g, "generic")
    pxv, pyv = texture_images(200, 10, g, "generic")
    source = Net(10)
    run_epochs(
        source,
        torch.optim.Adam(source.parameters(), lr=3e-3),
        px,
        py,
        pxv,
        pyv,
        opts.epochs,
        g,
        "pretrain",
    )
    weights = {
        k: v for k, v in source.state_dict().items() if not k.startswith("head.")
    }

    # ---- stage 1
    lx, ly = texture_images(320, 6, g, "leaf")
    lxv, lyv = texture_images(160, 6, g, "leaf")
    lxt, lyt = texture_images(160, 6, g, "leaf")
    model = Net(6)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) == {"head.weight", "head.bias"} and not unexpected, (
        missing,
        unexpected,
    )

    set_frozen(model.backbone, True)
    trainable = [n for n, p in model.named_parameters() if p.requires_grad]
    print("stage 1 trains", trainable)
    opt = torch.optim.AdamW(model.head.parameters(), lr=1e-2, weight_decay=1e-4)
    before = {k: v.clone() for k, v in model.backbone.state_dict().items()}
    run_epochs(model, opt, lx, ly, lxv, lyv, opts.epochs, g, "head")
    assert all(
        torch.equal(v, before[k]) for k, v in model.backbone.state_dict().items()
    )

    # ---- stage 2
    set_frozen(model.backbone.stage2, False)
    for group in opt.param_groups:
        group["lr"] = 3e-3
    opt.add_param_group(
        {"params": list(model.backbone.stage2.parameters()), "lr": 1e-3}
    )
    n_train = sum(p.numel() for p in model.parameters() if p.requires_grad)
    n_opt = sum(p.numel() for gr in opt.param_groups for p in gr["params"])
    assert n_train == n_opt
    n_all = sum(p.numel() for p in model.parameters())
    print(f"stage 2 trains {n_train} of {n_all} parameters")
    run_epochs(model, opt, lx, ly, lxv, lyv, opts.epochs * 2, g, "stage2+head")

    print(f"test acc {accuracy(model, lxt, lyt):.3f}")


if __name__ == "__main__":
    main()
