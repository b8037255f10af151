"""Teaches a small Llama, trained on menus of one kitchen, those of another by LoRA
(peft, Trainer): gradient checkpointing, rank-stabilised adapters, padding on the right
and masked. At the end the adapters are saved, loaded onto the base, merged and compared.

    python lora_llama_menus.py --steps 50
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
DISHES, SIDES, DRINKS = 16, 16, 8
VOCABULARY = FIRST + DISHES + SIDES + DRINKS


def menu(rng, kitchen):
    """Dish and side follow each other by a rule of the kitchen; a drink ends a course."""
    ids = [BOS]
    dish = int(rng.integers(DISHES))
    for _ in range(rng.integers(3, 7)):
        side = (5 * dish + 3 * kitchen) % SIDES
        drink = (dish + 2 * kitchen) % DRINKS
        ids += [FIRST + dish, FIRST + DISHES + side]
        ids += [FIRST + DISHES + SIDES + drink]
        step = 1 + kitchen if rng.random() < 0.9 else int(rng.integers(DISHES))
        dish = (dish + step) % DISHES
    return {"input_ids": ids + [EOS]}


def collate(rows):
    length = max(len(row["input_ids"]) for row in rows)
    ids = torch.full((len(rows), length), PAD)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[i, : len(row["input_ids"])] = 1
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def small_llama():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=160,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
        )
    )


def arguments(folder, steps, seed, **more):
    return TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        save_strategy="no",
        logging_steps=5,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
        seed=seed,
        **more,
    )


def train_base(model, rng, folder, steps, seed):
    args = arguments(
        folder, steps, seed, learning_rate=5e-3, lr_scheduler_type="cosine"
    )
    data = [menu(rng, kitchen=0) for _ in range(1000)]
    Trainer(model, args, data_collator=collate, train_dataset=data).train()
    return model


def train_adapters(base, rng, folder, steps, seed):
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=8,
        lora_alpha=16,
        lora_dropout=0.05,
        use_rslora=True,
        target_modules="all-linear",
    )
    base.config.use_cache = False
    model = get_peft_model(base, config)
    model.print_trainable_parameters()
    args = arguments(
        folder,
        steps,
        seed,
        learning_rate=1e-2,
        warmup_steps=5,
        max_grad_norm=1.0,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        eval_strategy="steps",
        eval_steps=25,
        label_names=["labels"],
    )
    trainer = Trainer(
        model,
        args,
        data_collator=collate,
        train_dataset=[menu(rng, kitchen=1) for _ in range(1000)],
        eval_dataset=[menu(rng, kitchen=1) for _ in range(128)],
    )
    trainer.train()
    model.save_pretrained(f"{folder}/adapter")
    return model


@torch.no_grad()
def compare(model, folder, rows):
    """The merged model has to say what the one with adapters says."""
    batch = collate(rows)
    trained = model.eval()(**batch)
    base = LlamaForCausalLM.from_pretrained(f"{folder}/base")
    loaded = PeftModel.from_pretrained(base, f"{folder}/adapter")
    merged = loaded.merge_and_unload().eval()(**batch)
    real = batch["attention_mask"].bool()
    apart = (trained.logits - merged.logits)[real].abs().max().item()
    print(f"loss {trained.loss:.4f} merged {merged.loss:.4f} apart {apart:.1e}")
    assert apart < 1e-3, "merging changed the model"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        base = train_base(small_llama(), rng, folder, args.steps, args.seed)
        base.save_pretrained(f"{folder}/base")
        model = train_adapters(base, rng, folder, args.steps, args.seed)
        compare(model, folder, [menu(rng, kitchen=1) for _ in range(16)])


if __name__ == "__main__":
    main()
