"""A sparse crosscoder of two models' activations, with a loss for dead latents.

After oclivegriffin/crosscode, issue 3.
"""

import argparse

import torch
import torch.nn as nn


class Activations:
    """Two models see the same sparse features through dictionaries of their own."""

    def __init__(self, features=48, dim=16, active=3, seed=1):
        gen = torch.Generator().manual_seed(seed)
        self.gen, self.features, self.active = gen, features, active
        dictionary = torch.randn(features, 2, dim, generator=gen)
        self.dictionary = dictionary / dictionary.norm(dim=-1, keepdim=True)
        self.weight = 1 / torch.arange(1, features + 1).float()

    def batch(self, count):
        weight = self.weight.expand(count, -1)
        chosen = torch.multinomial(weight, self.active, generator=self.gen)
        strength = 0.5 + torch.rand(count, self.active, generator=self.gen)
        values = torch.zeros(count, self.features).scatter_(1, chosen, strength)
        return torch.einsum("bf,fmd->bmd", values, self.dictionary)


class TopKCrosscoder(nn.Module):
    def __init__(self, models, dim, latents, k):
        super().__init__()
        self.k = k
        decoder = torch.randn(latents, models, dim)
        decoder = decoder / decoder.norm(dim=-1, keepdim=True)
        self.W_dec = nn.Parameter(decoder)
        self.W_enc = nn.Parameter(decoder.permute(1, 2, 0).clone())
        self.b_enc = nn.Parameter(-0.3 * torch.rand(latents))
        self.b_dec = nn.Parameter(torch.zeros(models, dim))

    def pre_activations(self, x):
        return torch.einsum("bmd,mdh->bh", x, self.W_enc) + self.b_enc

    def decode(self, hidden):
        return torch.einsum("bh,hmd->bmd", hidden, self.W_dec) + self.b_dec

    def forward(self, x):
        pre = self.pre_activations(x)
        values, index = pre.topk(self.k, dim=-1)
        hidden = torch.zeros_like(pre).scatter(-1, index, values.relu())
        return pre, hidden, self.decode(hidden)


def summed_norm_mse(error):
    return error.square().sum(-1).sum(-1).mean()


class TopKTrainer:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args, self.data = args, Activations()
        self.crosscoder = TopKCrosscoder(2, 16, args.latents, args.k)
        self.optimizer = torch.optim.Adam(self.crosscoder.parameters(), lr=args.lr)
        self.unused = torch.zeros(args.latents)
        self.step = 0

    def dead(self):
        return self.unused >= self.args.dead_after

    def aux_loss(self, pre, x, reconstruction):
        """Dead latents reconstruct what is left."""
        dead = self.dead()
        count = int(dead.sum())
        if count == 0:
            return torch.zeros(())
        k = min(self.args.k_aux, count)
        values, index = pre.masked_fill(~dead, -torch.inf).topk(k, dim=-1)
        values = values.relu() + 0.01 * values
        hidden = torch.zeros_like(pre).scatter(-1, index, values)
        rest = (x - reconstruction).detach()
        guess = torch.einsum("bh,hmd->bmd", hidden, self.crosscoder.W_dec)
        return summed_norm_mse(guess - rest)

    def losses(self, x):
        pre, hidden, reconstruction = self.crosscoder(x)
        fired = (hidden > 0).any(0)
        reconstruction_loss = summed_norm_mse(x - reconstruction)
        aux_loss = self.aux_loss(pre, x, reconstruction)
        more = self.unused + 1
        self.unused = torch.where(fired, torch.zeros_like(more), more)
        return reconstruction_loss, aux_loss

    def log(self, loss, reconstruction_loss, aux_loss):
        print(
            f"step {self.step} loss {loss.item():.4f} "
            f"reconstruction {reconstruction_loss.item():.4f} "
            f"aux {aux_loss.item():.4f} dead {int(self.dead().sum())}",
            flush=True,
        )

    def calculate_loss_and_log(self, x, log):
        reconstruction_loss, aux_loss = self.losses(x)
        loss = reconstruction_loss + self.args.lambda_aux * aux_loss
        if log:
            self.log(loss, reconstruction_loss, aux_loss)
        return reconstruction_loss

    def run_batch(self, x):
        loss = self.calculate_loss_and_log(x, self.step % 50 == 0)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.crosscoder.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1

    @torch.no_grad()
    def evaluate(self):
        """How many latents are in use, and the share of variance not explained."""
        x = Activations().batch(1024)
        _, hidden, reconstruction = self.crosscoder(x)
        rest = summed_norm_mse(x - reconstruction) / summed_norm_mse(x - x.mean(0))
        return int((hidden > 0).any(0).sum()), rest.item()

    def train(self):
        for _ in range(self.args.steps):
            self.run_batch(self.data.batch(self.args.batch_size))
        used, rest = self.evaluate()
        print(
            f"latents in use {used} of {self.args.latents}, "
            f"variance not explained {rest:.4f}",
            flush=True,
        )


class AuxTopKTrainer(TopKTrainer):
    def calculate_loss_and_log(self, x, log):
        reconstruction_loss, aux_loss = self.losses(x)
        loss = reconstruction_loss + self.args.lambda_aux * aux_loss
        if log:
            self.log(loss, reconstruction_loss, aux_loss)
        return loss


def gradient_of_dead(trainer):
    """The norm of the gradient of latents that died in a trainer that did not step."""
    batch_size = trainer.args.batch_size
    for _ in range(trainer.args.dead_after + 1):
        trainer.losses(trainer.data.batch(batch_size))
    dead = trainer.dead()
    trainer.calculate_loss_and_log(trainer.data.batch(batch_size), False).backward()
    return trainer.crosscoder.W_enc.grad[..., dead].norm().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--latents", type=int, default=96)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--k-aux", type=int, default=16)
    parser.add_argument("--dead-after", type=int, default=20)
    parser.add_argument("--lambda-aux", type=float, default=0.25)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    trainer_class = AuxTopKTrainer if args.fixed else TopKTrainer
    trainer_class(args).train()
    if args.prove:
        norm = gradient_of_dead(trainer_class(args))
        print(f"gradient of dead latents {norm:.6f}")
        print("fault shows:", "yes" if norm == 0 else "no", flush=True)


if __name__ == "__main__":
    main()
