"""Your own PyTorch model: predict the pool, then pick 50 images that are informative and class-balanced."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import tailwise
from tailwise.adapters.torch import predict

# Data and a model that you have already: digits, of which 100 are labelled.
digits = load_digits()
labels = torch.tensor(digits.target)
dataset = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, labels)
labelled, pool = Subset(dataset, range(100)), Subset(dataset, range(100, len(dataset)))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(60):
    optimiser.zero_grad()
    torch.autograd.backward(nn.functional.cross_entropy(model(dataset[:100][0]), labels[:100]))
    optimiser.step()

# Tailwise
predictions = predict(model, DataLoader(pool, 256), layer="last", labelled=DataLoader(labelled, 256))
batch = tailwise.select(predictions, 50, counts=labels[:100].bincount(minlength=10).numpy())
print(batch)
print("label these items of the pool next:", batch.indices[:10])
