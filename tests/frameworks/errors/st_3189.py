"""ST-3189: the same answer is a right and a wrong one in a batch of in-batch negatives.

Questions of customers are matched with a shop's few answers by a small bi-encoder and
MultipleNegativesRankingLoss. A batch has many questions with the same answer, and each
of these rows takes the others' copies of its own right answer for wrong ones: the best
possible loss is well above 0 and pushes alike texts apart.

Source: https://github.com/huggingface/sentence-transformers/issues/3189 (also #2870).
--fixed has the batch sampler that allows no text twice in a batch.
"""

import argparse
import os
import random
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers import models as parts
from sentence_transformers.losses import MultipleNegativesRankingLoss
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

THINGS = "kettle lamp radio fan clock drill mixer toaster".split()
MATTERS = {
    "broken": ["does not start", "is broken", "stopped working"],
    "late": ["has not arrived", "is late", "where is"],
    "return": ["send back", "want to return", "do not like"],
    "price": ["how much is", "costs what", "any discount on"],
}
REPLIES = {
    "broken": "we repair your {} within a week",
    "late": "the parcel with the {} is under way",
    "return": "print a label and post the {} to us",
    "price": "see the offers page for every {}",
}
EXTRA = "please hello thanks today my the new old again".split()


def pairs(count, rng):
    rows = []
    for _ in range(count):
        thing, matter = rng.choice(THINGS), rng.choice(list(MATTERS))
        words = [thing, rng.choice(MATTERS[matter]), *rng.sample(EXTRA, 3)]
        rng.shuffle(words)
        rows.append((" ".join(words), REPLIES[matter].format(thing)))
    return rows


def encoder(rows, folder):
    words = sorted({w for row in rows for text in row for w in text.split()})
    index = {w: i for i, w in enumerate(["[PAD]", "[UNK]", *words])}
    raw = Tokenizer(WordLevel(index, unk_token="[UNK]"))
    raw.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", model_max_length=24
    )
    config = BertConfig(
        vocab_size=len(index),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    bert = parts.Transformer(folder, max_seq_length=24)
    return SentenceTransformer(modules=[bert, parts.Pooling(48)], device="cpu")


class Ranking(MultipleNegativesRankingLoss):
    """Counts rows that have a copy of their own answer among the wrong ones."""

    rows = twice = 0

    def forward(self, sentence_features, labels=None):
        features = list(sentence_features)
        answers = [tuple(row) for row in features[1]["input_ids"].tolist()]
        self.rows += len(answers)
        self.twice += sum(answers.count(answer) > 1 for answer in answers)
        return super().forward(features, labels)


def settings(args, folder):
    return SentenceTransformerTrainingArguments(
        output_dir=folder,
        max_steps=args.steps,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        warmup_steps=5,
        batch_sampler="no_duplicates" if args.fixed else "batch_sampler",
        save_strategy="no",
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=29,
    )


def main(args, folder):
    torch.set_num_threads(1)
    set_seed(29)
    rows = pairs(960, random.Random(1))
    model = encoder(rows, f"{folder}/base")
    loss = Ranking(model)
    SentenceTransformerTrainer(
        model=model,
        args=settings(args, f"{folder}/runs"),
        train_dataset=Dataset.from_dict(
            {"anchor": [q for q, _ in rows], "positive": [a for _, a in rows]}
        ),
        loss=loss,
    ).train()
    if args.prove:
        print(
            f"rows with their own answer as a wrong one: {loss.twice / loss.rows:.3f}"
        )
        print("fault shows:", "yes" if loss.twice > 0 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=80)
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args(), temporary)
