"""Five users train one classifier of handwritten digits.

Users send encrypted updates, and only their sums are opened. All parties are simulated in this process. Run it with
``python examples/python/sklearn_digits.py``. It needs ``pip install "dphe[sklearn]"`` and downloads nothing.
"""

# %%
from __future__ import annotations

from typing import Any

from dphe.sklearn import FederatedMiniBatchKMeans, FederatedSGDClassifier, Report, split
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import adjusted_mutual_info_score

X, y = load_digits(return_X_y=True)
parts = split(y, random_state=0)  # the split of `dphe simulate --seed 0`
users = [(X[rows], y[rows]) for rows in parts.users]
initial = (X[parts.initial], y[parts.initial])  # public: three samples per digit
held_out = (X[parts.held_out], y[parts.held_out])

# %% [markdown]
# ## Rounds
# A callback sees the report of every round and the model so far.


# %%
def show(report: Report, model: Any) -> None:
    """Print a line per round."""
    accuracy = 100 * model.score(*held_out)
    print(f"round {report['round']:2}: {accuracy:.1f} %, {report['bytes']:,} bytes per user")


model = FederatedSGDClassifier(key_bits=2048, noise="fast", random_state=0)
model.fit_users(users, initial=initial, callback=show)
# > round  1: 77.6 %, 1,056 bytes per user
# > round  2: 83.8 %, 1,056 bytes per user
# > round  3: 87.2 %, 1,056 bytes per user
# > round  4: 89.8 %, 1,056 bytes per user
# > round  5: 91.2 %, 1,056 bytes per user
# > round  6: 92.2 %, 1,056 bytes per user
# > round  7: 93.8 %, 1,056 bytes per user
# > round  8: 92.8 %, 1,056 bytes per user
# > round  9: 93.8 %, 1,056 bytes per user
# > round 10: 93.8 %, 1,056 bytes per user
# > round 11: 93.8 %, 1,056 bytes per user
# > round 12: 94.2 %, 1,056 bytes per user
# > round 13: 94.2 %, 1,056 bytes per user
# > round 14: 94.6 %, 1,056 bytes per user
# > round 15: 94.6 %, 1,056 bytes per user

# %% [markdown]
# ## Compared with one user alone, and without encryption

# %%
alone = SGDClassifier(random_state=0).fit(*users[0])
plain = FederatedSGDClassifier(secure=False, random_state=0).fit_users(users, initial=initial)
print(f"together {100 * model.score(*held_out):.1f} %, user 1 alone {100 * alone.score(*held_out):.1f} %")
assert (plain.coef_ == model.coef_).all(), "encryption changes no weight"
assert model.score(*held_out) > alone.score(*held_out)
# > together 94.6 %, user 1 alone 92.4 %

# %% [markdown]
# ## A plain scikit-learn pipeline with the same predictions

# %%
pipeline = model.to_sklearn()
assert (pipeline.predict(X) == model.predict(X)).all()

# %% [markdown]
# ## Clusters without labels

# %%
clusters = FederatedMiniBatchKMeans(10, key_bits=2048, noise="fast", random_state=0)
clusters.fit_users([samples for samples, _ in users])
agreement = adjusted_mutual_info_score(y, clusters.predict(X))
print(f"10 clusters, adjusted mutual information with the digits {agreement:.2f}")
assert agreement > 0.5
# > 10 clusters, adjusted mutual information with the digits 0.63
