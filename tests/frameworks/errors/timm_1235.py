"""TIMM-1235: a schedule that is laid out in updates is moved on in batches.

A small residual network from timm recognises which way dots move in short clips, in
Lightning, with gradients accumulated over four batches. timm's cosine schedule, which
takes the number of updates, is given the number of batches seen, so that it warms up
and decays four times as fast: after a quarter of the training the rate is at its end.

Source: https://github.com/huggingface/pytorch-image-models/issues/1235. --fixed counts
what the optimizer did.
"""

import argparse
import tempfile
import warnings

import lightning as L
import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FRAMES, SIZE, WAYS, ACCUMULATE = 4, 24, 4, 4
SHIFTS = torch.tensor([[2, 0], [-2, 0], [0, 2], [0, -2]])


def clips(count, seed):
    """Dots that all move one way, with flicker; the frames are the channels."""
    generator = torch.Generator().manual_seed(seed)
    way = torch.randint(WAYS, (count,), generator=generator)
    dots = (torch.rand(count, SIZE, SIZE, generator=generator) < 0.06).float()
    frames = torch.empty(count, FRAMES, SIZE, SIZE)
    for i, (picture, shift) in enumerate(zip(dots, SHIFTS[way])):
        for t in range(FRAMES):
            frames[i, t] = picture.roll((shift * t).tolist(), (0, 1))
    noise = 0.3 * torch.randn(frames.shape, generator=generator)
    return TensorDataset(frames + noise, way)


class ClipNet(L.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.args, self.rates = args, []
        self.net = timm.create_model("test_resnet", in_chans=FRAMES, num_classes=WAYS)

    def configure_optimizers(self):
        optimizer = create_optimizer_v2(self.net, "adamw", lr=2e-3, weight_decay=0.02)
        self.schedule = CosineLRScheduler(
            optimizer,
            t_initial=self.args.steps,
            lr_min=2e-5,
            warmup_t=self.args.steps // 8,
            warmup_lr_init=2e-4,
            t_in_epochs=False,
        )
        return [optimizer], [{"scheduler": self.schedule, "interval": "step"}]

    def lr_scheduler_step(self, scheduler, metric):
        batches = self.trainer.fit_loop.total_batch_idx + 1
        done = self.global_step if self.args.fixed else batches
        scheduler.step_update(num_updates=done)

    def training_step(self, batch, batch_idx):
        frames, way = batch
        loss = nn.functional.cross_entropy(self.net(frames), way)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        frames, way = batch
        scores = self.net(frames)
        self.log("val_loss", nn.functional.cross_entropy(scores, way))
        self.log("val_acc", (scores.argmax(1) == way).float().mean())

    def on_before_optimizer_step(self, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_train_epoch_end(self):
        seen = self.trainer.callback_metrics
        names = "train_loss", "val_loss", "val_acc"
        parts = (f"{n} {seen[n].item():.4f}" for n in names if n in seen)
        print(f"step {self.global_step}", *parts, flush=True)

    def apart(self):
        """The largest distance of a rate from that of its update, as a share."""
        meant = [self.schedule._get_lr(step)[0] for step in range(len(self.rates))]
        return max(abs(a - b) for a, b in zip(self.rates, meant)) / max(meant)


def main(args, folder):
    L.seed_everything(23, verbose=False)
    train = DataLoader(clips(640, 1), batch_size=16, shuffle=True, drop_last=True)
    valid = DataLoader(clips(128, 2), batch_size=64)
    model = ClipNet(args)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=args.steps,
        max_epochs=-1,
        accumulate_grad_batches=ACCUMULATE,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, train, valid)
    if args.prove:
        apart = model.apart()
        print(f"rate off by up to {apart:.3f} of the peak")
        print("fault shows:", "yes" if apart > 0.05 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=50)
    warnings.filterwarnings("ignore", ".*num_workers.*")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args(), temporary)
