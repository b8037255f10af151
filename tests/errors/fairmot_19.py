"""Joint detection and re-identification on toy frames. One network, heatmap head + identity head,
losses balanced with two learned uncertainties (Kendall et al.)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Opt:
    num_ids = 20
    size = 32
    down = 2
    per_frame = 3
    batch_size = 12
    lr = 2e-3
    reid_dim = 24
    lr_step = 0.8


def identity_patterns(n, gen):
    return torch.rand(n, 3, 5, 5, generator=gen)


def make_batch(patterns, opt, gen):
    s, d = opt.size, opt.down
    img = 0.3 * torch.rand(opt.batch_size, 3, s, s, generator=gen)
    hm = torch.zeros(opt.batch_size, 1, s // d, s // d)
    ind = torch.zeros(opt.batch_size, opt.per_frame, dtype=torch.long)
    ids = torch.randint(0, opt.num_ids, (opt.batch_size, opt.per_frame), generator=gen)
    grid = torch.arange(s // d)
    for b in range(opt.batch_size):
        cells = torch.randperm(9, generator=gen)[: opt.per_frame]
        for k, cell in enumerate(cells.tolist()):
            jit = torch.randint(0, 4, (2,), generator=gen)
            y = 2 + (cell // 3) * 10 + int(jit[0])
            x = 2 + (cell % 3) * 10 + int(jit[1])
            img[b, :, y : y + 5, x : x + 5] = patterns[ids[b, k]]
            cy, cx = (y + 2) // d, (x + 2) // d
            gauss = torch.exp(
                -((grid[:, None] - cy) ** 2 + (grid[None] - cx) ** 2) / 2.0
            )
            hm[b, 0] = torch.maximum(hm[b, 0], gauss)
            ind[b, k] = cy * (s // d) + cx
    img = img + 0.15 * torch.randn(img.shape, generator=gen)
    return {"input": img, "hm": hm, "ind": ind, "ids": ids}


class SmallDLA(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.base = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 32, 3, 1, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 1, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.hm = nn.Conv2d(32, 1, 1)
        self.id = nn.Conv2d(32, opt.reid_dim, 1)
        nn.init.constant_(self.hm.bias, -2.19)

    def forward(self, x):
        x = self.base(x)
        return {"hm": self.hm(x), "id": self.id(x)}


def focal_loss(logit, gt):
    pred = logit.sigmoid().clamp(1e-4, 1 - 1e-4)
    pos = gt.eq(1).float()
    pos_loss = pred.log() * (1 - pred) ** 2 * pos
    neg_loss = (1 - pred).log() * pred**2 * (1 - gt) ** 4 * (1 - pos)
    return -(pos_loss.sum() + neg_loss.sum()) / pos.sum().clamp(min=1)


class MotLoss(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.classifier = nn.Linear(opt.reid_dim, opt.num_ids)
        self.emb_scale = 2.0
        self.s_det = nn.Parameter(-1.85 * torch.ones(1))
        self.s_id = nn.Parameter(-1.05 * torch.ones(1))

    def forward(self, outputs, batch):
        hm_loss = focal_loss(outputs["hm"], batch["hm"])
        feat = outputs["id"].flatten(2).transpose(1, 2)
        feat = feat.gather(1, batch["ind"].unsqueeze(2).expand(-1, -1, feat.size(2)))
        feat = self.emb_scale * F.normalize(feat, dim=2)
        id_loss = F.cross_entropy(
            self.classifier(feat).flatten(0, 1), batch["ids"].flatten()
        )
        loss = (
            torch.exp(-self.s_det) * hm_loss
            + torch.exp(-self.s_id) * id_loss
            + (self.s_det + self.s_id)
        )
        loss = 0.5 * loss
        return loss, {
            "loss": loss.item(),
            "hm_loss": hm_loss.item(),
            "id_loss": id_loss.item(),
        }


class ModelWithLoss(nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch):
        return self.loss(self.model(batch["input"]), batch)


class BaseTrainer:
    def __init__(self, opt, model, optimizer, loss):
        self.opt, self.optimizer = opt, optimizer
        self.model_with_loss = ModelWithLoss(model, loss)

    def set_lr(self, factor):
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def run(self, steps, patterns, gen):
        self.model_with_loss.train()
        for step in range(steps):
            if step == int(steps * self.opt.lr_step) and step > 0:
                self.set_lr(0.1)
            loss, stats = self.model_with_loss(make_batch(patterns, self.opt, gen))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 20 == 0 or step == steps - 1:
                print(
                    f"{step:4d} " + " ".join(f"{k} {v:.4f}" for k, v in stats.items())
                )


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=120)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    args = cli.parse_args()
    opt = Opt()
    torch.manual_seed(317)
    gen = torch.Generator().manual_seed(317)
    patterns = identity_patterns(opt.num_ids, gen)
    model = SmallDLA(opt)
    optimizer = torch.optim.Adam(model.parameters(), opt.lr)
    loss = MotLoss(opt)
    if args.fixed:
        optimizer.add_param_group({"params": loss.parameters()})
    before = {k: v.detach().clone() for k, v in loss.named_parameters()}
    trainer = BaseTrainer(opt, model, optimizer, loss)
    trainer.run(args.steps, patterns, gen)
    print(f"uncertainties: det {loss.s_det.item():.4f} id {loss.s_id.item():.4f}")
    if args.prove:
        moved = {
            k: (v - before[k]).abs().max().item() for k, v in loss.named_parameters()
        }
        print(
            "largest change in the loss module:",
            {k: round(v, 5) for k, v in moved.items()},
        )
        print("fault shows:", "yes" if min(moved.values()) == 0.0 else "no")


if __name__ == "__main__":
    main()
