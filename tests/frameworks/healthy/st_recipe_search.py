"""Finds the recipe for a question: a bi-encoder trained with in-batch negatives by the
SentenceTransformerTrainer on a small BERT drawn at random, with a word-level tokenizer
made in the script. No text twice in a batch, scores in validation by ranking, weight
decay, linear schedule with warm-up; the model is saved and loaded again.

    python st_recipe_search.py --steps 80
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
from sentence_transformers.evaluation import InformationRetrievalEvaluator
from sentence_transformers.losses import MultipleNegativesRankingLoss
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

MAIN = "lentil rice pasta potato bean tofu egg chickpea noodle bread".split()
WITH = "tomato spinach leek carrot mushroom pepper onion beet kale pea".split()
WAYS = {"stew": "slowly simmered", "bake": "from the oven", "salad": "served cold"}
TIMES = {"quick": "ready in ten minutes", "long": "takes an hour"}
ASK = ["how do i make a {}", "{} please", "i would like a {} tonight", "idea for {}"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def pairs():
    rng = random.Random(0)
    rows = []
    for main in MAIN:
        for side in WITH:
            for way, said in WAYS.items():
                time, hint = rng.choice(list(TIMES.items()))
                question = rng.choice(ASK).format(f"{time} {main} {way} with {side}")
                answer = f"{main} and {side} {said} {hint}"
                if rng.random() < 0.5:
                    answer = f"{said} {side} with {main} {hint}"
                rows.append((question, answer))
    rng.shuffle(rows)
    return rows


def tokenizer(rows):
    words = sorted({w for row in rows for text in row for w in text.split()})
    vocabulary = {w: i for i, w in enumerate(SPECIAL + words)}
    raw = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = Whitespace()
    raw.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
    )


def encoder(rows, folder):
    words = tokenizer(rows)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=40,
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.05,
    )
    BertModel(config).save_pretrained(folder)
    words.save_pretrained(folder)
    bert = parts.Transformer(folder, max_seq_length=32)
    pooling = parts.Pooling(64, pooling_mode="mean")
    return SentenceTransformer(modules=[bert, pooling], device="cpu")


def evaluator(rows):
    queries = {f"q{i}": question for i, (question, _) in enumerate(rows)}
    corpus = {f"a{i}": answer for i, (_, answer) in enumerate(rows)}
    relevant = {f"q{i}": {f"a{i}"} for i in range(len(rows))}
    return InformationRetrievalEvaluator(
        queries,
        corpus,
        relevant,
        mrr_at_k=[10],
        accuracy_at_k=[1, 5],
        name="recipes",
        write_csv=False,
    )


def settings(args, folder):
    return SentenceTransformerTrainingArguments(
        output_dir=folder,
        max_steps=args.steps,
        per_device_train_batch_size=24,
        learning_rate=2e-3,
        warmup_steps=5,
        weight_decay=0.01,
        batch_sampler="no_duplicates",
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=args.seed,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(args.seed)
    rows = pairs()
    train, held_out = rows[60:], rows[:60]
    with tempfile.TemporaryDirectory() as folder:
        model = encoder(rows, f"{folder}/base")
        ranking = evaluator(held_out)
        trainer = SentenceTransformerTrainer(
            model=model,
            args=settings(args, f"{folder}/runs"),
            train_dataset=Dataset.from_dict(
                {"anchor": [q for q, _ in train], "positive": [a for _, a in train]}
            ),
            loss=MultipleNegativesRankingLoss(model),
            evaluator=ranking,
        )
        trainer.train()
        model.save_pretrained(f"{folder}/final")
        again = SentenceTransformer(f"{folder}/final", device="cpu")
        print(f"reciprocal rank {ranking(again)['recipes_cosine_mrr@10']:.3f}")


if __name__ == "__main__":
    main()
