"""Networks as named arrays: with torch where it is installed, and with a stand-in of the same methods otherwise."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import dphe
import numpy as np
import pytest
from dphe.errors import InvalidValue
from dphe.paillier import DecryptionKey
from dphe.torch import STATISTICS, difference, head, layout_of, load, lora, select, state
from dphe.vectors import Rotating


class Tensor:
    """The methods of a tensor that the module uses."""

    def __init__(self, array: Any, *, requires_grad: bool = False) -> None:
        self.array = np.array(array)
        self.requires_grad = requires_grad
        self.dtype, self.shape = self.array.dtype, self.array.shape

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def is_floating_point(self) -> bool:
        return self.array.dtype.kind == "f"

    def new_tensor(self, values: Any) -> Tensor:
        return Tensor(np.asarray(values, self.dtype))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class Module:
    """A network of two layers and a norm layer, and adapters of the first one."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.frozen = {"body.weight"}
        self.buffers = {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}
        self.tensors: dict[str, Any] = {
            "body.weight": rng.normal(size=(5, 4)).astype(np.float32),
            "body.lora_A": rng.normal(size=(2, 4)).astype(np.float32),
            "body.lora_B": np.zeros((5, 2), np.float32),
            "bn.weight": np.ones(5, np.float32),
            "bn.running_mean": np.zeros(5, np.float32),
            "bn.running_var": np.ones(5, np.float32),
            "bn.num_batches_tracked": np.array(3),
            "fc.weight": rng.normal(size=(3, 5)).astype(np.float32),
            "fc.bias": np.zeros(3, np.float32),
        }

    def state_dict(self) -> dict[str, Any]:
        return {name: Tensor(array) for name, array in self.tensors.items()}

    def named_parameters(self) -> Any:
        for name, array in self.tensors.items():
            if name not in self.buffers:
                yield name, Tensor(array, requires_grad=name not in self.frozen)

    def load_state_dict(self, tensors: dict[str, Any], strict: bool) -> None:
        assert not strict
        self.tensors.update({name: tensor.array for name, tensor in tensors.items()})


def torch_module() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    module = torch.nn.Module()
    module.body = torch.nn.Linear(4, 5, bias=False)
    module.body.weight.requires_grad = False
    module.body.lora_A = torch.nn.Parameter(torch.randn(2, 4))
    module.body.lora_B = torch.nn.Parameter(torch.zeros(5, 2))
    module.bn = torch.nn.BatchNorm1d(5)
    module.bn.bias = None
    module.fc = torch.nn.Linear(5, 3)
    return module


@pytest.fixture(params=["stand-in", "torch"])
def module(request: pytest.FixtureRequest) -> Any:
    return Module() if request.param == "stand-in" else torch_module()


TRAINED = {"body.lora_A", "body.lora_B", "bn.weight", "fc.weight", "fc.bias"}


def test_trained_tensors_are_selected(module: Any) -> None:
    assert set(select(module)) == TRAINED
    assert set(select(module, exclude=(*STATISTICS, "bn."))) == TRAINED - {"bn.weight"}
    assert set(select(module, trainable_only=False)) == TRAINED | {"body.weight"}
    everything = select(module, trainable_only=False, exclude=())
    assert set(everything) == TRAINED | {"body.weight", "bn.running_mean", "bn.running_var"}
    assert set(head(module, "fc")) == {"fc.weight", "fc.bias"}
    assert set(lora(module)) == {"body.lora_A", "body.lora_B"}


def test_counters_and_unknown_names_are_refused(module: Any) -> None:
    with pytest.raises(InvalidValue, match="integers"):
        state(module, ["bn.num_batches_tracked"])
    with pytest.raises(InvalidValue, match="no tensor"):
        state(module, ["fc.nothing"])
    with pytest.raises(InvalidValue, match="no trained tensors"):
        head(module, "body.weight")
    with pytest.raises(InvalidValue, match="selected"):
        select(module, include=("nothing",))
    with pytest.raises(TypeError, match="not a string"):
        select(module, include="fc")


def test_differences_are_loaded_and_nothing_else_changes(module: Any) -> None:
    before = state(module)
    everything = state(module, select(module, trainable_only=False, exclude=()))
    step = {name: np.full_like(array, 0.25) for name, array in before.items()}
    load(module, {name: before[name] + step[name] for name in before})
    change = difference(before, module)
    assert all(np.allclose(change[name], 0.25, atol=1e-6) for name in before)
    for name, array in everything.items():
        expected = array + 0.25 if name in before else array
        assert np.allclose(state(module, [name])[name], expected, atol=1e-6), name
    layout = layout_of(module)
    load(module, layout.flatten(before), layout)
    assert all(np.array_equal(state(module)[name], before[name]) for name in before)


def test_arrays_that_do_not_fit_change_nothing(module: Any) -> None:
    before = state(module)
    bias, bad = before["fc.bias"] + 1, np.full(3, np.nan, np.float32)
    for values in (
        {"fc.bias": bias, "fc.weight": np.zeros(3, np.float32)},
        {"fc.bias": bias, "fc.nothing": bias},
        {"fc.bias": bad},
    ):
        with pytest.raises(InvalidValue):
            load(module, values)
    with pytest.raises(TypeError, match="layout"):
        load(module, np.zeros(3))
    assert all(np.array_equal(state(module)[name], before[name]) for name in before)


def test_users_average_a_network_in_turns(module: Any, secret: DecryptionKey) -> None:
    layout = layout_of(module)
    task = dphe.Task(layout, users=3, key_bits=2048, share=0.5, block=1)
    generator = dphe.KeyGenerator(task, secret)
    users = [dphe.User(generator.enroll(number)) for number in (1, 2, 3)]
    aggregator = dphe.Aggregator(generator.aggregator_kit())
    choosers = [Rotating(task, feedback=1.0) for _ in users]
    before = state(module)
    steps = np.random.default_rng(1).uniform(-0.3, 0.3, (3, layout.size))
    total = np.zeros(layout.size)
    for number in (1, 2):
        collecting = aggregator.begin(number)
        for user, chooser, step in zip(users, choosers, steps, strict=True):
            part = chooser.take(number, step if number == 1 else np.zeros(layout.size))
            collecting.accept(user.seal(number, part))
            chooser.settle(number, included=True)
        total += users[0].check(collecting.publish(generator.open(collecting.finish()))).mean()
    # In two rounds, everything has been sent once.
    load(module, layout.flatten(before) + total, layout)
    assert np.allclose(layout.flatten(difference(before, module)), steps.mean(axis=0), atol=1e-4)


def test_half_precision_of_torch_becomes_single_precision() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    module = torch.nn.Linear(3, 2).to(torch.bfloat16)
    before = state(module)
    assert {array.dtype for array in before.values()} == {np.dtype(np.float32)}
    load(module, {name: array + 1 for name, array in before.items()})
    assert module.weight.dtype == torch.bfloat16
    assert np.allclose(difference(before, module)["bias"], 1, atol=0.02)


def test_the_module_does_not_import_torch() -> None:
    code = "import sys, dphe.torch; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert importlib.util.find_spec("dphe.torch") is not None
