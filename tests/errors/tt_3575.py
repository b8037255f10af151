"""TT-3575: of the accumulated micro-batches only the last one counts.

Source: pytorch/torchtitan#3575 (also bytetriper/RAE#67). The trainer of the policy
offers forward_backward, which is called for each micro-batch, and optim_step. The
gradients are cleared at the beginning of forward_backward, so that a step is made
from the last micro-batch alone. --fixed clears them where the step is made.
"""

import argparse

import torch
from torch import nn


class PolicyTrainer:
    def __init__(self, model, clear_after_step):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        self.clear_after_step = clear_after_step

    def forward_backward(self, states, actions, advantages, total):
        if not self.clear_after_step:
            self.optimizer.zero_grad()
        chosen = torch.distributions.Categorical(logits=self.model(states))
        loss = -(chosen.log_prob(actions) * advantages).sum() / total
        loss.backward()
        return loss.item()

    def optim_step(self):
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if self.clear_after_step:
            self.optimizer.zero_grad()
        return norm.item()


class Controller:
    """Makes rollouts, and hands them to the trainer in micro-batches."""

    def __init__(self, trainer, batch=96, micro_batch=24):
        self.trainer = trainer
        self.batch = batch
        self.micro_batch = micro_batch

    @torch.no_grad()
    def rollouts(self):
        states = torch.randn(self.batch, 10)
        logits = self.trainer.model(states)
        actions = torch.distributions.Categorical(logits=logits).sample()
        rewards = (states[:, :5].argmax(1) == actions).float()
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        return states, actions, advantages, rewards.mean().item()

    def step(self):
        states, actions, advantages, reward = self.rollouts()
        loss = 0.0
        for part in torch.arange(self.batch).split(self.micro_batch):
            loss += self.trainer.forward_backward(
                states[part], actions[part], advantages[part], self.batch
            )
        norm = self.trainer.optim_step()
        return loss, reward, norm


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).clone()


def shows(controller):
    """Whether the gradient before a step is another one than the batch's."""
    trainer = controller.trainer
    states, actions, advantages, _ = controller.rollouts()
    trainer.model.zero_grad()
    for part in torch.arange(len(states)).split(controller.micro_batch):
        trainer.forward_backward(
            states[part], actions[part], advantages[part], len(states)
        )
    parts = gradient(trainer.model)
    trainer.model.zero_grad()
    trainer.forward_backward(states, actions, advantages, len(states))
    return not torch.allclose(parts, gradient(trainer.model), atol=1e-5)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(10, 48), nn.Tanh(), nn.LayerNorm(48), nn.Linear(48, 5)
    )
    controller = Controller(PolicyTrainer(model, clear_after_step=options.fixed))
    for step in range(options.steps):
        loss, reward, norm = controller.step()
        print(
            f"step {step} loss {loss:.4f} reward {reward:.3f} grad_norm {norm:.4f}",
            flush=True,
        )
    if options.prove:
        print("fault shows:", "yes" if shows(controller) else "no")


if __name__ == "__main__":
    main()
