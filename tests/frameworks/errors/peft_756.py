"""PEFT-756: a multiple-choice head that the adapters' configuration does not name.

Source: huggingface/peft#756. Which of four notes tells of a hazard? LoRA on a BERT for
multiple choice (a small random encoder stands for the pretrained one). There is no task
type for multiple choice, so peft does not know of the new head: it stays frozen as it
was drawn, the adapters learn around it, and the saved file does not have it. Whoever
loads the file gets another head. --fixed names it in modules_to_save.
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    BertModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

CLS, SEP, FIRST = 1, 2, 3
WORDS, HAZARDS, CHOICES, LENGTH = 60, 12, 4, 8


def notes(count, seed):
    """In the right note two words tell of a hazard, in the others at most one does."""
    g = torch.Generator().manual_seed(seed)
    shape = (count, CHOICES, LENGTH)
    ids = torch.randint(FIRST + HAZARDS, FIRST + WORDS, shape, generator=g)
    hazard = torch.randint(FIRST, FIRST + HAZARDS, shape, generator=g)
    right = torch.randint(CHOICES, (count,), generator=g)
    told = torch.zeros(shape, dtype=torch.bool)
    told[..., 0] = torch.rand(count, CHOICES, generator=g) < 0.3
    told[torch.arange(count), right, :2] = True
    ids = torch.where(told, hazard, ids)
    order = torch.rand(shape, generator=g).argsort(-1)
    ids = ids.gather(-1, order)
    edge = torch.ones(count, CHOICES, 1, dtype=torch.long)
    ids = torch.cat([CLS * edge, ids, SEP * edge], dim=-1)
    return [{"input_ids": i, "labels": r} for i, r in zip(ids, right)]


def save_encoder(path):
    config = BertConfig(
        vocab_size=FIRST + WORDS,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    BertModel(config).save_pretrained(path)


def adapted(path, fixed):
    model = BertForMultipleChoice.from_pretrained(path)
    config = LoraConfig(
        r=8,
        lora_alpha=16,
        target_modules=["query", "key", "value", "dense"],
        modules_to_save=["classifier"] if fixed else None,
    )
    return get_peft_model(model, config)


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step - 1} loss {logs['loss']:.4f}", flush=True)


def train(model, folder, steps):
    args = TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=5e-3,
        warmup_steps=3,
        logging_steps=1,
        save_strategy="no",
        label_names=["labels"],
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    trainer = Trainer(
        model, args, train_dataset=notes(1200, seed=1), callbacks=[PrintLoss()]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


@torch.no_grad()
def scores(model, rows):
    ids = torch.stack([row["input_ids"] for row in rows])
    labels = torch.stack([row["labels"] for row in rows])
    logits = model.eval()(input_ids=ids).logits
    return logits, (logits.argmax(-1) == labels).float().mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        save_encoder(f"{folder}/encoder")
        model = adapted(f"{folder}/encoder", options.fixed)
        train(model, folder, options.steps)
        model.save_pretrained(f"{folder}/adapter")
        held_out = notes(200, seed=2)
        logits, accuracy = scores(model, held_out)
        print(f"accuracy {accuracy:.3f}")
        if options.prove:
            base = BertForMultipleChoice.from_pretrained(f"{folder}/encoder")
            loaded = PeftModel.from_pretrained(base, f"{folder}/adapter")
            again, accuracy = scores(loaded, held_out)
            print(f"accuracy from the file {accuracy:.3f}")
            apart = (logits - again).abs().max().item()
            print("fault shows:", "yes" if apart > 1e-2 else "no")


if __name__ == "__main__":
    main()
