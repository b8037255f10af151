"""Sorts support tickets into five queues with a small DistilBERT and the Trainer:
gradient accumulation, warm-up, weight decay, label smoothing, an evaluation and a
checkpoint each epoch, the best of which is loaded at the end.

    python distilbert_ticket_triage.py --steps 60
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch.utils.data import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    DataCollatorWithPadding,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

QUEUES = {
    "billing": "invoice refund charge card receipt payment vat".split(),
    "login": "password reset locked account code signin email".split(),
    "shipping": "parcel courier delayed tracking address depot lost".split(),
    "hardware": "screen battery charger broken fan noise keyboard".split(),
    "feedback": "love idea wish great suggestion thanks feature".split(),
}
FILLER = (
    "hello i we my the is was not again since monday please help with about "
    "a and still order yesterday cannot would it your team"
).split()


def make_tokenizer():
    words = sorted(set(FILLER).union(*QUEUES.values()))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + words
    tokenizer = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
    )


def write_ticket(rng):
    """A few words of the right queue, fewer of another one, the rest filler."""
    queue, other = rng.choice(len(QUEUES), 2, replace=False)
    names = list(QUEUES)
    words = list(rng.choice(QUEUES[names[queue]], 3))
    words += list(rng.choice(QUEUES[names[other]], 1))
    words += list(rng.choice(FILLER, rng.integers(4, 16)))
    rng.shuffle(words)
    return " ".join(words), int(queue)


class Tickets(Dataset):
    def __init__(self, count, tokenizer, rng):
        pairs = [write_ticket(rng) for _ in range(count)]
        self.encoded = tokenizer([text for text, _ in pairs], truncation=True)
        self.labels = [queue for _, queue in pairs]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        item = {key: self.encoded[key][i] for key in ("input_ids", "attention_mask")}
        item["labels"] = self.labels[i]
        return item


def metrics(prediction):
    guess = prediction.predictions.argmax(-1)
    right = guess == prediction.label_ids
    recall = [right[prediction.label_ids == q].mean() for q in range(len(QUEUES))]
    return {"accuracy": right.mean(), "balanced": float(np.nanmean(recall))}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    tokenizer = make_tokenizer()
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=32,
        dim=64,
        hidden_dim=128,
        n_layers=2,
        n_heads=4,
        num_labels=len(QUEUES),
        pad_token_id=tokenizer.pad_token_id,
        id2label=dict(enumerate(QUEUES)),
        label2id={name: i for i, name in enumerate(QUEUES)},
    )
    model = DistilBertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                max_steps=args.steps,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=50,
                gradient_accumulation_steps=2,
                learning_rate=2e-3,
                lr_scheduler_type="cosine",
                warmup_steps=max(1, args.steps // 10),
                weight_decay=0.01,
                label_smoothing_factor=0.1,
                eval_strategy="epoch",
                save_strategy="epoch",
                save_total_limit=2,
                load_best_model_at_end=True,
                metric_for_best_model="accuracy",
                logging_steps=5,
                disable_tqdm=True,
                report_to="none",
                use_cpu=True,
                seed=args.seed,
            ),
            train_dataset=Tickets(480, tokenizer, rng),
            eval_dataset=Tickets(200, tokenizer, rng),
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=metrics,
        )
        trainer.train()
        final = trainer.evaluate(Tickets(200, tokenizer, rng), metric_key_prefix="test")
        best = os.path.basename(trainer.state.best_model_checkpoint or "none")
    print(f"best {best} test accuracy {final['test_accuracy']:.3f}")


if __name__ == "__main__":
    main()
