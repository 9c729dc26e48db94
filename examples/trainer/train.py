#!/usr/bin/env python3
"""A trainer for `dphe join --trainer`: a network of two layers, in Python without packages.

    train.py SAMPLES.csv               trains one round (dphe sets the variables DPHE_...)
    train.py --new INPUTS CLASSES FILE writes a network to start from
    train.py --test FILE SAMPLES.csv   prints the accuracy of a network

A line of SAMPLES.csv has the inputs and the number of the class, counted from 0.
"""

import array
import json
import math
import os
import random
import struct
import sys

HIDDEN = 8
EPOCHS = 5
STEP = 0.1
NAMES = ("hidden.weight", "hidden.bias", "output.weight", "output.bias")


def read_tensors(path):
    """Return the tensors of a safetensors file, by name: type, shape and values."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        start, end = about["data_offsets"]
        values = array.array({"F32": "f", "I64": "q"}[about["dtype"]], data[start:end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = (about["dtype"], about["shape"], values)
    return tensors


def write_tensors(path, tensors):
    """Write a safetensors file."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        values = array.array(values.typecode, values)
        if sys.byteorder == "big":
            values.byteswap()
        start, data = len(data), data + values.tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_samples(path):
    """Return the inputs and the class of every line."""
    with open(path) as file:
        rows = [line.split(",") for line in file if line.strip()]
    return [([float(value) for value in row[:-1]], int(row[-1])) for row in rows]


class Network:
    """tanh units between the inputs and a softmax."""

    def __init__(self, tensors):
        self.weight, self.bias, self.out_weight, self.out_bias = (list(tensors[name][2]) for name in NAMES)
        self.inputs = len(self.weight) // len(self.bias)

    def run(self, inputs):
        """Return the hidden units and the probabilities of the classes."""
        width, units = self.inputs, len(self.bias)
        hidden = [
            math.tanh(self.bias[j] + sum(w * x for w, x in zip(self.weight[j * width :], inputs)))
            for j in range(units)
        ]
        scores = [
            self.out_bias[k] + sum(w * h for w, h in zip(self.out_weight[k * units :], hidden))
            for k in range(len(self.out_bias))
        ]
        largest = max(scores)
        powers = [math.exp(score - largest) for score in scores]
        return hidden, [power / sum(powers) for power in powers]

    def learn(self, inputs, label):
        """Make one step down the gradient, and return the loss before it."""
        hidden, probabilities = self.run(inputs)
        loss = -math.log(max(probabilities[label], 1e-12))
        units = len(hidden)
        errors = [p - (k == label) for k, p in enumerate(probabilities)]
        for j in range(units):
            back = sum(error * self.out_weight[k * units + j] for k, error in enumerate(errors))
            back *= 1 - hidden[j] ** 2
            self.bias[j] -= STEP * back
            for i, x in enumerate(inputs):
                self.weight[j * self.inputs + i] -= STEP * back * x
        for k, error in enumerate(errors):
            self.out_bias[k] -= STEP * error
            for j in range(units):
                self.out_weight[k * units + j] -= STEP * error * hidden[j]
        return loss


def train(samples):
    """Train one round: read the global model, train on this user's samples, and write the local model."""
    tensors = read_tensors(os.environ["DPHE_GLOBAL"])
    network = Network(tensors)
    order = random.Random(int(os.environ["DPHE_SEED"]))
    for _ in range(EPOCHS):
        order.shuffle(samples)
        losses = [network.learn(inputs, label) for inputs, label in samples]
    trained = (network.weight, network.bias, network.out_weight, network.out_bias)
    for name, values in zip(NAMES, trained):
        dtype, shape, _ = tensors[name]
        tensors[name] = (dtype, shape, array.array("f", values))
    write_tensors(os.environ["DPHE_LOCAL"], tensors)
    print(f"round {os.environ['DPHE_ROUND']}: loss {sum(losses) / len(losses):.4f}")


def new(inputs, classes, path):
    """Write a network with random weights."""
    draw = random.Random(1)

    def tensor(*shape, scale):
        values = (draw.uniform(-scale, scale) for _ in range(math.prod(shape)))
        return ("F32", list(shape), array.array("f", values))

    write_tensors(
        path,
        {
            # integers are not trained: they stay as they are
            "version": ("I64", [], array.array("q", [1])),
            "hidden.weight": tensor(HIDDEN, inputs, scale=1 / math.sqrt(inputs)),
            "hidden.bias": tensor(HIDDEN, scale=0.0),
            "output.weight": tensor(classes, HIDDEN, scale=1 / math.sqrt(HIDDEN)),
            "output.bias": tensor(classes, scale=0.0),
        },
    )


def test(path, samples):
    """Print the share of samples whose class is the most probable one."""
    network = Network(read_tensors(path))
    right = 0
    for inputs, label in samples:
        _, probabilities = network.run(inputs)
        right += probabilities.index(max(probabilities)) == label
    print(f"accuracy {right / len(samples):.3f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--new", inputs, classes, path]:
            new(int(inputs), int(classes), path)
        case ["--test", path, file]:
            test(path, read_samples(file))
        case [file]:
            train(read_samples(file))
        case _:
            sys.exit(__doc__)
