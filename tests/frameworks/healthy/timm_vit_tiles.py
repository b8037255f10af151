"""A small vision transformer tells woven patterns apart. In timm's fashion: the model
from its registry with drop path, its optimizer factory with layer decay, its cosine
schedule counted in updates, mixup and cutmix with soft targets in training only, and
a running mean of the weights with its own warm-up, which is evaluated beside the model.

    python timm_vit_tiles.py --steps 60
"""

import argparse

import timm
import torch
from timm.data.mixup import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, accuracy, dispatch_clip_grad
from torch import nn

SIZE, KINDS, UPDATES_PER_EPOCH = 24, 6, 10


def weaves(count, generator):
    """Stripes or checks of some period and angle, in a colour of chance."""
    kind = torch.randint(KINDS, (count,), generator=generator)
    grid = torch.arange(SIZE, dtype=torch.float32)
    row, column = grid.view(1, -1, 1), grid.view(1, 1, -1)
    shift = torch.rand(2, count, 1, 1, generator=generator) * 6.28
    period = torch.tensor([3.0, 5.0, 8.0])[kind % 3].view(-1, 1, 1)
    across = torch.sin(6.28 * column / period + shift[0])
    along = torch.sin(6.28 * row / period + shift[1])
    checks = (kind >= 3).view(-1, 1, 1)
    cloth = torch.where(checks, across * along, across + 0.1 * along)
    colour = 0.4 + torch.rand(count, 3, 1, 1, generator=generator)
    images = colour * cloth.unsqueeze(1)
    return images + 0.4 * torch.randn(images.shape, generator=generator), kind


def build_model():
    return timm.create_model(
        "vit_tiny_patch16_224",
        img_size=SIZE,
        patch_size=4,
        embed_dim=64,
        depth=4,
        num_heads=4,
        num_classes=KINDS,
        drop_path_rate=0.1,
    )


class Loader:
    """Fresh batches for each epoch, an epoch's number its seed."""

    def __init__(self, batch_size, seed):
        self.batch_size, self.seed = batch_size, seed

    def epoch(self, number):
        generator = torch.Generator().manual_seed(1000 * self.seed + number)
        for _ in range(UPDATES_PER_EPOCH):
            yield weaves(self.batch_size, generator)


def train_one_epoch(epoch, loader, parts, args):
    model, ema, optimizer, scheduler, mixup, loss_fn = parts
    model.train()
    losses, updates = AverageMeter(), epoch * UPDATES_PER_EPOCH
    for images, kinds in loader.epoch(epoch):
        if updates == args.steps:
            break
        images, targets = mixup(images, kinds)
        loss = loss_fn(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        updates += 1
        ema.update(model, step=updates)
        scheduler.step_update(num_updates=updates)
        losses.update(loss.item(), len(images))
    scheduler.step(epoch + 1)
    return losses.avg, updates


@torch.inference_mode()
def validate(model, data):
    model.eval()
    losses, right = AverageMeter(), AverageMeter()
    for images, kinds in zip(*(part.split(64) for part in data)):
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, kinds)
        losses.update(loss.item(), len(images))
        right.update(accuracy(scores, kinds)[0].item(), len(images))
    return losses.avg, right.avg


def main(args):
    torch.manual_seed(args.seed)
    model = build_model()
    ema = ModelEmaV3(model, decay=0.98, use_warmup=True)
    optimizer = create_optimizer_v2(
        model, opt="adamw", lr=args.lr, weight_decay=0.05, layer_decay=0.9
    )
    scheduler = CosineLRScheduler(
        optimizer,
        t_initial=args.steps,
        lr_min=args.lr / 50,
        warmup_t=args.steps // 8,
        warmup_lr_init=args.lr / 20,
        warmup_prefix=True,
        t_in_epochs=False,
    )
    mixup = Mixup(
        mixup_alpha=0.2,
        cutmix_alpha=0.5,
        prob=0.5,
        label_smoothing=0.05,
        num_classes=KINDS,
    )
    parts = model, ema, optimizer, scheduler, mixup, SoftTargetCrossEntropy()
    held_out = weaves(256, torch.Generator().manual_seed(99))
    loader, updates, epoch = Loader(args.batch_size, args.seed), 0, 0
    while updates < args.steps:
        loss, updates = train_one_epoch(epoch, loader, parts, args)
        plain, mean = validate(model, held_out), validate(ema.module, held_out)
        print(
            f"epoch {epoch} updates {updates} train {loss:.4f} "
            f"val {plain[0]:.4f} acc {plain[1]:.1f} "
            f"ema {mean[0]:.4f} acc {mean[1]:.1f} "
            f"lr {optimizer.param_groups[-1]['lr']:.2e}"
        )
        epoch += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=4)
    torch.set_num_threads(1)
    main(parser.parse_args())
