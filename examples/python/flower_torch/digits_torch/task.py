"""The network and the data: digits of 8 by 8 pixels, enlarged to 28 by 28 as in the data sets of this size."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

HELD_OUT = 360


class Network(nn.Module):
    """Two convolutions and two dense layers, 151,306 parameters."""

    def __init__(self) -> None:
        """Make a network that has learnt nothing."""
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images: Any) -> Any:
        """Return a score per class."""
        return self.classifier(self.features(images))


def load_rows(rows: Any) -> tuple[Any, Any]:
    """Return samples as tensors."""
    images, labels = load_digits(return_X_y=True)
    tensor = torch.tensor(images[rows] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    larger = nn.functional.interpolate(tensor, size=(28, 28), mode="bilinear", align_corners=False)
    return larger, torch.tensor(labels[rows])


def load_part(partition: int, partitions: int) -> tuple[Any, Any]:
    """Return the samples of a node."""
    return load_rows(np.random.default_rng(0).permutation(1797)[HELD_OUT:][partition::partitions])


def load_held_out() -> tuple[Any, Any]:
    """Return the samples that no node has."""
    return load_rows(np.random.default_rng(0).permutation(1797)[:HELD_OUT])


def train(network: Network, images: Any, labels: Any, epochs: int) -> float:
    """Learn, and return the mean loss of the last epoch."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    network.train()
    loss = 0.0
    for _ in range(epochs):
        losses = []
        for rows in torch.randperm(len(labels)).split(32):
            optimizer.zero_grad()
            error = nn.functional.cross_entropy(network(images[rows]), labels[rows])
            error.backward()
            optimizer.step()
            losses.append(float(error))
        loss = sum(losses) / len(losses)
    return loss


def accuracy(network: Network, images: Any, labels: Any) -> float:
    """Return the share of samples that are classified correctly."""
    network.eval()
    with torch.no_grad():
        return float((network(images).argmax(dim=1) == labels).float().mean())
