"""A loop that accelerate has prepared: two batches a step, eight steps."""

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
)
data = torch.utils.data.TensorDataset(torch.rand(64, 4), torch.rand(64, 1))
model, optimizer, loader = accelerator.prepare(
    model,
    torch.optim.Adam(model.parameters()),
    torch.utils.data.DataLoader(data, batch_size=8),
)
for _ in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
print("loss", loss.item())
