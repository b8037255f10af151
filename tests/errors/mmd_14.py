"""MMD-14: after the first evaluation the training goes on in eval mode.

Source: shubhamagarwal92/mmd#14 (also MILVLG/mcan-vqa#26, tk-rusch/coRNN#1). The
evaluation switches the model to eval mode, and train() is called once only, before
the loop: from then on nothing is dropped and the batch statistics stand still.
--fixed switches back after the evaluation.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Dialogue(nn.Module):
    """Scores an answer by the question and a picture's features."""

    def __init__(self, words=40, width=16):
        super().__init__()
        self.words = nn.EmbeddingBag(words, width)
        self.picture = nn.Sequential(nn.Linear(10, width), nn.BatchNorm1d(width))
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(2 * width, 5)

    def forward(self, question, features):
        joint = torch.cat([self.words(question), self.picture(features).relu()], -1)
        return self.out(self.dropout(joint))


def evaluate(model, loader):
    model.eval()
    total = right = 0
    with torch.no_grad():
        for question, features, answer in loader:
            right += (model(question, features).argmax(1) == answer).sum().item()
            total += len(answer)
    return right / total


def dialogues(count, generator):
    answer = torch.randint(5, (count,), generator=generator)
    question = torch.randint(40, (count, 6), generator=generator)
    question[:, 0] = 8 * answer + question[:, 1] % 8
    features = torch.randn(count, 10, generator=generator)
    features[torch.arange(count), answer] += 1
    return TensorDataset(question, features, answer)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    training = DataLoader(dialogues(320, generator), batch_size=32, shuffle=True)
    validation = DataLoader(dialogues(96, generator), batch_size=48)
    model = Dialogue()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    modes = []
    step = 0
    while step < options.steps:
        for question, features, answer in training:
            if step == options.steps:
                break
            modes.append(model.training)
            loss = nn.functional.cross_entropy(model(question, features), answer)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 8 == 7:
                print(f"accuracy {evaluate(model, validation):.3f}", flush=True)
                if options.fixed:
                    model.train()
            step += 1
    if options.prove:
        print("fault shows:", "no" if all(modes) else "yes")


if __name__ == "__main__":
    main()
