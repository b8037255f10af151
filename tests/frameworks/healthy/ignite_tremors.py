"""Tells kinds of ground tremor apart by their seismogram: a small convolutional network
with ignite. An Engine with an update function of its own, warm-up and linear decay by
ignite's parameter schedulers, an averaged model by EMAHandler, and an evaluator at the
end of each epoch that scores both models; the best three checkpoints are kept and the
best one is loaded at the end.

    python ignite_tremors.py --steps 120
"""

import argparse
import math
import tempfile

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.handlers import (
    Checkpoint,
    DiskSaver,
    EMAHandler,
    LinearCyclicalScheduler,
    TerminateOnNan,
    create_lr_scheduler_with_warmup,
    global_step_from_engine,
)
from ignite.metrics import Accuracy, Loss, RunningAverage
from ignite.utils import manual_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = ("quake", "blast", "traffic", "volcano")
LENGTH = 192


def seismograms(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(len(KINDS), (count,), generator=g)
    t = torch.arange(LENGTH).float().expand(count, -1)
    onset = 20 + 40 * torch.rand(count, 1, generator=g)
    since = (t - onset).clamp(min=0)
    fall = torch.tensor([30.0, 12.0, 200.0, 80.0])[kind, None]
    pace = torch.tensor([0.5, 0.9, 0.3, 0.35])[kind, None]
    pace = pace * (0.8 + 0.4 * torch.rand(count, 1, generator=g))
    phase = 2 * math.pi * torch.rand(count, 1, generator=g)
    wave = torch.sin(pace * since + phase) * torch.exp(-since / fall) * (since > 0)
    wave = wave * (1 + (kind == 3)[:, None] * torch.sin(0.1 * since))
    wave = wave + 0.35 * torch.randn(count, LENGTH, generator=g)
    return TensorDataset(wave.unsqueeze(1), kind)


def network():
    layers, inside = [], 1
    for outside in (16, 32, 48):
        layers += [
            nn.Conv1d(inside, outside, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(outside),
            nn.ReLU(),
        ]
        inside = outside
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(192, len(KINDS))
    )


def make_trainer(model, optimizer, criterion):
    def update(engine, batch):
        model.train()
        x, y = batch
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        return {"loss": loss.item(), "norm": norm.item()}

    trainer = Engine(update)
    RunningAverage(output_transform=lambda o: o["loss"]).attach(trainer, "loss")
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, TerminateOnNan(output_transform=lambda o: o["loss"])
    )
    return trainer


def attach_schedule(trainer, optimizer, steps):
    decay = LinearCyclicalScheduler(
        optimizer, "lr", start_value=4e-3, end_value=1e-5, cycle_size=2 * steps
    )
    schedule = create_lr_scheduler_with_warmup(
        decay, warmup_start_value=1e-4, warmup_duration=10
    )
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)


def attach_evaluation(trainer, model, average, criterion, loader, folder):
    evaluators = {}
    for name, net in (("model", model), ("average", average)):
        metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
        evaluators[name] = create_supervised_evaluator(net, metrics=metrics)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        line = f"step {engine.state.iteration} loss {engine.state.metrics['loss']:.4f}"
        for name, evaluator in evaluators.items():
            seen = evaluator.run(loader).metrics
            line += f" {name} {seen['loss']:.4f} {seen['accuracy']:.3f}"
        print(line, flush=True)

    keep = Checkpoint(
        {"model": model},
        DiskSaver(folder, require_empty=False),
        n_saved=3,
        score_function=lambda _: evaluators["model"].state.metrics["accuracy"],
        score_name="accuracy",
        global_step_transform=global_step_from_engine(trainer),
    )
    trainer.add_event_handler(Events.EPOCH_COMPLETED, keep)
    return evaluators["model"], keep


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    manual_seed(args.seed)
    torch.set_num_threads(1)
    train = DataLoader(seismograms(960, 1), 48, shuffle=True, drop_last=True)
    held_out = DataLoader(seismograms(300, 2), 100)
    model, criterion = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    trainer = make_trainer(model, optimizer, criterion)
    attach_schedule(trainer, optimizer, args.steps)
    averaging = EMAHandler(model, momentum=0.05, handle_buffers="update")
    averaging.attach(trainer)
    with tempfile.TemporaryDirectory() as folder:
        evaluator, keep = attach_evaluation(
            trainer, model, averaging.ema_model, criterion, held_out, folder
        )
        trainer.run(train, max_iters=args.steps)
        best = max(keep._saved, key=lambda item: item.priority).filename
        state = torch.load(f"{folder}/{best}", weights_only=True)
        Checkpoint.load_objects({"model": model}, {"model": state})
    seen = evaluator.run(held_out).metrics
    print(f"best checkpoint: accuracy {seen['accuracy']:.3f}")


if __name__ == "__main__":
    main()
