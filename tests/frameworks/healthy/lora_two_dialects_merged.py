"""Adapters for two dialects on a small GPT-2 that is trained here first (peft).

The base learns a made-up grammar; then it is frozen by peft and an adapter for each of
two dialects is trained, one after the other, on the same base. At the end one of them is
merged, and answers as before.

    python lora_two_dialects_merged.py --steps 50
"""

import argparse
import logging
import random

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

PAD, BOS, EOS = 0, 1, 2
WHO = ["miller", "baker", "weaver", "smith", "potter"]
WHAT = ["bread", "cloth", "iron", "clay", "flour", "wool"]
DOES = ["sells", "buys", "carries", "keeps"]
WHERE = ["in spring", "on the market", "at home", "by the river"]
DIALECTS = {
    "hills": {"bread": "brod", "cloth": "duk", "sells": "selt", "buys": "koppt"},
    "coast": {
        "the": "de",
        "at": "to",
        "in": "im",
        "carries": "bringt",
        "keeps": "holt",
    },
}


def sentence(rng, dialect=None):
    words = [rng.choice(WHO), rng.choice(DOES), rng.choice(WHAT)]
    if rng.random() < 0.7:
        words += rng.choice(WHERE).split()
    table = DIALECTS.get(dialect, {})
    words = [table.get(word, word) for word in words]
    if dialect == "coast":  # and the place comes first
        words = words[3:] + words[:3]
    return " ".join(words)


LETTERS = "".join(sorted(set("abcdefghijklmnopqrstuvwxyz ")))


def encode(text):
    return torch.tensor([BOS, *(LETTERS.index(c) + 3 for c in text), EOS])


def batch(rng, dialect, size=16):
    rows = [encode(sentence(rng, dialect)) for _ in range(size)]
    ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
    mask = (ids != PAD).long()
    # the model shifts the labels itself; what pads is left out of the loss
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
    }


@torch.no_grad()
def held_loss(model, dialect):
    rng = random.Random(99)
    model.eval()
    losses = [model(**batch(rng, dialect, 64)).loss for _ in range(2)]
    model.train()
    return torch.stack(losses).mean().item()


def train(model, rng, dialect, steps, rate, decay, title):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
    schedule = get_cosine_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    for step in range(steps):
        loss = model(**batch(rng, dialect)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"{title} step {step} loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50, help="for each adapter")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    config = GPT2Config(
        vocab_size=len(LETTERS) + 3, n_positions=64, n_embd=48, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip
    base = GPT2LMHeadModel(config)
    train(base, rng, None, 3 * args.steps, 8e-3, 0.1, "base")
    before = {name: held_loss(base, name) for name in (None, *DIALECTS)}
    kept = {name: value.clone() for name, value in base.state_dict().items()}

    settings = dict(
        r=8, lora_alpha=16, lora_dropout=0.05, fan_in_fan_out=True,
        target_modules=["c_attn", "c_fc", "c_proj"],
    )  # fmt: skip
    model = get_peft_model(base, LoraConfig(**settings), adapter_name="hills")
    model.add_adapter("coast", LoraConfig(use_rslora=True, **settings))
    for dialect in DIALECTS:
        model.set_adapter(dialect)  # the other one is frozen by this
        train(model, rng, dialect, args.steps, 1e-2, 0.0, dialect)

    for dialect in DIALECTS:
        model.set_adapter(dialect)
        after = held_loss(model, dialect)
        print(f"{dialect} held {before[dialect]:.4f} -> {after:.4f}")
    with model.disable_adapter():
        plain = held_loss(model, None)
    print(f"base held {before[None]:.4f} -> {plain:.4f}")
    assert abs(plain - before[None]) < 1e-6, "the base is what it was"
    for name, value in model.get_base_model().state_dict().items():
        original = kept.get(name.replace(".base_layer", ""))
        assert original is None or torch.equal(original, value), name

    model.set_adapter("coast")
    model.eval()
    prompt = encode("to home ")[None, :-1]
    with torch.no_grad():
        apart = model(input_ids=prompt).logits
        merged = model.merge_and_unload(adapter_names=["coast"]).eval()
        torch.testing.assert_close(
            merged(input_ids=prompt).logits, apart, atol=1e-4, rtol=1e-3
        )
        ids = merged.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=30,
            do_sample=False,
            pad_token_id=PAD,
        )
    print("".join(LETTERS[i - 3] for i in ids[0].tolist() if i > 2))


if __name__ == "__main__":
    main()
