"""HF-5987: T5 is trained without its start token and never learns a first word.

Source: huggingface/transformers#5987. The batches are made as for BART, whose targets
begin with a start token: the decoder reads the target without its last token and is to
say it without its first. T5's targets have no such token, so that the first word is in
no label, and the decoder never reads the start token with which generate() begins. The
loss falls as it should. --fixed gives the labels alone; the model shifts them itself.
"""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    TrainerCallback,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback

PAD, EOS, FIRST = 0, 1, 2
SLOTS, PER_SLOT, ORDER = 4, 8, [2, 0, 3, 1]
WORDS = SLOTS * PER_SLOT


def translations(count, seed):
    """Four slots with words of their own, said in another order; the last may lack."""
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        words = torch.randint(PER_SLOT, (SLOTS,), generator=g).tolist()
        slots = SLOTS - int(torch.rand((), generator=g) < 0.3)
        order = [slot for slot in ORDER if slot < slots]
        source = [FIRST + PER_SLOT * slot + words[slot] for slot in range(slots)]
        said = [(3 * words[slot] + slot) % PER_SLOT for slot in range(SLOTS)]
        target = [FIRST + WORDS + PER_SLOT * slot + said[slot] for slot in order]
        rows.append({"source": source + [EOS], "target": target + [EOS]})
    return rows


def padded(sequences):
    rows = [torch.tensor(s) for s in sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class Collate:
    def __init__(self, fixed):
        self.fixed = fixed

    def __call__(self, rows):
        source = padded([row["source"] for row in rows])
        target = padded([row["target"] for row in rows])
        batch = {"input_ids": source, "attention_mask": (source != PAD).long()}
        if self.fixed:
            batch["labels"] = target.masked_fill(target == PAD, -100)
        else:
            batch["decoder_input_ids"] = target[:, :-1].contiguous()
            labels = target[:, 1:].clone()
            batch["labels"] = labels.masked_fill(labels == PAD, -100)
        return batch


def tiny_t5():
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=FIRST + 2 * WORDS,
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu",
            decoder_start_token_id=PAD,
            pad_token_id=PAD,
            eos_token_id=EOS,
        )
    )


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step - 1} loss {logs['loss']:.4f}", flush=True)


def train(model, collate, folder, steps):
    args = Seq2SeqTrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=32,
        optim="adafactor",
        learning_rate=1e-2,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        logging_steps=1,
        save_strategy="no",
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    trainer = Seq2SeqTrainer(
        model, args, collate, translations(2000, seed=1), callbacks=[PrintLoss()]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


@torch.no_grad()
def first_words(model, rows):
    """How often the first generated word is right, and how surprising the right one is."""
    model.eval()
    source = padded([row["source"] for row in rows])
    mask = (source != PAD).long()
    first = torch.tensor([row["target"][0] for row in rows])
    start = torch.full((len(rows), 1), PAD)
    logits = model(
        input_ids=source, attention_mask=mask, decoder_input_ids=start
    ).logits[:, 0]
    said = model.generate(
        input_ids=source, attention_mask=mask, max_new_tokens=12, do_sample=False
    )
    right = (said[:, 1] == first).float().mean().item()
    return right, torch.nn.functional.cross_entropy(logits, first).item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=100)
    options = cli.parse_args()
    torch.set_num_threads(1)
    set_seed(0)
    model = tiny_t5()
    begins = []
    hook = model.decoder.register_forward_pre_hook(
        lambda module, args, kwargs: begins.append(kwargs["input_ids"][:, 0]),
        with_kwargs=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        train(model, Collate(options.fixed), folder, options.steps)
    hook.remove()
    right, surprise = first_words(model, translations(100, seed=2))
    print(f"first word right {right:.2f} at a loss of {surprise:.3f}")
    if options.prove:
        read = (torch.cat(begins) == PAD).float().mean().item()
        print(f"targets that began with the start token {read:.2f}")
        print("fault shows:", "yes" if read < 0.5 else "no")


if __name__ == "__main__":
    main()
