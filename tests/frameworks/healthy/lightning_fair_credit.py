"""Loans that are repaid or not, judged without a trace of the district (Lightning).

Manual optimization: a judge and an opponent who guesses the district from the judge's
hidden layer take turns, each with an optimizer and a schedule of its own. A callback
keeps an average of the judge's weights and swaps it in for validation. The opponent's
loss should go up again towards ln 2 as it runs out of evidence.

    python lightning_fair_credit.py --epochs 7
"""

import argparse
import logging
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

COLUMNS = 12


def applications(count, generator):
    """Some columns tell how solvent one is, some where one lives, some both."""
    solvent = torch.randn(count, 1, generator=generator)
    district = torch.randint(2, (count,), generator=generator).float()
    side = 2 * district[:, None] - 1
    noise = torch.randn(count, COLUMNS, generator=generator)
    own = torch.tensor([1.0] * 4 + [0.0] * 4 + [0.6] * 4)
    place = torch.tensor([0.0] * 4 + [0.9] * 4 + [0.5] * 4)
    table = solvent * own + side * place + 0.7 * noise
    chance = torch.sigmoid(3 * solvent.squeeze(1) + 0.5)
    repaid = torch.bernoulli(chance, generator=generator)
    return TensorDataset(table, repaid, district)


class Loans(L.LightningDataModule):
    def __init__(self, seed):
        super().__init__()
        self.seed = seed

    def setup(self, stage):
        generator = torch.Generator().manual_seed(self.seed)
        self.train = applications(2400, generator)
        self.held = applications(800, generator)

    def train_dataloader(self):
        return DataLoader(self.train, 64, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held, 200)


class FairJudge(L.LightningModule):
    def __init__(self, width=32, pressure=2.0, epochs=7):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.body = nn.Sequential(
            nn.Linear(COLUMNS, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(width, 1)
        self.opponent = nn.Sequential(
            nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )
        self.accuracy, self.guess = BinaryAccuracy(), BinaryAccuracy()
        self.area = BinaryAUROC()

    def configure_optimizers(self):
        judge = [*self.body.parameters(), *self.head.parameters()]
        first = torch.optim.Adam(judge, lr=3e-3)
        second = torch.optim.Adam(
            self.opponent.parameters(), lr=5e-3, betas=(0.5, 0.99)
        )
        steps = [self.hparams.epochs * 2 // 3]
        return [first, second], [
            torch.optim.lr_scheduler.MultiStepLR(first, steps, 0.3),
            torch.optim.lr_scheduler.MultiStepLR(second, steps, 0.5),
        ]

    def training_step(self, batch, index):
        table, repaid, district = batch
        judge, opponent = self.optimizers()

        # the opponent sees what the judge makes of it, without moving the judge
        self.toggle_optimizer(opponent)
        with torch.no_grad():
            hidden = self.body(table)
        guess = self.opponent(hidden).squeeze(1)
        against = F.binary_cross_entropy_with_logits(guess, district)
        opponent.zero_grad()
        self.manual_backward(against)
        opponent.step()
        self.untoggle_optimizer(opponent)
        if index % 2:  # the judge moves every second time
            return

        self.toggle_optimizer(judge)
        hidden = self.body(table)
        score = self.head(hidden).squeeze(1)
        repay = F.binary_cross_entropy_with_logits(score, repaid)
        guess = self.opponent(hidden).squeeze(1)
        evenly = F.binary_cross_entropy_with_logits(guess, torch.full_like(guess, 0.5))
        weight = self.hparams.pressure * min(1.0, self.current_epoch / 3)
        judge.zero_grad()
        self.manual_backward(repay + weight * evenly)
        self.clip_gradients(judge, 2.0, "norm")
        judge.step()
        self.untoggle_optimizer(judge)
        self.log_dict({"repay": repay, "against": against})
        print(f"step {self.global_step} loss {repay:.4f} opponent {against:.4f}")

    def on_train_epoch_end(self):
        for schedule in self.lr_schedulers():
            schedule.step()

    def validation_step(self, batch, index):
        table, repaid, district = batch
        hidden = self.body(table)
        score = self.head(hidden).squeeze(1)
        self.accuracy.update(score, repaid.long())
        self.area.update(score, repaid.long())
        self.guess.update(self.opponent(hidden).squeeze(1), district.long())

    def on_validation_epoch_end(self):
        values = [m.compute().item() for m in (self.accuracy, self.area, self.guess)]
        for metric in (self.accuracy, self.area, self.guess):
            metric.reset()
        if not self.trainer.sanity_checking:
            print("epoch {} accuracy {:.3f} area {:.3f} opponent {:.3f}".format(
                self.current_epoch, *values), flush=True)  # fmt: skip


class Average(Callback):
    """Averages weights and running statistics; swapped in while validating."""

    def __init__(self, decay=0.95):
        self.decay, self.average, self.away = decay, None, None

    def on_train_start(self, trainer, module):
        self.average = {
            k: v.detach().clone() for k, v in module.body.state_dict().items()
        }

    @torch.no_grad()
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        for name, value in module.body.state_dict().items():
            if value.is_floating_point():
                self.average[name].lerp_(value, 1 - self.decay)
            else:
                self.average[name].copy_(value)

    def on_validation_start(self, trainer, module):
        if self.average is not None:
            state = module.body.state_dict()
            self.away = {name: value.clone() for name, value in state.items()}
            module.body.load_state_dict(self.average)

    def on_validation_end(self, trainer, module):
        if self.away is not None:
            module.body.load_state_dict(self.away)
            self.away = None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    L.seed_everything(args.seed, verbose=False)
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Average()],
    )  # fmt: skip
    trainer.fit(FairJudge(epochs=args.epochs), datamodule=Loans(args.seed))


if __name__ == "__main__":
    main()
