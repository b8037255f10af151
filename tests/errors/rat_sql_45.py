"""Text-to-SQL toy: predict which column of a table a question asks for, and the aggregator.

The job is meant for a preemptible queue: it saves a checkpoint, gets killed in the middle
and is started again from the newest checkpoint.
"""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, COLUMNS, AGGS = 60, 6, 4


class WarmupPolynomialLRScheduler:
    """Linear warm-up, then polynomial decay; it writes to the given parameter groups."""

    def __init__(
        self, param_groups, num_warmup_steps, start_lr, end_lr, decay_steps, power
    ):
        self.param_groups = param_groups
        self.num_warmup_steps = num_warmup_steps
        self.start_lr, self.end_lr = start_lr, end_lr
        self.decay_steps, self.power = decay_steps, power

    def compute(self, current_step):
        if current_step < self.num_warmup_steps:
            return self.start_lr * (current_step + 1) / self.num_warmup_steps
        rest = (current_step - self.num_warmup_steps) / max(
            1, self.decay_steps - self.num_warmup_steps
        )
        return (self.start_lr - self.end_lr) * (
            1 - min(rest, 1.0)
        ) ** self.power + self.end_lr

    def update_lr(self, current_step):
        new_lr = self.compute(current_step)
        for group in self.param_groups:
            group["lr"] = new_lr * group.get("lr_factor", 1.0)


class Saver:
    def __init__(self, model, optimizer):
        self.items = {"model": model, "optimizer": optimizer}

    def restore(self, model_dir):
        path = os.path.join(model_dir, "model_checkpoint")
        if not os.path.exists(path):
            return 0
        state = torch.load(path)
        for key, item in self.items.items():
            item.load_state_dict(state[key])
        print("Loaded a checkpoint of step", state["step"])
        return state["step"]

    def save(self, model_dir, step):
        state = {key: item.state_dict() for key, item in self.items.items()}
        state["step"] = step
        torch.save(state, os.path.join(model_dir, "model_checkpoint"))


class Parser(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim)
        self.encoder = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.columns = nn.Linear(dim, dim)
        self.agg = nn.Linear(dim, AGGS)

    def forward(self, question, column_names):
        enc, _ = self.encoder(self.words(question))
        cols = self.columns(self.words(column_names))
        scores = (enc @ cols.transpose(1, 2)).logsumexp(1)
        return scores, self.agg(enc.max(1)[0])


def questions(n, gen):
    """One of the column names occurs in the question; words 0..3 stand for max, min, sum, count."""
    names = torch.stack(
        [torch.randperm(WORDS - AGGS, generator=gen)[:COLUMNS] + AGGS for _ in range(n)]
    )
    target = torch.randint(0, COLUMNS, (n,), generator=gen)
    agg = torch.randint(0, AGGS, (n,), generator=gen)
    q = torch.randint(AGGS, WORDS, (n, 9), generator=gen)
    where = torch.stack([torch.randperm(9, generator=gen)[:2] for _ in range(n)])
    q[torch.arange(n), where[:, 0]] = names[torch.arange(n), target]
    q[torch.arange(n), where[:, 1]] = agg
    return q, names, target, agg


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = Parser()

    def train(self, model_dir, stop_at):
        args = self.args
        head = list(self.model.agg.parameters())
        ids = {id(p) for p in head}
        body = [p for p in self.model.parameters() if id(p) not in ids]
        optimizer = torch.optim.Adam(
            [{"params": body}, {"params": head, "lr_factor": 0.5}], lr=0.0
        )
        lr_scheduler = WarmupPolynomialLRScheduler(
            optimizer.param_groups, args.steps // 10, 4e-3, 0.0, args.steps, power=0.5
        )
        saver = Saver(self.model, optimizer)
        last_step = saver.restore(model_dir)
        if args.fixed:
            lr_scheduler.param_groups = optimizer.param_groups

        self.model.train()
        while last_step < stop_at:
            batch = questions(32, torch.Generator().manual_seed(7000 + last_step))
            lr_scheduler.update_lr(last_step)
            scores, agg = self.model(*batch[:2])
            loss = F.cross_entropy(scores, batch[2]) + F.cross_entropy(agg, batch[3])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            last_step += 1
            if last_step % args.report_every == 0:
                exact = (
                    ((scores.argmax(1) == batch[2]) & (agg.argmax(1) == batch[3]))
                    .float()
                    .mean()
                )
                print(
                    f"Step {last_step}: loss={loss.item():.4f}, exact={exact:.2f}, "
                    f"lr={optimizer.param_groups[0]['lr']:.2e}"
                )
        saver.save(model_dir, last_step)
        return optimizer, lr_scheduler


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--report-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    with tempfile.TemporaryDirectory() as model_dir:
        Trainer(args).train(
            model_dir, stop_at=args.steps // 2
        )  # until the node is taken away
        optimizer, lr_scheduler = Trainer(args).train(model_dir, stop_at=args.steps)

    if args.prove:
        used = optimizer.param_groups[0]["lr"]
        wanted = lr_scheduler.compute(args.steps - 1)
        print(f"learning rate of the last step {used:.3e}, schedule {wanted:.3e}")
        print("fault shows:", "yes" if abs(used - wanted) > 1e-9 else "no")


if __name__ == "__main__":
    main()
