"""Three shops add up their sales without showing them.

The owner of the secret key sees the total only. Run it with ``python examples/python/paillier.py``. It needs numpy and
the package ``dphe``. Lines that begin with ``# >`` are what the step above them prints, which a test compares.
"""

# %%
from __future__ import annotations

import numpy as np
from dphe import DpheError, phe
from dphe.paillier import DecryptionKey, EncryptedArray, EncryptionKey

# %% [markdown]
# ## Keys
# The auditor keeps the secret key, under a passphrase if it goes to disk. Everybody may have the public one.

# %%
secret = DecryptionKey.generate(2048, noise="fast")  # takes seconds; the default length is 3072 bits
sealed = secret.seal(b"a long passphrase")
public = secret.encryption_key.to_bytes()
same = DecryptionKey.open(sealed, b"a long passphrase").encryption_key == secret.encryption_key
print(f"{secret.encryption_key.bits} bits, opens again: {same}")
# > 2048 bits, opens again: True

# %% [markdown]
# ## Each shop encrypts an array
# Shops send bytes. A ciphertext takes 512 bytes at 2048 bits, whatever it holds.

# %%
key = EncryptionKey.from_bytes(public)
sales = np.array([[120, 80, 0, 31], [95, 102, 7, 18], [143, 64, 2, 25]])
messages = [key.encrypt(shop).to_bytes() for shop in sales]
print("ciphertexts of a shop:", EncryptedArray.from_bytes(messages[0], key).nbytes, "bytes")
# > ciphertexts of a shop: 2048 bytes

# %% [markdown]
# ## Anybody adds them up, and only the auditor reads the total

# %%
total = key.sum(messages)
print("sales per product:", secret.decrypt(total))
print("in euros:", secret.decrypt(total * np.array([3, 5, 20, 1])))
# > sales per product: [358 246   9  74]
# > in euros: [1074 1230  180   74]

# %% [markdown]
# ## Many small numbers share a ciphertext
# Packing takes the largest value and the number of terms in advance, and refuses what could overflow.

# %%
packing = key.packing(value_bits=16, terms=100)
hours = [key.encrypt(np.arange(1000) + shop, packing=packing) for shop in range(3)]
print(f"{packing.slots} values per ciphertext, {hours[0].ciphertexts} ciphertexts for 1000 values")
print("last hour:", secret.decrypt(key.sum(hours))[-1])
# > 88 values per ciphertext, 12 ciphertexts for 1000 values
# > last hour: 3000

# %% [markdown]
# ## Fractions
# All values of an array have the same public number of bits after the binary point.

# %%
rates = key.encrypt([0.5, -2.25], scale_bits=16)
print("three times the rates, plus one:", secret.decrypt(rates * 3 + 1))
# > three times the rates, plus one: [ 2.5  -5.75]

# %% [markdown]
# ## Errors say what happened, and have codes

# %%
try:
    key.encrypt([0.0, float("nan")], scale_bits=8)
except DpheError as error:
    print(f"{error.code}: {error}")
try:
    rates + total
except DpheError as error:
    print(f"{error.code}: {error}")
# > number: number 1 is not finite
# > fractional_bits: the arrays have 16 and no fractional bits

# %% [markdown]
# ## A program that uses python-paillier
# Change its import. Numbers, keys and ciphertexts stay the same.

# %%
public_key, private_key = phe.generate_paillier_keypair(n_length=2048)
numbers = phe.encrypt_many(public_key, [3.5, 2, -1])
print("one number:", private_key.decrypt(numbers[0] * 2 - 1))
print("a list:", private_key.decrypt(phe.sum_of(numbers)))
# > one number: 6.0
# > a list: 4.5
