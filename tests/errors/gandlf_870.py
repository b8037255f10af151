"""
Classification of generated scans, configured by a parameters dictionary.

The training frame is a table with one row per subject; images are made from the row.
"""

import argparse
import csv
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Frame:
    """A small table: named columns of equal length."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]

    def rows(self, index):
        return Frame({k: v[index] for k, v in self.columns.items()})


def make_frame(count, seed):
    rng = np.random.default_rng(seed)
    grade = rng.integers(0, 3, count)
    return Frame(
        {
            "SubjectID": np.arange(count),
            "Seed": rng.integers(0, 2**31, count),
            "Site": rng.integers(0, 2, count),
            "ValueToPredict": grade,
        }
    )


class ImagesFromFrame(Dataset):
    def __init__(self, frame, params, train):
        self.frame, self.train = frame, train
        size = params["patch_size"]
        grid = np.linspace(-1, 1, size)
        self.yy, self.xx = np.meshgrid(grid, grid, indexing="ij")
        self.rng = np.random.default_rng(params["seed"] + 17)

    def __len__(self):
        return len(self.frame)

    def render(self, index):
        rng = np.random.default_rng(self.frame["Seed"][index])
        grade = self.frame["ValueToPredict"][index]
        cy, cx = rng.uniform(-0.4, 0.4, 2)
        r = np.hypot(self.yy - cy, self.xx - cx)
        radius = 0.25 + 0.13 * grade + rng.normal(0, 0.03)
        lesion = 1 / (1 + np.exp((r - radius) * 14))
        rim = np.exp(-(((r - radius) / 0.07) ** 2)) * (grade == 2)
        image = lesion + 0.8 * rim + 0.3 * self.frame["Site"][index]
        return image + rng.normal(0, 0.35, image.shape)

    def __getitem__(self, index):
        image = self.render(index)
        if self.train:
            if self.rng.random() < 0.5:
                image = image[:, ::-1]
            image = image + self.rng.normal(0, 0.05)
        image = (image - image.mean()) / (image.std() + 1e-6)
        return {
            "subject_id": int(self.frame["SubjectID"][index]),
            "image": torch.tensor(image.copy(), dtype=torch.float32)[None],
            "value": int(self.frame["ValueToPredict"][index]),
        }


class VGGStyle(nn.Module):
    def __init__(self, params):
        super().__init__()
        width = params["base_filters"]
        layers, inp = [], 1
        for out in (width, 2 * width, 3 * width):
            layers += [
                nn.Conv2d(inp, out, 3, padding=1),
                nn.InstanceNorm2d(out),
                nn.LeakyReLU(),
                nn.MaxPool2d(2),
            ]
            inp = out
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.2), nn.LazyLinear(params["num_classes"])
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def overall_stats(predictions, ground_truth, params):
    """Accuracy, balanced accuracy and macro F1 over a whole epoch."""
    classes = params["num_classes"]
    matrix = torch.zeros(classes, classes)
    for truth, guess in zip(ground_truth.tolist(), predictions.tolist()):
        matrix[truth, guess] += 1
    hit = matrix.diag()
    recall = hit / matrix.sum(1).clamp(min=1)
    precision = hit / matrix.sum(0).clamp(min=1)
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-6)
    return {
        "accuracy": (hit.sum() / matrix.sum()).item(),
        "balanced_accuracy": recall.mean().item(),
        "f1": f1.mean().item(),
    }


def get_ground_truths_and_predictions_tensor(params, loader_type):
    ground_truth_array = torch.from_numpy(
        params[loader_type][params["value_header"]].copy()
    )
    predictions_array = torch.zeros_like(ground_truth_array)
    return ground_truth_array, predictions_array


def train_network(model, train_dataloader, optimizer, params):
    total_loss = 0.0
    truths, predictions = get_ground_truths_and_predictions_tensor(
        params, "training_data"
    )
    model.train()
    position = 0
    for subject in train_dataloader:
        optimizer.zero_grad()
        image, label = subject["image"], subject["value"]
        output = model(image)
        loss = F.cross_entropy(output, label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), params["clip_grad"])
        optimizer.step()
        total_loss += loss.item()
        span = slice(position, position + len(label))
        predictions[span] = output.detach().argmax(1)
        if params["fixed"]:
            truths[span] = label
        position += len(label)
    stats = overall_stats(predictions, truths, params)
    return total_loss / len(train_dataloader), stats


@torch.no_grad()
def validate_network(model, dataloader, params):
    total_loss, position = 0.0, 0
    truths, predictions = get_ground_truths_and_predictions_tensor(
        params, "validation_data"
    )
    model.eval()
    for subject in dataloader:
        output = model(subject["image"])
        total_loss += F.cross_entropy(output, subject["value"]).item()
        span = slice(position, position + len(output))
        predictions[span] = output.argmax(1)
        position += len(output)
    stats = overall_stats(predictions, truths, params)
    return total_loss / len(dataloader), stats


class Logger:
    def __init__(self, path):
        self.path = path
        self.fields = None

    def write(self, epoch, loss, stats):
        row = {"epoch": epoch, "loss": loss, **stats}
        new = self.fields is None
        self.fields = list(row)
        with open(self.path, "a", newline="") as f:
            writer = csv.DictWriter(f, self.fields)
            if new:
                writer.writeheader()
            writer.writerow(row)


def training_loop(training_data, validation_data, params, output_dir):
    params["training_data"] = training_data
    params["validation_data"] = validation_data
    train_set = ImagesFromFrame(training_data, params, train=True)
    valid_set = ImagesFromFrame(validation_data, params, train=False)
    generator = torch.Generator().manual_seed(params["seed"])
    train_dataloader = DataLoader(
        train_set, params["batch_size"], shuffle=True, generator=generator
    )
    valid_dataloader = DataLoader(valid_set, 50)
    model = VGGStyle(params)
    model(train_set[0]["image"][None].repeat(2, 1, 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=params["learning_rate"])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    train_logger = Logger(os.path.join(output_dir, "logs_training.csv"))
    valid_logger = Logger(os.path.join(output_dir, "logs_validation.csv"))
    best_loss, patience = float("inf"), 0
    for epoch in range(params["num_epochs"]):
        loss, stats = train_network(model, train_dataloader, optimizer, params)
        valid_loss, valid_stats = validate_network(model, valid_dataloader, params)
        scheduler.step()
        train_logger.write(epoch, loss, stats)
        valid_logger.write(epoch, valid_loss, valid_stats)
        line = "  ".join(f"{k} {v:.3f}" for k, v in stats.items())
        print(f"Epoch {epoch} Train loss {loss:.4f}  {line}")
        line = "  ".join(f"{k} {v:.3f}" for k, v in valid_stats.items())
        print(f"        Valid loss {valid_loss:.4f}  {line}")
        if valid_loss < best_loss:
            best_loss, patience = valid_loss, 0
            state = {"epoch": epoch, "model_state_dict": model.state_dict()}
            torch.save(state, os.path.join(output_dir, "vgg_best.pth.tar"))
        else:
            patience += 1
            if patience > params["patience"]:
                print(f"Patience of {params['patience']} exceeded, stopping")
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    params = {
        "patch_size": 24,
        "base_filters": 10,
        "num_classes": 3,
        "value_header": "ValueToPredict",
        "batch_size": 24,
        "num_epochs": 8,
        "learning_rate": 3e-3,
        "clip_grad": 1.0,
        "patience": 4,
        "seed": args.seed,
        "fixed": args.fixed,
    }
    frame = make_frame(460, args.seed)
    order = np.random.default_rng(args.seed).permutation(len(frame))
    with tempfile.TemporaryDirectory() as output_dir:
        training_loop(
            frame.rows(order[:360]), frame.rows(order[360:]), params, output_dir
        )


if __name__ == "__main__":
    main()
