"""The model and the data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

HELD_OUT = 360


def load_part(partition: int, partitions: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the samples of a node."""
    images, labels = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(labels))[HELD_OUT:][partition::partitions]
    return images[rows] / 16, labels[rows]


def load_held_out() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the samples that no node has."""
    images, labels = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(labels))[:HELD_OUT]
    return images[rows] / 16, labels[rows]


def make_model(iterations: int) -> LogisticRegression:
    """Return a model that has learnt nothing."""
    model = LogisticRegression(max_iter=iterations, warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = np.zeros((10, 64)), np.zeros(10)
    return model


def train(model: LogisticRegression, images: NDArray[Any], labels: NDArray[Any]) -> None:
    """Go on learning for a few iterations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(images, labels)
