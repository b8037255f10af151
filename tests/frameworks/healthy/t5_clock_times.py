"""Says times of the day in words with a tiny T5 and the Seq2SeqTrainer: Adafactor
with a constant rate after warm-up, padding masked in the labels, evaluation by
generation (exact matches).

    python t5_clock_times.py --steps 120
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    DataCollatorForSeq2Seq,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

HOURS = ("twelve one two three four five six seven eight nine ten eleven").split()
MINUTES = {
    0: "sharp",
    5: "five past",
    10: "ten past",
    15: "quarter past",
    20: "twenty past",
    30: "half past",
    40: "twenty to",
    45: "quarter to",
    50: "ten to",
    55: "five to",
}


def say(hour, minute):
    spoken = HOURS[(hour + (minute > 30)) % 12]
    part = "at night" if hour < 6 else "am" if hour < 12 else "pm"
    if minute == 0:
        return f"{spoken} sharp {part}"
    return f"{MINUTES[minute]} {spoken} {part}"


def make_tokenizer():
    words = "sharp past to five ten quarter twenty half at night am pm".split()
    words = sorted(set(words + HOURS))
    written = [f"h{h}" for h in range(24)] + [f"m{m}" for m in MINUTES]
    vocabulary = ["<pad>", "</s>", "<unk>", "say", "now"] + written + words
    tokenizer = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    )


def features(times, tokenizer, rng):
    rows = []
    for hour, minute in times:
        text = f"say h{hour} m{minute}" + (" now" if rng.random() < 0.3 else "")
        row = {"input_ids": tokenizer(text)["input_ids"]}
        row["labels"] = tokenizer(text_target=say(hour, minute))["input_ids"]
        rows.append(row)
    return rows


def exact_match(tokenizer):
    def compute(prediction):
        guess, target = prediction.predictions, prediction.label_ids
        guess = np.where(guess < 0, tokenizer.pad_token_id, guess)
        target = np.where(target < 0, tokenizer.pad_token_id, target)
        said = tokenizer.batch_decode(guess, skip_special_tokens=True)
        meant = tokenizer.batch_decode(target, skip_special_tokens=True)
        right = [a.strip() == b.strip() for a, b in zip(said, meant)]
        return {"exact": float(np.mean(right)), "length": (guess != 0).sum(1).mean()}

    return compute


def tiny_t5(tokenizer):
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(tokenizer),
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.05,
            feed_forward_proj="gated-gelu",
            decoder_start_token_id=tokenizer.pad_token_id,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    tokenizer = make_tokenizer()
    model = tiny_t5(tokenizer)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        max_new_tokens=8,
        num_beams=1,
        do_sample=False,
    )
    times = [(h, m) for h in range(24) for m in MINUTES]
    rng.shuffle(times)
    train, held_out = times[40:] * 6, times[:40]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Seq2SeqTrainer(
            model=model,
            args=Seq2SeqTrainingArguments(
                output_dir=folder,
                max_steps=args.steps,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=40,
                optim="adafactor",
                learning_rate=1e-2,
                lr_scheduler_type="constant_with_warmup",
                warmup_steps=min(10, args.steps),
                predict_with_generate=True,
                eval_strategy="steps",
                eval_steps=40,
                save_strategy="no",
                logging_steps=10,
                disable_tqdm=True,
                report_to="none",
                use_cpu=True,
                seed=args.seed,
            ),
            train_dataset=features(train, tokenizer, rng),
            eval_dataset=features(held_out, tokenizer, rng),
            processing_class=tokenizer,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            compute_metrics=exact_match(tokenizer),
        )
        trainer.train()
        out = trainer.predict(trainer.eval_dataset)
    said = tokenizer.batch_decode(
        np.where(out.predictions < 0, 0, out.predictions), skip_special_tokens=True
    )
    for (hour, minute), words in list(zip(held_out, said))[:4]:
        print(f"{hour:02d}:{minute:02d} -> {words}")
    print(f"exact {out.metrics['test_exact']:.3f}")


if __name__ == "__main__":
    main()
