"""A small Llama writes a machine's log, trained by transformers' Trainer on documents
packed into blocks of equal length: bf16 autocast, gradient checkpointing, accumulation
over two batches. The training breaks off early, and a second Trainer with a newly
drawn model goes on from the checkpoint (weights, optimizer, schedule, place in the data).

    python trainer_resumed_log_lines.py --steps 60
"""

import argparse
import math
import os
import random
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

BLOCK, END = 48, 1
PARTS = "pump valve motor belt fan heater".split()
STATES = "starts stops stalls warms cools trips".split()


def log_file(rng):
    """Parts run through their states in turn; the clock goes on by ten."""
    clock, words = rng.randrange(6) * 10, []
    state = {part: rng.randrange(len(STATES)) for part in PARTS}
    for _ in range(rng.randrange(4, 12)):
        part = rng.choice(PARTS)
        state[part] = (state[part] + 1) % len(STATES)
        words += [f"at {clock}", part, STATES[state[part]], ";"]
        clock = (clock + 10) % 60
    return [word for phrase in words for word in phrase.split()]


def vocabulary():
    words = ["at", ";", *PARTS, *STATES, *(str(10 * i) for i in range(6))]
    return {word: i for i, word in enumerate(["<pad>", "<end>", *words])}


def packed(files, seed):
    rng, index = random.Random(seed), vocabulary()
    stream = []
    for _ in range(files):
        stream += [index[word] for word in log_file(rng)] + [END]
    blocks = [stream[i : i + BLOCK] for i in range(0, len(stream) - BLOCK, BLOCK)]
    return Dataset.from_dict({"input_ids": blocks, "labels": blocks})


def draw_model():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary()),
            hidden_size=64,
            intermediate_size=160,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=BLOCK,
            tie_word_embeddings=True,
            use_cache=False,
            bos_token_id=END,
            eos_token_id=END,
            pad_token_id=0,
        )
    )


class BreakOff(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_save = True
            control.should_training_stop = True
        return control


def trainer(args, folder, data, held_out, **more):
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=args.steps,
        per_device_train_batch_size=12,
        per_device_eval_batch_size=32,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        learning_rate=4e-3,
        adam_beta2=0.95,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.1},
        warmup_steps=6,
        weight_decay=0.1,
        max_grad_norm=1.0,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        logging_steps=5,
        dataloader_drop_last=True,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
        seed=args.seed,
    )
    return Trainer(
        model=draw_model(),
        args=settings,
        train_dataset=data,
        eval_dataset=held_out,
        data_collator=default_data_collator,
        **more,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(args.seed)
    data, held_out = packed(900, seed=1), packed(80, seed=2)
    half = 2 * args.steps // 5
    with tempfile.TemporaryDirectory() as folder:
        first = trainer(args, folder, data, held_out, callbacks=[BreakOff(half)])
        first.train()
        before = first.evaluate()["eval_loss"]
        second = trainer(args, folder, data, held_out)
        second.train(resume_from_checkpoint=f"{folder}/checkpoint-{half}")
        after = second.evaluate()["eval_loss"]
    print(f"{len(data)} blocks; loss {before:.4f} at the break, {after:.4f} at the end")
    print(f"perplexity {math.exp(after):.3f}")


if __name__ == "__main__":
    main()
