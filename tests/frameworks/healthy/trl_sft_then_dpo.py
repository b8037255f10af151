"""A tiny GPT-2 learns to answer where things are kept (trl's SFTTrainer, loss on the
answers only), then to prefer the short answer to the polite one (DPOTrainer with a
frozen reference, its own copy).

    python trl_sft_then_dpo.py --steps 40
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    TrainerCallback,
    set_seed,
)
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

THINGS = "hammer kettle lamp rope ladder brush bucket saw scarf map".split()
PLACES = "attic kitchen shed cellar hall".split()
ASKS = ["where is the", "please find the", "i need the"]
POLITE = "thank you for asking , it is in the"
SHORT = "in the"


def make_tokenizer():
    words = sorted(set(" ".join(ASKS + [POLITE, SHORT, "?"]).split()))
    vocabulary = ["<pad>", "<eos>", "<unk>"] + words + THINGS + PLACES
    tokenizer = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
    )


def place(thing):
    return PLACES[(3 * THINGS.index(thing)) % len(PLACES)]


def question(rng):
    thing = str(rng.choice(THINGS))
    return thing, f"{rng.choice(ASKS)} {thing} ?"


def answered(rng, count):
    rows = []
    for _ in range(count):
        thing, prompt = question(rng)
        style = POLITE if rng.random() < 0.7 else SHORT
        rows.append({"prompt": prompt, "completion": f" {style} {place(thing)}"})
    return Dataset.from_list(rows)


def preferred(rng, count):
    rows = []
    for _ in range(count):
        thing, prompt = question(rng)
        pair = {"chosen": f" {SHORT} {place(thing)}"}
        pair["rejected"] = f" {POLITE} {place(thing)}"
        rows.append({"prompt": prompt} | pair)
    return Dataset.from_list(rows)


class Ask(TrainerCallback):
    """Lets the model answer a question when a stage ends."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def on_train_end(self, args, state, control, model=None, **kwargs):
        was_training = model.training
        model.eval()
        asked = self.tokenizer(["where is the saw ?"], return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(
                input_ids=asked["input_ids"],
                attention_mask=asked["attention_mask"],
                max_new_tokens=12,
                do_sample=False,
                pad_token_id=self.tokenizer.pad_token_id,
                eos_token_id=self.tokenizer.eos_token_id,
            )
        print(self.tokenizer.decode(ids[0]))
        model.train(was_training)


def common(folder, args):
    return dict(
        output_dir=folder,
        max_steps=args.steps,
        save_strategy="no",
        logging_steps=5,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        seed=args.seed,
    )


def supervised(model, tokenizer, rng, folder, args):
    config = SFTConfig(
        **common(folder, args),
        per_device_train_batch_size=32,
        learning_rate=5e-3,
        lr_scheduler_type="cosine",
        warmup_steps=3,
        completion_only_loss=True,
        max_length=32,
    )
    SFTTrainer(
        model,
        args=config,
        train_dataset=answered(rng, 600),
        processing_class=tokenizer,
        callbacks=[Ask(tokenizer)],
    ).train()


def preference(model, tokenizer, rng, folder, args):
    config = DPOConfig(
        **common(folder, args),
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=3e-4,
        beta=0.1,
        max_length=48,
    )
    trainer = DPOTrainer(
        model,
        args=config,
        train_dataset=preferred(rng, 400),
        eval_dataset=preferred(rng, 64),
        processing_class=tokenizer,
        callbacks=[Ask(tokenizer)],
    )
    trainer.train()
    scores = trainer.evaluate()
    print(f"preferred {scores['eval_rewards/accuracies']:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    tokenizer = make_tokenizer()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=64,
            n_embd=64,
            n_layer=2,
            n_head=4,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        supervised(model, tokenizer, rng, folder, args)
        model.save_pretrained(f"{folder}/sft")
        tuned = GPT2LMHeadModel.from_pretrained(f"{folder}/sft")
        preference(tuned, tokenizer, rng, folder, args)


if __name__ == "__main__":
    main()
