import argparse
import math
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

VOCAB, LENGTH, TOPICS = 80, 20, 6


class Notes(Dataset):
    """short documents, each written with the words of one topic mixed with common words"""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.label = torch.randint(TOPICS, (size,), generator=g)
        own = self.label[:, None] * 10 + torch.randint(10, (size, LENGTH), generator=g)
        common = 60 + torch.randint(20, (size, LENGTH), generator=g)
        other = torch.randint(60, (size, LENGTH), generator=g)
        pick = torch.rand(size, LENGTH, generator=g)
        self.tokens = torch.where(
            pick < 0.35, own, torch.where(pick < 0.65, common, other)
        )

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return {"id": i, "tokens": self.tokens[i], "label": self.label[i]}


class ShardedBatches(Sampler):
    def __init__(self, n, batch_size, seed, skip=0):
        self.n, self.batch_size, self.seed, self.skip = n, batch_size, seed, skip
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return math.ceil(self.n / self.batch_size) - self.skip

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.n, generator=g).tolist()
        for start in range(self.skip * self.batch_size, self.n, self.batch_size):
            yield order[start : start + self.batch_size]


class Loader:
    def __init__(self, dataset, batches):
        self.batches = batches
        self.inner = DataLoader(dataset, batch_sampler=batches)

    def set_epoch(self, epoch):
        self.batches.set_epoch(epoch)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.inner)


class Classifier(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.lstm = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(2 * dim, TOPICS)

    def forward(self, tokens):
        x = self.emb(tokens)
        h, _ = self.lstm(x)
        return self.out(torch.cat([h.mean(1), x.mean(1)], -1))


class Trainer:
    def __init__(self, args, train_set, eval_set, out_dir):
        self.args, self.train_set, self.eval_set, self.out_dir = (
            args,
            train_set,
            eval_set,
            out_dir,
        )
        torch.manual_seed(args.seed)
        self.model = Classifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.per_epoch = math.ceil(len(train_set) / args.batch_size)
        total = self.per_epoch * args.epochs
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: max(0.05, 1 - s / total)
        )
        self.global_step = 0
        self.used = {}

    def get_train_dataloader(self, skip_batches=0, epoch=None):
        batches = ShardedBatches(
            len(self.train_set), self.args.batch_size, self.args.data_seed, skip_batches
        )
        if epoch is not None:
            batches.set_epoch(epoch)
        return Loader(self.train_set, batches)

    def skip_first_batches(self, loader, count):
        if self.args.fixed:
            return self.get_train_dataloader(
                skip_batches=count, epoch=loader.batches.epoch
            )
        return self.get_train_dataloader(skip_batches=count)

    def save(self):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "global_step": self.global_step,
                "rng": torch.get_rng_state(),
            },
            os.path.join(self.out_dir, f"checkpoint-{self.global_step}.pt"),
        )

    def load(self, step):
        state = torch.load(
            os.path.join(self.out_dir, f"checkpoint-{step}.pt"), weights_only=True
        )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.global_step = state["global_step"]
        torch.set_rng_state(state["rng"])

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        logits = self.model(self.eval_set.tokens)
        self.model.train()
        return (logits.argmax(-1) == self.eval_set.label).float().mean().item()

    def train(self, resume_from=None, stop_at=None):
        skip = 0
        if resume_from is not None:
            self.load(resume_from)
            skip = self.global_step % self.per_epoch
        loader = self.get_train_dataloader()
        for epoch in range(self.global_step // self.per_epoch, self.args.epochs):
            loader.set_epoch(epoch)
            epoch_loader = loader
            if skip:
                epoch_loader = self.skip_first_batches(loader, skip)
                skip = 0
            for batch in epoch_loader:
                loss = nn.functional.cross_entropy(
                    self.model(batch["tokens"]), batch["label"]
                )
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.scheduler.step()
                self.used.setdefault(epoch, []).extend(batch["id"].tolist())
                self.global_step += 1
                if self.global_step % self.args.log_every == 0:
                    print(
                        f"step {self.global_step} epoch {epoch} loss {loss.item():.4f} lr {self.scheduler.get_last_lr()[0]:.2e}"
                    )
                if self.global_step % self.args.save_every == 0:
                    self.save()
                if self.global_step == stop_at:
                    print("interrupted")
                    return
            print(f"epoch {epoch} eval accuracy {self.evaluate():.4f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--data_seed", type=int, default=42)
    p.add_argument("--log_every", type=int, default=5)
    p.add_argument("--save_every", type=int, default=10)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    args.epochs = max(args.epochs, 2)

    train_set, eval_set = Notes(640, 1), Notes(256, 2)
    with tempfile.TemporaryDirectory() as out_dir:
        job = Trainer(args, train_set, eval_set, out_dir)
        job.train(stop_at=30)
        again = Trainer(args, train_set, eval_set, out_dir)
        again.train(resume_from=30)
        print(f"final eval accuracy {again.evaluate():.4f}")

    if args.prove:
        seen = job.used[1] + again.used[1]
        distinct = len(set(seen))
        print(
            f"epoch 1: {len(seen)} documents trained on, {distinct} distinct, {len(train_set) - distinct} never used"
        )
        print("fault shows:", "yes" if distinct < len(train_set) else "no")


if __name__ == "__main__":
    main()
