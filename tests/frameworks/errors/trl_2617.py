"""TRL-2617: a trainer with a loss of its own, gradients four times too large.

Source: huggingface/trl#2617 (from transformers#35856; also transformers#43651). The
Trainer takes it that the loss was divided by the number of tokens of all accumulated
batches, since the model could do so, and does not divide by their number. The loss of
this SFTTrainer's subclass is a mean over the batch at hand (smoothed, with a penalty on
the normaliser) and ignores num_items_in_batch: the gradients of four batches are added
up, not averaged. --fixed says that the loss is not scaled.
"""

import argparse
import copy
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from datasets.utils.logging import disable_progress_bar
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn import functional as F
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    TrainerCallback,
    set_seed,
)
from trl import SFTConfig, SFTTrainer

ACCUMULATE = 4
NOTES = "c d e f g a b".split()


def make_tokenizer():
    vocabulary = ["<pad>", "<eos>", "<unk>", "up", "down", "from"] + NOTES
    words = models.WordLevel(
        {w: i for i, w in enumerate(vocabulary)}, unk_token="<unk>"
    )
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
    )


def scales(count):
    """Asks for a scale from a note; the answer runs up or down."""
    rows = []
    for _ in range(count):
        start, length = torch.randint(7, ()).item(), torch.randint(4, 9, ()).item()
        way = 1 if torch.rand(()) < 0.5 else -1
        played = [NOTES[(start + way * i) % 7] for i in range(length)]
        prompt = f"{'up' if way > 0 else 'down'} from {NOTES[start]}"
        rows.append({"prompt": prompt, "completion": " " + " ".join(played)})
    return Dataset.from_list(rows)


def smoothed_loss(logits, labels, smoothing=0.05, penalty=1e-3):
    logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    nll = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    normaliser = logits[labels != -100].logsumexp(-1)
    return nll + penalty * normaliser.square().mean()


class SmoothedSFT(SFTTrainer):
    watch = None

    def compute_loss(
        self, model, inputs, return_outputs=False, num_items_in_batch=None
    ):
        outputs = model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
        )
        loss = smoothed_loss(outputs.logits, inputs["labels"])
        self.watch.losses.append(loss.item())
        self.watch.batches.append(dict(inputs))
        return (loss, outputs) if return_outputs else loss


class SmoothedSFTScaled(SmoothedSFT):
    loss_is_scaled_for_ga = False


class Watch(TrainerCallback):
    """Prints the mean loss of an update; keeps the first one's batches and gradient."""

    def __init__(self):
        self.losses, self.batches, self.first = [], [], None

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.first is None:
            grads = [p.grad.flatten() for p in model.parameters()]
            self.first = (list(self.batches), torch.cat(grads).clone())

    def on_step_end(self, args, state, control, **kwargs):
        mean = sum(self.losses) / len(self.losses)
        print(f"step {state.global_step - 1} loss {mean:.4f}", flush=True)
        self.losses.clear()
        self.batches.clear()


def by_hand(model, batches):
    """Norm of the gradient of the mean loss over the batches of one update."""
    for batch in batches:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        loss = smoothed_loss(
            model(input_ids=ids, attention_mask=mask).logits, batch["labels"]
        )
        (loss / len(batches)).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    set_seed(0)
    tokenizer = make_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=32,
            initializer_range=0.1,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    start = copy.deepcopy(model)
    watch = Watch()
    kind = SmoothedSFTScaled if options.fixed else SmoothedSFT
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model,
            args=SFTConfig(
                output_dir=folder,
                max_steps=options.steps,
                per_device_train_batch_size=8,
                gradient_accumulation_steps=ACCUMULATE,
                optim="sgd",
                optim_args="momentum=0.9",
                learning_rate=0.05,
                lr_scheduler_type="constant_with_warmup",
                warmup_steps=3,
                max_grad_norm=0.0,
                logging_strategy="no",
                save_strategy="no",
                gradient_checkpointing=False,
                bf16=False,
                disable_tqdm=True,
                report_to="none",
                use_cpu=True,
            ),
            train_dataset=scales(1000),
            processing_class=tokenizer,
            callbacks=[watch],
        )
        trainer.watch = watch
        trainer.train()
    if options.prove:
        batches, gradient = watch.first
        ratio = (gradient.norm() / by_hand(start, batches)).item()
        print(f"gradient {ratio:.2f} times that of the mean loss")
        print("fault shows:", "yes" if abs(ratio - 1) > 0.1 else "no")


if __name__ == "__main__":
    main()
