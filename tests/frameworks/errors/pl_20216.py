"""PL-20216: a callback puts the model into evaluation mode, and there it stays.

Lightning learns kinds of tones. After every ten steps a callback shows what the model
says of four tones; it calls eval() for that and nothing afterwards. The Trainer puts a
model into training mode no more before an epoch, and after the validation it restores
the mode of before: from the tenth step on there is no dropout, and batch norm uses its
frozen statistics.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/20216. --fixed calls
train() at the end of the callback.
"""

import argparse
import logging
import tempfile
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS, LENGTH, BATCHES_PER_EPOCH = 5, 256, 16


class Tones(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(0, KINDS, (count,), generator=g)
        pitch = 6 + 7 * self.kind + 3 * torch.rand(count, generator=g)
        phase = 6.28 * torch.rand(count, 1, generator=g)
        tone = torch.sin(6.28 * pitch[:, None] * torch.arange(LENGTH) / LENGTH + phase)
        self.tone = tone + 0.8 * torch.randn(count, LENGTH, generator=g)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        return self.tone[index][None], self.kind[index]


def block(inside, outside):
    return nn.Sequential(
        nn.Conv1d(inside, outside, 9, 2, 4),
        nn.BatchNorm1d(outside),
        nn.ReLU(),
        nn.Dropout(0.2),
    )


class Tagger(L.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.modes = []
        self.net = nn.Sequential(
            block(1, 16), block(16, 32), block(32, 32),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(32, KINDS),
        )  # fmt: skip

    def forward(self, tone):
        return self.net(tone)

    def training_step(self, batch, batch_idx):
        tone, kind = batch
        self.modes.append(self.net.training)
        loss = nn.functional.cross_entropy(self(tone), kind)
        self.log("train_loss", loss)
        print(f"step {self.global_step} loss {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        tone, kind = batch
        out = self(tone)
        self.log("val_loss", nn.functional.cross_entropy(out, kind))
        self.log("val_accuracy", (out.argmax(1) == kind).float().mean())

    def on_validation_epoch_end(self):
        found = self.trainer.callback_metrics
        loss, accuracy = found["val_loss"], found["val_accuracy"]
        print(f"validation {loss:.4f} accuracy {accuracy:.3f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class LogPredictions(L.Callback):
    """Shows what the model says of some tones, every so many steps."""

    def __init__(self, samples, every=10, back_to_train=False):
        self.tones = torch.stack([tone for tone, _ in samples])
        self.kinds = [int(kind) for _, kind in samples]
        self.every, self.back_to_train = every, back_to_train

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step % self.every:
            return
        pl_module.eval()
        with torch.no_grad():
            said = pl_module(self.tones).argmax(1)
        print(f"tones {self.kinds}, said {said.tolist()}", flush=True)
        if self.back_to_train:
            pl_module.train()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=48)
    options = cli.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    train, valid = Tones(32 * BATCHES_PER_EPOCH, 0), Tones(128, 1)
    shown = LogPredictions([valid[i] for i in range(4)], back_to_train=options.fixed)
    model = Tagger()
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_steps=options.steps,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=folder,
            callbacks=[shown],
        )
        trainer.fit(
            model,
            DataLoader(train, batch_size=32, shuffle=True),
            DataLoader(valid, batch_size=64),
        )
    if options.prove:
        trained = sum(model.modes)
        print(f"{trained} of {len(model.modes)} steps were taken in training mode")
        print("fault shows:", "yes" if trained < len(model.modes) else "no")


if __name__ == "__main__":
    main()
