"""Federated clustering: scikit-learn's own checks, equality with full passes, and the inputs that are refused."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from dphe.errors import DpheError, InvalidValue
from dphe.sklearn import FederatedMiniBatchKMeans, Report
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

Arrays = tuple[NDArray[np.float64], NDArray[np.int64]]
FAST: dict[str, Any] = {"key_bits": 2048, "noise": "fast"}


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def blobs() -> Arrays:
    X, y = make_blobs(200, n_features=3, centers=4, cluster_std=0.7, random_state=0)
    return X * [1.0, 10.0, 100.0], y


@pytest.fixture(scope="module")
def groups() -> NDArray[np.int64]:
    return np.arange(200) % 5


def test_scikit_learn_accepts_the_clustering_with_encryption_on() -> None:
    model = FederatedMiniBatchKMeans(n_clusters=2, n_rounds=3, n_users=3, **FAST)
    results = check_estimator(model, on_skip=None, on_fail="raise")
    assert sum(result["status"] == "passed" for result in results) >= 45


def test_encryption_and_threads_do_not_change_the_centroids(blobs: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = blobs
    for options in ({}, {"batch_size": 10}, {"share": 0.7}):
        model = FederatedMiniBatchKMeans(4, n_rounds=5, random_state=0, n_jobs=1, **FAST, **options)
        sealed = clone(model).fit(X, groups=groups)
        plain = clone(model).set_params(secure=False, n_jobs=2).fit(X, groups=groups)
        assert np.array_equal(sealed.cluster_centers_, plain.cluster_centers_), options
        assert adjusted_rand_score(y, sealed.labels_) > 0.5, options
        assert (sealed.rounds_[-1]["ciphertexts"], plain.rounds_[-1]["ciphertexts"]) > (0, 0)


def test_clusters_grow_by_splits_as_well_as_k_means_plus_plus() -> None:
    X, y = load_digits(return_X_y=True)
    Z = StandardScaler().fit_transform(X)
    ours, theirs = [], []
    for seed in range(3):
        model = FederatedMiniBatchKMeans(10, secure=False, random_state=seed).fit(X)
        ours.append(adjusted_mutual_info_score(y, model.labels_))
        theirs.append(adjusted_mutual_info_score(y, KMeans(10, n_init=1, random_state=seed).fit_predict(Z)))
    assert [report["clusters"] for report in model.rounds_] == [2, 2, 3, 3, 5, 5, 8, 8, 10] + [10] * 10
    assert np.mean(ours) > np.mean(theirs) - 0.05


def test_rounds_with_all_samples_equal_full_passes(blobs: Arrays, groups: NDArray[np.int64]) -> None:
    X, _ = blobs
    Z = StandardScaler().fit_transform(X)
    start = X[:4]
    model = FederatedMiniBatchKMeans(4, n_rounds=3, secure=False).fit(X, groups=groups, start=start)
    plain = KMeans(4, init=Z[:4], n_init=1, max_iter=3, tol=0.0, algorithm="lloyd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain.fit(Z)
    expected = plain.cluster_centers_ * X.std(axis=0) + X.mean(axis=0)
    assert np.allclose(model.cluster_centers_, expected, rtol=1e-3, atol=1e-2)


def test_initial_samples_users_and_sparse_samples(blobs: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = blobs
    model = FederatedMiniBatchKMeans(4, secure=False, random_state=0)
    with_initial = clone(model).fit(X, groups=groups, initial=X[:20])
    assert with_initial.n_iter_ == 10
    assert adjusted_rand_score(y, with_initial.labels_) > 0.9
    assert np.allclose(with_initial.mean_, X[:20].mean(axis=0), rtol=1e-4)
    by_group = clone(model).fit(X, groups=groups)
    by_user = clone(model).fit_users([X[groups == user] for user in range(5)])
    assert np.array_equal(by_group.cluster_centers_, by_user.cluster_centers_)
    assert len(by_user.labels_) == len(X)
    sparse = clone(model).fit(scipy.sparse.csr_array(X), groups=groups)
    assert np.array_equal(by_group.cluster_centers_, sparse.cluster_centers_)


def test_partial_fit_continues(blobs: Arrays, groups: NDArray[np.int64]) -> None:
    X, _ = blobs
    for batch_size in (None, 10):
        model = FederatedMiniBatchKMeans(4, n_rounds=4, batch_size=batch_size, secure=False, random_state=2)
        whole = clone(model).fit(X, groups=groups)
        steps = clone(model)
        for _ in range(4):
            steps.partial_fit(X, groups=groups)
        assert np.allclose(whole.cluster_centers_, steps.cluster_centers_, atol=1e-9)
        assert whole.n_iter_ == steps.n_iter_ == len(steps.rounds_)
    with pytest.raises(InvalidValue, match="last call"):
        steps.set_params(n_clusters=5).partial_fit(X, groups=groups)


def test_plain_pipelines_assign_alike_both_ways(blobs: Arrays, groups: NDArray[np.int64]) -> None:
    X, _ = blobs
    model = FederatedMiniBatchKMeans(4, secure=False, random_state=0).fit(X, groups=groups)
    plain = model.to_sklearn()
    assert np.array_equal(plain.predict(X), model.predict(X))
    pooled = KMeans(4, n_init=1, random_state=0).fit(X)
    warm = FederatedMiniBatchKMeans(4, n_rounds=1, secure=False).fit(X, groups=groups, start=pooled)
    assert warm.n_iter_ == 1
    assert pickle.loads(pickle.dumps(model)).predict(X).tolist() == model.labels_.tolist()


def test_callbacks_see_every_round_and_can_stop(blobs: Arrays) -> None:
    X, _ = blobs
    seen: list[int] = []

    def watch(report: Report, model: Any) -> bool:
        seen.append(len(np.unique(model.predict(X))))
        return len(seen) == 5

    model = FederatedMiniBatchKMeans(4, secure=False, random_state=0).fit(X, callback=watch)
    assert (model.n_iter_, seen[0], seen[-1]) == (5, 2, 4)


def test_bad_samples_are_refused(blobs: Arrays, groups: NDArray[np.int64]) -> None:
    X, _ = blobs
    model = FederatedMiniBatchKMeans(4, secure=False)
    broken = X.copy()
    broken[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        model.fit(broken)
    with pytest.raises(InvalidValue, match=r"user 2: .*infinity"):
        model.fit_users([X, broken, X])
    with pytest.raises(InvalidValue, match=r"user 2: .*features"):
        model.fit_users([X, X[:, :1], X])
    with pytest.raises(InvalidValue, match="2 users"):
        model.fit_users([X, X])
    with pytest.raises(InvalidValue, match="groups has the shape"):
        model.fit(X, groups=groups[:5])
    with pytest.raises(InvalidValue, match="n_clusters=4"):
        model.fit(X[:3], groups=[0, 1, 2])
    with pytest.raises(InvalidValue, match="needed"):
        model.fit(X, start=X[:3])
    with pytest.raises(InvalidValue, match="at least 4 samples"):
        model.fit(X, initial=X[:3])
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_clusters", 0, "n_clusters"),
        ("n_rounds", 0, "n_rounds"),
        ("n_users", 2, "n_users"),
        ("batch_size", 0, "batch_size"),
        ("share", 1.5, "share"),
        ("noise", "none", "unknown noise"),
        ("key_bits", 1000, "1000"),
        ("n_jobs", 0, "n_jobs"),
        ("random_state", -1, "random_state"),
    ],
)
def test_bad_parameters_are_refused(blobs: Arrays, name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        FederatedMiniBatchKMeans().set_params(**{name: value}).fit(blobs[0])
    assert isinstance(caught.value, DpheError)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_ends_the_clustering_soon() -> None:
    X = np.random.default_rng(0).normal(size=(20000, 200))
    model = FederatedMiniBatchKMeans(100, n_rounds=100, **FAST)
    FederatedMiniBatchKMeans(2, n_rounds=1, **FAST).fit(X[:50])  # makes the key
    sent: list[float] = []

    def interrupt() -> None:
        time.sleep(1.5)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, initial=X[:200])
    ended = time.perf_counter()
    thread.join()
    assert ended - sent[0] < 0.2
    assert not hasattr(model, "cluster_centers_")


def test_growth_that_was_stopped_says_so(blobs: Arrays) -> None:
    X = blobs[0]
    model = FederatedMiniBatchKMeans(4, secure=False, random_state=0)
    model.fit(X, callback=lambda report, _: np.float64(1) > 0.5)
    assert len(model.cluster_centers_) < 4
    with pytest.raises(InvalidValue, match=r"ended with \d clusters, but n_clusters is 4"):
        model.partial_fit(X)
