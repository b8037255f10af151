import argparse
import json
import os
import shutil
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class BaseTrainer:
    """Base class for all trainers"""

    def __init__(self, model, criterion, optimizer, config, save_dir):
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self.config = config
        self.epochs = config["trainer"]["epochs"]
        self.save_period = config["trainer"]["save_period"]
        self.start_epoch = 1
        self.checkpoint_dir = save_dir
        self.lr_scheduler = None
        if config.get("resume"):
            self._resume_checkpoint(config["resume"])

    def train(self):
        for epoch in range(self.start_epoch, self.epochs + 1):
            log = {"epoch": epoch, **self._train_epoch(epoch)}
            print(json.dumps(log))
            if epoch % self.save_period == 0:
                self._save_checkpoint(epoch)
            if self._finished():
                break

    def _save_checkpoint(self, epoch):
        state = {
            "arch": type(self.model).__name__,
            "epoch": epoch,
            "global_step": self.global_step,
            "state_dict": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "config": self.config,
        }
        filename = os.path.join(self.checkpoint_dir, f"checkpoint-epoch{epoch}.pth")
        torch.save(state, filename)

    def _resume_checkpoint(self, resume_path):
        checkpoint = torch.load(resume_path, weights_only=False)
        self.start_epoch = checkpoint["epoch"] + 1
        self.global_step = checkpoint["global_step"]
        self.model.load_state_dict(checkpoint["state_dict"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        print("Checkpoint loaded. Resume training from epoch", self.start_epoch)


class Trainer(BaseTrainer):
    def __init__(
        self,
        model,
        criterion,
        optimizer,
        config,
        data_loader,
        valid,
        lr_scheduler,
        save_dir,
        max_steps,
    ):
        self.global_step = 0
        super().__init__(model, criterion, optimizer, config, save_dir)
        self.data_loader, self.valid = data_loader, valid
        self.lr_scheduler = lr_scheduler
        self.max_steps = max_steps
        self.lrs = {}

    def _finished(self):
        return self.global_step >= self.max_steps

    def _train_epoch(self, epoch):
        self.model.train()
        total, n = 0.0, 0
        self.lrs[epoch] = self.optimizer.param_groups[0]["lr"]
        for data, target in self.data_loader:
            if self._finished():
                break
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(data), target)
            loss.backward()
            self.optimizer.step()
            self.global_step += 1
            total, n = total + loss.item(), n + 1
        log = {"lr": round(self.lrs[epoch], 6), "loss": round(total / max(n, 1), 4)}
        log["val_acc"] = self._valid_epoch()
        if self.config["fixed"]:
            self.lr_scheduler.last_epoch = epoch - 1
        self.lr_scheduler.step()
        return log

    @torch.no_grad()
    def _valid_epoch(self):
        self.model.eval()
        x, y = self.valid
        return round((self.model(x).argmax(1) == y).float().mean().item(), 4)


class DigitModel(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, num_classes)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.view(-1, 320))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def fake_digits(n, seed):
    g = torch.Generator().manual_seed(seed)
    protos = F.interpolate(
        torch.randn(10, 1, 7, 7, generator=torch.Generator().manual_seed(0)),
        size=28,
        mode="bilinear",
    )
    y = torch.randint(10, (n,), generator=g)
    return protos[y] + 0.9 * torch.randn(n, 1, 28, 28, generator=g), y


def main(config, save_dir, max_steps):
    torch.manual_seed(123)
    loader = DataLoader(
        TensorDataset(*fake_digits(640, 1)), batch_size=64, shuffle=True
    )
    model = DigitModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, milestones=[6, 9], gamma=0.1
    )
    trainer = Trainer(
        model,
        F.nll_loss,
        optimizer,
        config,
        loader,
        fake_digits(256, 2),
        lr_scheduler,
        save_dir,
        max_steps,
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description="PyTorch Template")
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    save_dir = tempfile.mkdtemp(prefix="saved_")
    config = {"trainer": {"epochs": 4, "save_period": 2}, "fixed": args.fixed}
    # the queue gives 4 epochs per job, the second job goes on from the last file
    first = main(config, save_dir, args.steps)
    lrs = dict(first.lrs)
    last = os.path.join(save_dir, "checkpoint-epoch4.pth")
    if not first._finished() and os.path.exists(last):
        config = {
            "trainer": {"epochs": 1000, "save_period": 4},
            "fixed": args.fixed,
            "resume": last,
        }
        second = main(config, save_dir, args.steps)
        lrs.update(second.lrs)
    if args.prove:
        planned = {e: 0.05 * 0.1 ** sum(e - 1 >= m for m in (6, 9)) for e in lrs}
        differ = [e for e in lrs if abs(planned[e] - lrs[e]) > 1e-9]
        print("fault shows:", "yes" if differ else "no")
    shutil.rmtree(save_dir)
