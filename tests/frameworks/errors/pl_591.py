"""PL-591: the discriminator steps with gradients that the generator's loss left in it.

A GAN learns where bees land on a wheel of flowers (points in the plane), with
Lightning's manual optimization. Each optimizer clears its gradients after its own step
and only then. The generator's loss goes back through the discriminator, too, and what
it leaves there is still there when the discriminator's own loss is added, so that the
discriminator is taught in part to take fakes for real.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/591. --fixed clears an
optimizer's gradients before its loss is propagated.
"""

import argparse
import math
import tempfile
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LATENT, PETALS, BATCHES_PER_EPOCH = 8, 6, 10


def landings(count, generator):
    petal = torch.randint(PETALS, (count,), generator=generator)
    angle = petal * (2 * math.pi / PETALS)
    middle = torch.stack([angle.cos(), angle.sin()], 1)
    return middle + 0.08 * torch.randn(count, 2, generator=generator)


def mlp(inside, outside, width=64):
    return nn.Sequential(
        nn.Linear(inside, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, outside),
    )


def gan_loss(scores, real):
    labels = torch.full_like(scores, float(real))
    return nn.functional.binary_cross_entropy_with_logits(scores, labels)


class BeeGan(L.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.automatic_optimization = False
        self.args, self.left_over = args, 0.0
        self.generator, self.discriminator = mlp(LATENT, 2), mlp(2, 1)

    def configure_optimizers(self):
        nets = self.generator, self.discriminator
        return [torch.optim.Adam(n.parameters(), 1e-3, betas=(0.5, 0.99)) for n in nets]

    def forward(self, count):
        return self.generator(torch.randn(count, LATENT))

    def update(self, loss, optimizer):
        if self.args.fixed:
            optimizer.zero_grad()
        own = self.own_gradients(loss, optimizer) if self.args.prove else None
        self.manual_backward(loss)
        if own is not None:
            self.compare(own, optimizer)
        optimizer.step()
        if not self.args.fixed:
            optimizer.zero_grad()

    def training_step(self, batch, batch_idx):
        for_generator, for_discriminator = self.optimizers()
        real = batch[0]
        fake = self(len(real))
        generator_loss = gan_loss(self.discriminator(fake), real=True)
        self.update(generator_loss, for_generator)
        right = gan_loss(self.discriminator(real), real=True)
        wrong = gan_loss(self.discriminator(fake.detach()), real=False)
        discriminator_loss = (right + wrong) / 2
        self.update(discriminator_loss, for_discriminator)
        self.log_dict({"g_loss": generator_loss, "d_loss": discriminator_loss})

    def on_train_epoch_end(self):
        seen = self.trainer.callback_metrics
        with torch.no_grad():
            radius = self(512).norm(dim=1)
        line = f"step {self.global_step} g_loss {seen['g_loss']:.4f}"
        line += f" d_loss {seen['d_loss']:.4f} radius {radius.mean():.3f}"
        print(f"{line} +- {radius.std():.3f}", flush=True)

    def own_gradients(self, loss, optimizer):
        parameters = optimizer.param_groups[0]["params"]
        return torch.autograd.grad(loss, parameters, retain_graph=True)

    def compare(self, own, optimizer):
        """How much of a gradient does not come from the optimizer's own loss."""
        used = [p.grad for p in optimizer.param_groups[0]["params"]]
        apart = sum((a - b).square().sum() for a, b in zip(used, own))
        whole = sum(b.square().sum() for b in own)
        self.left_over = max(self.left_over, (apart / whole).sqrt().item())


def main(args, folder):
    L.seed_everything(17, verbose=False)
    data = landings(64 * BATCHES_PER_EPOCH, torch.Generator().manual_seed(2))
    loader = DataLoader(TensorDataset(data), batch_size=64, shuffle=True)
    model = BeeGan(args)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=args.steps,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, loader)
    if args.prove:
        print(f"largest share of foreign gradient: {model.left_over:.4f}")
        print("fault shows:", "yes" if model.left_over > 1e-3 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=200, help="of both optimizers")
    warnings.filterwarnings("ignore", ".*num_workers.*")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args(), temporary)
