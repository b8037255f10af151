"""Spoken times of the day written as figures: a small T5 under Seq2SeqTrainer.

The configuration is tiny and the weights start at random. A collator of its own pads
each batch to its longest row and spoils some inputs with slips of the tongue in training
only; evaluation generates; the best checkpoint is put back at the end.

    python t5_clock_words.py --epochs 8
"""

import argparse
import random
import tempfile
import warnings

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
import transformers
from transformers import (
    EarlyStoppingCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    PrinterCallback,
    TrainerCallback,
)

PAD, END, SLIP = 0, 1, 2
HOURS = "twelve one two three four five six seven eight nine ten eleven".split()
MINUTES = {5: "five", 10: "ten", 20: "twenty", 25: "twentyfive"}
WORDS = ["<pad>", "<end>", "er", "past", "to", "quarter", "half", "oclock", "in", "the"]
WORDS += ["morning", "afternoon", *HOURS, "twenty", "twentyfive", *"0123456789:"]
INDEX = {word: i for i, word in enumerate(WORDS)}


def spoken(hour, minute):
    late = hour >= 12
    if minute == 0:
        text = [HOURS[hour % 12], "oclock"]
    else:
        near = minute if minute <= 30 else 60 - minute
        size = {15: "quarter", 30: "half"}.get(near) or MINUTES[near]
        named = HOURS[(hour + (minute > 30)) % 12]
        text = [size, "past" if minute <= 30 else "to", named]
    return [*text, "in", "the", "afternoon" if late else "morning"]


class Times(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        hour, minute = self.rows[index]
        return {
            "input_ids": [INDEX[word] for word in spoken(hour, minute)] + [END],
            "labels": [INDEX[c] for c in f"{hour:02d}:{minute:02d}"] + [END],
        }


class Collator:
    """Slips are put in while the trainer trains; a callback switches them.

    The trainer takes the labels away to smooth them, so that the decoder's inputs have
    to be made here.
    """

    def __init__(self, model, seed):
        self.model, self.rng, self.slips = model, random.Random(seed), False

    def __call__(self, rows):
        inputs = []
        for row in rows:
            words = list(row["input_ids"])
            if self.slips and self.rng.random() < 0.5:
                words.insert(self.rng.randrange(len(words)), SLIP)
            inputs.append(torch.tensor(words))
        inputs = pad_sequence(inputs, batch_first=True, padding_value=PAD)
        labels = [torch.tensor(row["labels"]) for row in rows]
        labels = pad_sequence(labels, batch_first=True, padding_value=-100)
        return {
            "input_ids": inputs,
            "attention_mask": (inputs != PAD).long(),
            "labels": labels,
            "decoder_input_ids": self.model.prepare_decoder_input_ids_from_labels(
                labels
            ),
        }


class Watch(TrainerCallback):
    def __init__(self, collator):
        self.collator = collator

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.collator.slips = True

    def on_epoch_end(self, args, state, control, **kwargs):
        self.collator.slips = False  # evaluation comes next

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(
                f"step {state.global_step} loss {float(logs['loss']):.4f}", flush=True
            )
        elif "eval_exact" in logs:
            print(
                f"epoch {logs['epoch']:.0f} held {logs['eval_loss']:.4f} "
                f"exact {logs['eval_exact']:.3f}",
                flush=True,
            )


def exact(prediction):
    """Generated rows begin with the decoder's start token; the trainer pads both."""
    guesses, labels = prediction.predictions, prediction.label_ids
    right = 0
    for guess, label in zip(guesses, labels):
        wanted = [i for i in label if i not in (-100, PAD, END)]
        given = [i for i in guess[1:] if i not in (-100, PAD)]
        given = given[: given.index(END)] if END in given else given
        right += wanted == given
    return {"exact": right / len(labels)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    transformers.set_seed(args.seed)
    rows = [(hour, minute) for hour in range(24) for minute in range(0, 60, 5)]
    random.Random(args.seed).shuffle(rows)
    held, train = Times(rows[:60]), Times(rows[60:] * 2)
    config = T5Config(
        vocab_size=len(WORDS), d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
        dropout_rate=0.0, feed_forward_proj="gated-gelu", pad_token_id=PAD,
        eos_token_id=END, decoder_start_token_id=PAD,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    collator = Collator(model, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        settings = Seq2SeqTrainingArguments(
            output_dir=folder,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=30,
            learning_rate=6e-3,
            optim="adafactor",  # with the rate above: no relative step
            lr_scheduler_type="linear",
            warmup_steps=10,
            label_smoothing_factor=0.05,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="exact",
            greater_is_better=True,
            predict_with_generate=True,
            generation_max_length=8,
            logging_steps=4,
            seed=args.seed,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Seq2SeqTrainer(
            model=model,
            args=settings,
            data_collator=collator,
            train_dataset=train,
            eval_dataset=held,
            compute_metrics=exact,
            callbacks=[Watch(collator), EarlyStoppingCallback(4)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        best = trainer.state.best_metric
        again = trainer.evaluate()["eval_exact"]
        assert abs(best - again) < 1e-6, "the best weights are back"
    print(f"best {best:.3f}")


if __name__ == "__main__":
    main()
