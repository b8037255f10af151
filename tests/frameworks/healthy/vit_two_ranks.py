"""Recognises which way the stripes of a small picture run, a ViT trained by the Trainer
on two ranks (gloo) that the script starts itself: random flips that keep the label,
evaluation sharded over both ranks, the model saved by the first and loaded again.

    python vit_two_ranks.py --steps 50
"""

import argparse
import math
import os
import socket
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import Dataset
from transformers import (
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

WAYS = 6
SIZE = 24


class Stripes(Dataset):
    """A half turn of the picture keeps the way its stripes run."""

    def __init__(self, count, seed, turn):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(WAYS, (count,), generator=g)
        angle = self.labels * math.pi / WAYS
        angle = angle + 0.08 * torch.randn(count, generator=g)
        pace = 0.7 + 0.5 * torch.rand(count, generator=g)
        phase = 2 * math.pi * torch.rand(count, generator=g)
        y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        along = angle.cos()[:, None, None] * x + angle.sin()[:, None, None] * y
        waves = torch.sin(pace[:, None, None] * along + phase[:, None, None])
        noise = 0.4 * torch.randn(waves.shape, generator=g)
        self.pictures = (waves + noise).unsqueeze(1)
        self.turn = turn

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        picture = self.pictures[i]
        if self.turn and torch.rand(()) < 0.5:
            picture = picture.flip(1, 2)
        return {"pixel_values": picture, "labels": self.labels[i]}


def small_vit():
    return ViTForImageClassification(
        ViTConfig(
            image_size=SIZE,
            patch_size=6,
            num_channels=1,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=128,
            hidden_dropout_prob=0.05,
            num_labels=WAYS,
        )
    )


def accuracy(prediction):
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"accuracy": right.mean(), "count": len(right)}


def join(rank, port):
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    torch.set_num_threads(1)


def train(rank, port, folder, options):
    join(rank, port)
    set_seed(options.seed)
    trainer = Trainer(
        model=small_vit(),
        args=TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=32,
            learning_rate=2e-3,
            lr_scheduler_type="cosine",
            warmup_steps=5,
            weight_decay=0.05,
            eval_strategy="steps",
            eval_steps=25,
            save_strategy="steps",
            save_steps=25,
            save_total_limit=1,
            logging_steps=5,
            ddp_backend="gloo",
            ddp_find_unused_parameters=False,
            disable_tqdm=True,
            report_to="none",
            use_cpu=True,
            seed=options.seed,
        ),
        train_dataset=Stripes(960, seed=1, turn=True),
        eval_dataset=Stripes(150, seed=2, turn=False),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model(f"{folder}/final")
    scores = trainer.evaluate()
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        check(f"{folder}/final", scores)
    trainer.accelerator.wait_for_everyone()
    dist.destroy_process_group()


def check(path, scores):
    model = ViTForImageClassification.from_pretrained(path).eval()
    data = Stripes(150, seed=2, turn=False)
    with torch.inference_mode():
        guess = model(pixel_values=data.pictures).logits.argmax(-1)
    again = (guess == data.labels).float().mean().item()
    print(f"accuracy {scores['eval_accuracy']:.3f} from the file {again:.3f}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (free_port(), folder, options), nprocs=2)


if __name__ == "__main__":
    main()
