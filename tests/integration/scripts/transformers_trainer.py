"""A small language model, trained by transformers' Trainer for ten steps."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers import set_seed


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, 100, (16,), generator=generator)
        return {"input_ids": tokens, "labels": tokens}


set_seed(1)
size = {"vocab_size": 100, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(**size))
arguments = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=8,
    max_steps=10,
    save_steps=5,
    logging_steps=5,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
result = Trainer(model, arguments, train_dataset=Sentences()).train()
print("loss", result.training_loss)
