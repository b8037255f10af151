"""TF-34204: a processor makes one sample of a whole batch.

Source: huggingface/transformers#34204. The processor takes a nested list of images
for one conversation with many images: fifty inputs come back as a batch of one, and
the loss compares its one prediction with all targets by broadcasting. --fixed makes
a sample of each inner list.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Processor:
    """Texts and images to tensors."""

    def __init__(self, nested):
        self.nested = nested

    def ids(self, text):
        return torch.tensor([ord(letter) % 32 for letter in text.ljust(16)[:16]])

    def __call__(self, text, images):
        if isinstance(images[0], (list, tuple)):
            if self.nested:
                groups, texts = images, text
            else:
                groups = [[image for inner in images for image in inner]]
                texts = text[:1]
        else:
            groups, texts = [[image] for image in images], text
        return {
            "input_ids": torch.stack([self.ids(one) for one in texts]),
            "pixel_values": torch.stack([torch.stack(list(g)) for g in groups]),
        }


class Rated(Dataset):
    """Pictures with a question, rated by how bright they are."""

    def __init__(self, count):
        self.brightness = torch.rand(count)
        self.pictures = 0.1 * torch.randn(count, 1, 8, 8)
        self.pictures += self.brightness[:, None, None, None]

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, row):
        return "how bright is it?", self.pictures[row], self.brightness[row]


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(32, 8)
        self.vision = nn.Sequential(
            nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(54, 8)
        )
        self.score = nn.Linear(16, 1)

    def forward(self, input_ids, pixel_values):
        samples, images = pixel_values.shape[:2]
        seen = self.vision(pixel_values.flatten(0, 1)).view(samples, images, -1)
        joint = torch.cat([self.words(input_ids), seen.mean(1)], -1)
        return self.score(joint).squeeze(-1)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=14)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    processor = Processor(nested=options.fixed)

    def collate(items):
        texts, pictures, ratings = zip(*items)
        inputs = processor(list(texts), images=[[picture] for picture in pictures])
        return inputs, torch.stack(ratings)

    loader = DataLoader(Rated(350), batch_size=50, shuffle=True, collate_fn=collate)
    model = Rater()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    step = 0
    while step < options.steps:
        for inputs, ratings in loader:
            if step == options.steps:
                break
            loss = (model(**inputs) - ratings).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        inputs, ratings = next(iter(loader))
        same = len(inputs["pixel_values"]) == len(ratings)
        print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
