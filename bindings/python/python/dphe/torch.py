"""Networks of PyTorch as named arrays, and back: which of their tensors are summed, and which stay with a user.

This module does not import torch. It meets tensors by their methods, so it works with every version from 1.13 on, and
with other frameworks whose modules have ``state_dict``, ``named_parameters`` and ``load_state_dict``.

.. code-block:: python

    names = select(network)  # what is trained, without the statistics of norm layers
    layout = layout_of(network, names)  # for a dphe.Task
    before = state(network, names)
    ...  # train
    sealed = user.seal(1, difference(before, network))
    load(network, {name: before[name] + change for name, change in total.tensors().items()})

``select`` can be narrowed to a few layers: :func:`head` names those of a new head on a network that is not trained, and
:func:`lora` those of low-rank adapters. Long vectors need not be sent whole (:mod:`dphe.vectors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphe.errors import InvalidValue
from dphe.layout import Layout, as_array

__all__ = ["STATISTICS", "difference", "head", "layout_of", "load", "lora", "select", "state"]

#: What the running statistics of norm layers have in their names. Each user normalises its own data with its own.
STATISTICS = ("running_mean", "running_var")


def select(
    module: Any,
    *,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] = STATISTICS,
    trainable_only: bool = True,
) -> tuple[str, ...]:
    """Return the names of the tensors that are summed, in the order of the module.

    A name is taken if it contains one of ``include`` (all names do without it) and none of ``exclude``. By default,
    these are the parameters that are trained. With ``trainable_only=False``, they are also frozen parameters and
    buffers of floating-point numbers. Counters and other integers have no mean, and are never taken.

    Norm layers stay with each user if ``exclude`` names them, as in ``exclude=(*STATISTICS, "bn")``.
    """
    wanted = None if include is None else _texts(include, "include")
    unwanted = _texts(exclude, "exclude")
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    names = []
    for name, tensor in module.state_dict().items():
        if (trainable_only and name not in trained) or not _is_floating(tensor):
            continue
        if wanted is not None and not any(text in name for text in wanted):
            continue
        if not any(text in name for text in unwanted):
            names.append(name)
    if not names:
        raise InvalidValue("no tensor of the module is selected", "name")
    return tuple(names)


def head(module: Any, *layers: str) -> tuple[str, ...]:
    """Return the names of the trained tensors in these layers, such as ``head(network, "fc")``."""
    prefixes = tuple(f"{layer}." for layer in _texts(layers, "layers"))
    names = tuple(name for name in select(module) if name.startswith(prefixes))
    if not names:
        raise InvalidValue(f"the module has no trained tensors in {', '.join(layers) or 'no layer'}", "name")
    return names


def lora(module: Any) -> tuple[str, ...]:
    """Return the names of the trained tensors of low-rank adapters, which have ``lora_`` in their names.

    The product of two averaged factors is not the average of the products. That is how FedAvg with adapters works; to
    average the products, train one factor at a time, or include ``lora_B`` only.
    """
    return select(module, include=("lora_",))


def state(module: Any, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return copies of tensors as arrays: of those with these names, or of those that :func:`select` returns.

    Numbers of 16 bits that numpy does not know (``bfloat16``) become single precision.
    """
    tensors = module.state_dict()
    arrays = {}
    for name in select(module) if names is None else names:
        if name not in tensors:
            raise InvalidValue(f"the module has no tensor {name!r}", "name")
        if not _is_floating(tensors[name]):
            raise InvalidValue(f"tensor {name!r} has integers, which have no mean", "name")
        arrays[name] = np.array(_as_array(tensors[name], name))
    return arrays


def layout_of(
    module: Any, names: Iterable[str] | None = None, *, scales: Mapping[str, float] | None = None
) -> Layout:
    """Return the layout of tensors, for a :class:`dphe.Task`."""
    return Layout.of(state(module, names), scales=scales)


def difference(before: Mapping[str, Any], module: Any) -> dict[str, NDArray[Any]]:
    """Return what has been learnt since :func:`state` returned ``before``."""
    after = state(module, before)
    return {name: after[name] - as_array(array, name) for name, array in before.items()}


def load(module: Any, values: Mapping[str, Any] | NDArray[Any], layout: Layout | None = None) -> None:
    """Write arrays into the tensors with their names, or a vector with its layout. Other tensors stay as they are.

    Tensors keep their dtypes and devices. If an array does not fit, no tensor is changed.
    """
    if not isinstance(values, Mapping):
        if layout is None:
            raise TypeError("a vector needs its layout")
        values = layout.unflatten(values)
    tensors = module.state_dict()
    changed = {}
    for name, value in values.items():
        if name not in tensors:
            raise InvalidValue(f"the module has no tensor {name!r}", "name")
        array = as_array(value, name)
        if array.shape != tuple(tensors[name].shape):
            raise InvalidValue(
                f"array {name!r} has shape {array.shape} instead of {tuple(tensors[name].shape)}", "dimension"
            )
        if not np.isfinite(array).all():
            raise InvalidValue(f"array {name!r} has a value that is not a finite number", "value")
        changed[name] = tensors[name].new_tensor(np.array(array))
    module.load_state_dict(changed, strict=False)


def _is_floating(tensor: Any) -> bool:
    return bool(tensor.is_floating_point())


def _as_array(tensor: Any, name: str) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return as_array(tensor, name)


def _texts(texts: Iterable[str], name: str) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise TypeError(f"{name} is a list of strings, not a string")
    found = tuple(texts)
    if not all(isinstance(text, str) and text for text in found):
        raise TypeError(f"{name} is a list of strings that are not empty")
    return found
