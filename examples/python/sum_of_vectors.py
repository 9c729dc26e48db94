"""Five clinics average the weights of a network, and nobody sees the weights of a single clinic.

The three parties of the protocol exchange bytes. Here they are objects of one program. Run it with
``python examples/python/sum_of_vectors.py``. It needs numpy and the package ``dphe``. Lines that begin with ``# >`` are
what the step above them prints, which a test compares.
"""

# %%
from __future__ import annotations

from collections.abc import Callable

import dphe
import numpy as np
from dphe.paillier import DecryptionKey
from dphe.vectors import chooser

random = np.random.default_rng(1)

# %% [markdown]
# ## The task
# A layout says which arrays are summed. Integers, such as a counter of steps, stay at home. A scale per name takes care
# of layers that differ in magnitude.

# %%
network = {
    "conv.weight": np.zeros((16, 1, 3, 3), np.float32),
    "dense.weight": np.zeros((10, 784), np.float32),
    "dense.bias": np.zeros(10, np.float32),
    "steps": np.array(0),
}
layout = dphe.Layout.of(network, scales={"dense.bias": 8.0})
task = dphe.Task(layout, users=5, key_bits=2048, noise="fast")
cost = task.cost()
print(f"{layout.size} values: {cost.ciphertexts} ciphertexts, {cost.bytes} bytes per user and round")
print("stays at home:", layout.skipped)
# > 7994 values: 80 ciphertexts, 41081 bytes per user and round
# > stays at home: ('steps',)

# %% [markdown]
# ## The parties
# The key generator makes a kit for every party. A kit holds secrets: send it to that party only.

# %%
key = DecryptionKey.generate(2048, noise="fast")  # takes seconds; the default length is 3072 bits
generator = dphe.KeyGenerator(task, key)
users = [dphe.User(generator.enroll(number)) for number in range(1, 6)]
aggregator = dphe.Aggregator(generator.aggregator_kit())
print("users:", generator.users)
# > users: (1, 2, 3, 4, 5)

# %% [markdown]
# ## A round
# Users seal their arrays, the aggregator adds them up, and the key generator opens the sum. Users check what comes
# back. User 4 is absent, which the sum says.


# %%
def trained() -> dict[str, np.ndarray]:
    """Return what a user learnt: here, random numbers."""
    return {
        name: random.uniform(-0.1, 0.1, array.shape).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in network.items()
    }


updates = {user.number: trained() for user in users if user.number != 4}
collecting = aggregator.begin(1)
for user in users:
    if user.number in updates:
        sent = user.seal(1, updates[user.number])  # user -> aggregator
        collecting.accept(sent)
opened = generator.open(collecting.finish())  # aggregator -> key generator -> aggregator
published = collecting.publish(opened)  # aggregator -> users
total = users[0].check(published)
mean = total.tensors()
exact = np.mean([update["dense.weight"] for update in updates.values()], axis=0)
print("users in the sum:", total.users)
print("names:", sorted(mean), "shape:", mean["conv.weight"].shape, "dtype:", mean["conv.weight"].dtype)
print("error below 2 ** -16:", bool(np.abs(mean["dense.weight"] - exact).max() < 2**-16))
# > users in the sum: (1, 2, 3, 5)
# > names: ['conv.weight', 'dense.bias', 'dense.weight'] shape: (16, 1, 3, 3) dtype: float32
# > error below 2 ** -16: True

# %% [markdown]
# ## What is refused
# An update of another round, one that is too long, and values that are not numbers are refused, and change nothing.

# %%
collecting = aggregator.begin(2)
attempts: dict[str, Callable[[], object]] = {
    "old": lambda: collecting.accept(sent),
    "too long": lambda: collecting.accept(users[0].seal(2, trained()) + b"more"),
    "not finite": lambda: users[1].seal(2, {**trained(), "dense.bias": np.full(10, np.nan, np.float32)}),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except dphe.DpheError as error:
        print(f"{name}: {error.code}: {error}")
print("users so far:", collecting.users)
# > old: stale: round 1 is over; the current round is 2
# > too long: size: the body of an upload exceeds what the task allows
# > not finite: value: array 'dense.bias': value 0 is not a finite number
# > users so far: ()

# %% [markdown]
# ## A tenth of the weights per round
# A chooser sends a part of what a user learnt, and keeps the rest for later rounds. Every round takes other positions.

# %%
tenth = dphe.Task(layout, users=5, key_bits=2048, noise="fast", share=0.1)
rotating = chooser("rotate", tenth)
user = dphe.User(dphe.KeyGenerator(tenth, key).enroll(1))
sizes = []
for number in (1, 2, 3):
    part = rotating.take(number, layout.flatten(trained()))
    sizes.append(len(user.seal(number, part)))
    rotating.settle(number, included=True)
print(f"bytes per round: {sizes}, a whole update takes {cost.bytes}")
# > bytes per round: [4729, 4729, 4729], a whole update takes 41081
