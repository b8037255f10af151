"""A LightningModule, fitted and validated for two epochs of eight steps."""

import logging
import sys
import warnings

import lightning
import torch

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        x, y = batch
        self.loss = torch.nn.functional.mse_loss(self.net(x), y)
        return self.loss

    def validation_step(self, batch, index):
        self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


lightning.seed_everything(1, verbose=False)
data = torch.utils.data.TensorDataset(torch.rand(64, 4), torch.rand(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model = Line()
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    default_root_dir=sys.argv[1],
)
trainer.fit(model, loader, loader)
print("loss", model.loss.item())
