"""Federated estimators: scikit-learn's own checks, equality with the program, and the inputs that are refused."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn
from dphe.errors import DpheError, InvalidValue, StorageError
from dphe.sklearn import FederatedSGDClassifier, Report, split
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

Arrays = tuple[NDArray[np.float64], NDArray[np.int64]]
ROOT = Path(__file__).resolve().parents[3]
FAST: dict[str, Any] = {"key_bits": 2048, "noise": "fast"}


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def digits() -> Arrays:
    X, y = load_digits(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def iris() -> Arrays:
    X, y = load_iris(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def groups() -> NDArray[np.int64]:
    return np.arange(150) % 5


def program() -> Path:
    """Return the program ``dphe`` of this source code, or skip the test."""
    places = [os.environ.get("DPHE_TEST_PROGRAM"), ROOT / "target/debug/dphe", ROOT / "target/release/dphe"]
    found = [Path(place) for place in places if place and Path(place).is_file()]
    if not found:
        pytest.skip("there is no program dphe; run `cargo build` or set DPHE_TEST_PROGRAM")
    return found[0]


def read_model(path: Path) -> dict[str, NDArray[np.float64]]:
    """Read the tensors of a model file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    body = data[8 + length :]
    tensors = {}
    for name, about in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            first, last = about["data_offsets"]
            tensors[name] = np.frombuffer(body[first:last], "<f8").reshape(about["shape"])
    return tensors


def of_users(X: Any, y: Any, parts: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, Any]]:
    return [(X[rows], y[rows]) for rows in parts.users], (X[parts.initial], y[parts.initial])


@pytest.mark.timeout(300)
def test_scikit_learn_accepts_the_classifier_with_encryption_on() -> None:
    results = check_estimator(
        FederatedSGDClassifier(n_rounds=10, n_users=3, **FAST), on_skip=None, on_fail="raise"
    )
    assert sum(result["status"] == "passed" for result in results) >= 53


@pytest.mark.parametrize(
    "words", [[], ["--payload", "d-topk", "--share", "0.05", "--weighted"], ["--payload", "d-l1"]]
)
def test_the_program_computes_the_same_weights(digits: Arrays, words: list[str], tmp_path: Path) -> None:
    X, y = digits
    command = [str(program()), "simulate", "--plain" if words else "--noise=fast", "--bits=2048", "--seed=7"]
    subprocess.run(
        [*command, "--rounds=4", "-o", "run", *words], cwd=tmp_path, check=True, capture_output=True
    )
    expected = read_model(tmp_path / "run" / "model.safetensors")
    options: list[dict[str, Any]] = [
        {**FAST},
        {"payload": "d-topk", "share": 0.05, "weighting": "samples", **FAST},
        {"payload": "d-l1", **FAST},
    ]
    chosen = options[["", "d-topk", "d-l1"].index(words[1] if words else "")]
    users, initial = of_users(X, y, split(y, random_state=7))
    model = FederatedSGDClassifier(n_rounds=4, random_state=7, **chosen).fit_users(users, initial=initial)
    assert np.array_equal(model.mean_, expected["mean"])
    assert np.array_equal(model.scale_, expected["deviation"])
    if not words:
        assert np.array_equal(model.weights_, expected["weights"])
        assert np.array_equal(model.intercepts_, expected["intercepts"])
    else:
        # without encryption, the program does not round
        assert np.allclose(model.weights_, expected["weights"], atol=1e-3)


def test_encryption_and_threads_do_not_change_the_weights(iris: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = iris
    for options in ({}, {"payload": "all", "weighting": "samples"}, {"payload": "d-block", "share": 0.5}):
        sealed = FederatedSGDClassifier(random_state=3, n_rounds=4, n_jobs=1, **FAST, **options)
        plain = FederatedSGDClassifier(random_state=3, n_rounds=4, secure=False, n_jobs=2, **options)
        sealed.fit(X, y, groups=groups)
        plain.fit(X, y, groups=groups)
        assert np.array_equal(sealed.weights_, plain.weights_), options
        assert np.array_equal(sealed.mean_, plain.mean_)
        assert sealed.rounds_[0]["ciphertexts"] >= 1
        assert plain.rounds_[0]["ciphertexts"] == 0


def test_groups_users_and_dealt_rows(iris: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = iris
    model = FederatedSGDClassifier(random_state=0, secure=False, n_rounds=6)
    by_group = clone(model).fit(X, y, groups=np.array(list("vwxyz"))[groups])
    users = [(X[groups == user], y[groups == user]) for user in range(5)]
    by_user = clone(model).fit_users(users)
    assert np.array_equal(by_group.weights_, by_user.weights_)
    dealt = clone(model).fit(X, y)
    assert not np.array_equal(dealt.weights_, by_user.weights_)
    assert np.array_equal(dealt.weights_, clone(model).fit(X, y).weights_)
    # Nobody collects features, and the standardisation is that of all of them.
    assert np.allclose(by_group.mean_, X.mean(axis=0), atol=1e-6)
    assert np.allclose(by_group.scale_, X.std(axis=0), rtol=1e-6)


def test_single_samples_and_users_with_one_class_suffice(iris: Arrays) -> None:
    X, y = iris
    by_class = FederatedSGDClassifier(secure=False, random_state=0, n_rounds=30).fit(X, y, groups=y)
    assert by_class.score(X, y) > 0.6  # chance is a third
    rows = np.arange(0, 150, 15)
    alone = FederatedSGDClassifier(secure=False, random_state=0).fit(X[rows], y[rows], groups=np.arange(10))
    assert alone.score(X, y) > 0.6


def test_names_of_classes_and_sparse_samples_are_accepted(iris: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = iris
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = FederatedSGDClassifier(secure=False, random_state=0)
    dense = clone(model).fit(X, names, groups=groups)
    sparse = clone(model).fit(scipy.sparse.csr_array(X), names, groups=groups)
    assert np.array_equal(dense.weights_, sparse.weights_)
    assert np.array_equal(sparse.predict(scipy.sparse.csr_array(X)), dense.predict(X))
    assert dense.predict(X[:1]).tolist() == ["setosa"]


def test_two_classes_have_one_score(iris: Arrays) -> None:
    X, y = iris[0][:100], iris[1][:100]
    for loss in ("hinge", "log_loss", "multinomial"):
        model = FederatedSGDClassifier(loss=loss, secure=False, random_state=0).fit(X, y)
        assert model.coef_.shape == (1, 4)
        assert model.decision_function(X).shape == (100,)
        assert model.score(X, y) == 1.0
    assert model.predict_proba(X).shape == (100, 2)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)


def test_partial_fit_and_warm_start_continue(iris: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = iris
    whole = FederatedSGDClassifier(random_state=1, n_rounds=6, secure=False).fit(X, y, groups=groups)
    steps = FederatedSGDClassifier(random_state=1, secure=False)
    for _ in range(6):
        steps.partial_fit(X, y, classes=[0, 1, 2], groups=groups)
    assert np.array_equal(whole.weights_, steps.weights_)
    warm = FederatedSGDClassifier(random_state=1, n_rounds=4, secure=False, warm_start=True)
    warm.fit(X, y, groups=groups).set_params(n_rounds=2).fit(X, y, groups=groups)
    assert np.array_equal(whole.weights_, warm.weights_)
    assert (warm.n_iter_, [report["round"] for report in warm.rounds_]) == (6, [1, 2, 3, 4, 5, 6])
    with pytest.raises(InvalidValue, match="classes"):
        warm.fit(X[:100], y[:100], groups=groups[:100])
    with pytest.raises(InvalidValue, match="all classes"):
        FederatedSGDClassifier().partial_fit(X, y)


def test_plain_estimators_predict_alike_both_ways(iris: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = iris
    model = FederatedSGDClassifier(loss="log_loss", secure=False, random_state=0).fit(X, y, groups=groups)
    wild = X * np.random.default_rng(0).uniform(-9, 9, X.shape)
    plain = model.to_sklearn()
    assert isinstance(plain, Pipeline)
    assert np.allclose(plain.decision_function(wild), model.decision_function(wild), atol=1e-4)
    assert np.allclose(plain.predict_proba(X), model.predict_proba(X), atol=1e-5)
    folded = model.to_sklearn(fold=True)
    assert isinstance(folded, SGDClassifier)
    assert np.allclose(folded.decision_function(X), model.decision_function(X), atol=1e-4)

    pooled = make_pipeline(StandardScaler(), SGDClassifier(random_state=0)).fit(X, y)
    raw = LogisticRegression(max_iter=1000).fit(X, y)
    for start in (pooled, raw, folded, model, LogisticRegression().fit(X[:100], y[:100])):
        rows = slice(0, 100) if len(start.classes_) == 2 else slice(0, 150)
        tiny = FederatedSGDClassifier(step=1e-9, n_rounds=1, secure=False, random_state=0)
        tiny.fit(X[rows], y[rows], groups=groups[rows], start=start)
        assert np.allclose(tiny.decision_function(X), start.decision_function(X), atol=1e-3)
    with pytest.raises(InvalidValue, match="other classes"):
        tiny.fit(X, y, start=start)
    with pytest.raises(InvalidValue, match="not a fitted"):
        tiny.fit(X, y, start=SGDClassifier())


def test_scikit_learn_s_tools_work(iris: Arrays) -> None:
    X, y = iris
    model = FederatedSGDClassifier(secure=False, random_state=0)
    assert cross_val_score(model, X, y, cv=3).mean() > 0.8
    piped = make_pipeline(StandardScaler(), model).fit(X, y)
    assert piped.score(X, y) > 0.8
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(model).set_fit_request(groups=True)
        scores = cross_val_score(routed, X, y, cv=3, params={"groups": np.arange(150) // 3 % 4})
    assert scores.mean() > 0.8
    sealed = FederatedSGDClassifier(random_state=0, n_rounds=2, **FAST).fit(X, y)
    again = pickle.loads(pickle.dumps(sealed))
    assert np.array_equal(again.predict(X), sealed.predict(X))
    # A fitted estimator holds numbers, texts and reports, and no native object that could have a key.
    kinds = {type(value).__module__ for value in vars(sealed).values()}
    assert kinds <= {"builtins", "numpy"}


def test_callbacks_see_every_round_and_can_stop(iris: Arrays) -> None:
    X, y = iris
    seen: list[tuple[int, float]] = []

    def watch(report: Report, model: Any) -> bool:
        seen.append((report["round"], model.score(X, y)))
        return len(seen) == 3

    model = FederatedSGDClassifier(secure=False, random_state=0)
    assert model.fit(X, y, callback=watch).n_iter_ == 3
    assert [number for number, _ in seen] == [1, 2, 3]
    assert seen[-1][1] == model.score(X, y)
    weights = model.weights_

    def fail(report: Report, model: Any) -> None:
        raise RuntimeError("no disk")

    with pytest.raises(RuntimeError, match="no disk"):
        model.fit(X, y, callback=fail)
    assert model.weights_ is weights


def test_models_are_saved_for_the_program(digits: Arrays, tmp_path: Path) -> None:
    X, y = digits
    parts = split(y)
    users, initial = of_users(X, y, parts)
    model = FederatedSGDClassifier(secure=False, random_state=0).fit_users(users, initial=initial)
    path = tmp_path / "model.safetensors"
    model.save(path)
    tensors = read_model(path)
    assert np.array_equal(tensors["weights"], model.weights_)
    assert sorted(tensors) == ["deviation", "intercepts", "mean", "weights"]
    with pytest.raises(InvalidValue, match="ending"):
        model.save(tmp_path / "model.pkl")
    with pytest.raises(StorageError):
        model.save(tmp_path / "nowhere" / "model.safetensors")
    with pytest.raises(NotFittedError):
        FederatedSGDClassifier().save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = FederatedSGDClassifier.load(path)
    assert np.array_equal(loaded.predict(X), model.predict(X).astype(str))
    assert np.array_equal(loaded.decision_function(X), model.decision_function(X))
    command = [str(program()), "evaluate", "--model", str(path), "--format=json"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    # without features, the program evaluates on the digits that its own rounds hold out
    assert json.loads(result.stdout)["samples"] == 500


def test_files_that_are_no_models_are_refused(iris: Arrays, tmp_path: Path) -> None:
    X, y = iris
    path = tmp_path / "model.safetensors"
    FederatedSGDClassifier(secure=False, random_state=0).fit(X, y).save(path)
    whole = path.read_bytes()
    broken = [b"", whole[:7], whole[:-1], b"\xff" * 100, whole.replace(b"weights", b"weight_")]
    broken += [
        whole.replace(b'\\"version\\": 1', b'\\"version\\": 2'),
        whole[:-8] + struct.pack("<d", np.nan),
    ]
    for data in broken:
        path.write_bytes(data)
        with pytest.raises(InvalidValue, match="not a model"):
            FederatedSGDClassifier.load(path)
    with pytest.raises(StorageError, match="could not be read"):
        FederatedSGDClassifier.load(tmp_path / "absent")


def test_onnx_files_predict_alike(iris: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = iris
    model = FederatedSGDClassifier(secure=False, random_state=0).fit(X, y)
    monkeypatch.setattr("dphe.__main__._program", lambda: None)
    with pytest.raises(StorageError, match="dphe export"):
        model.save(tmp_path / "model.onnx")
    monkeypatch.setattr("dphe.__main__._program", program)
    model.save(tmp_path / "model.onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    inputs = {session.get_inputs()[0].name: X.astype(np.float32)}
    outputs = session.run(None, inputs)
    scores = next(output for output in outputs if output.ndim == 2)
    assert np.allclose(scores, model.decision_function(X), atol=1e-4)


def test_bad_samples_are_refused(iris: Arrays, groups: NDArray[np.int64]) -> None:
    X, y = iris
    model = FederatedSGDClassifier(secure=False, random_state=0)
    broken = X.copy()
    broken[17, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(broken, y, groups=groups)
    with pytest.raises(InvalidValue, match=r"user 2: .*NaN"):
        model.fit_users([(X, y), (broken, y), (X, y)])
    with pytest.raises(InvalidValue, match=r"user 3: .*features"):
        model.fit_users([(X, y), (X, y), (X[:, :2], y)])
    with pytest.raises(InvalidValue, match="user 1 is not a pair"):
        model.fit_users([X, X, X])  # type: ignore[list-item]
    with pytest.raises(InvalidValue, match="there are no users"):
        model.fit_users([])
    with pytest.raises(ValueError, match="one class"):
        model.fit(X[:50], y[:50], groups=groups[:50])
    with pytest.raises(ValueError, match="shape"):
        model.fit(X, y, groups=groups[:10])
    with pytest.raises(InvalidValue, match="2 users") as caught:
        model.fit(X, y, groups=groups % 2)
    assert caught.value.code == "set_small"
    with pytest.raises(ValueError, match="n_samples=4"):
        model.fit(X[::40], y[::40])
    with pytest.raises(ValueError, match="continuous"):
        model.fit(X, y + 0.5, groups=groups)
    with pytest.raises(InvalidValue, match="power of ten"):
        model.fit(X * 1e17, y, groups=groups)
    with pytest.raises(InvalidValue, match="label is not among"):
        model.partial_fit(X, y, classes=[0, 1])
    assert not hasattr(model, "coef_")
    with pytest.raises(NotFittedError):
        model.predict(X)
    wide = scipy.sparse.csr_array((150, 1 << 26))
    with pytest.raises(InvalidValue, match="4 GiB"):
        model.fit(wide, y, groups=groups)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("loss", "squared_error", "unknown loss"),
        ("penalty", "l3", "unknown penalty"),
        ("payload", "everything", "unknown payload"),
        ("profile", "open", "unknown profile"),
        ("noise", "none", "unknown noise"),
        ("weighting", "rows", "unknown weighting"),
        ("key_bits", 1024, "1024"),
        ("alpha", -1.0, "strength"),
        ("l1_ratio", 2.0, "l1_ratio"),
        ("share", 0.0, "share"),
        ("local_epochs", 0, "epochs"),
        ("n_rounds", 0, "n_rounds"),
        ("local_epochs", 2.5, "local_epochs"),
        ("capacity", -1, "capacity"),
        ("n_users", 2, "n_users"),
        ("n_users", 5.5, "n_users"),
        ("n_jobs", 0, "n_jobs"),
        ("step", 0.0, "step"),
        ("server_step", -1.0, "server step"),
        ("random_state", -1, "random_state"),
        ("alpha", "0.5", "alpha"),
        ("l1_ratio", None, "l1_ratio"),
        ("feedback", True, "feedback"),
        ("share", "all", "share"),
        ("payload", None, "payload"),
        ("noise", None, "noise"),
    ],
)
def test_bad_parameters_are_refused(iris: Arrays, name: str, value: Any, message: str) -> None:
    X, y = iris
    model = FederatedSGDClassifier(secure=name in ("key_bits", "noise"), penalty="elasticnet")
    with pytest.raises(ValueError, match=message) as caught:
        model.set_params(**{name: value}).fit(X, y)
    assert isinstance(caught.value, DpheError)
    assert not hasattr(model, "coef_")


def test_payloads_that_need_initial_samples_say_so(iris: Arrays) -> None:
    X, y = iris
    with pytest.raises(InvalidValue, match="initial data"):
        FederatedSGDClassifier(payload="d-l1", secure=False).fit(X, y)
    with pytest.raises(InvalidValue, match="does not fit the profile"):
        FederatedSGDClassifier(payload="rotate", profile="sparse", secure=False).fit(X, y)


def test_splits_cover_every_row_once(digits: Arrays) -> None:
    y = digits[1]
    parts = split(y, n_users=4, train_per_class=30, test_per_class=40)
    every = np.concatenate([parts.initial, *parts.users, parts.held_out])
    assert len(every) == len(set(every.tolist())) == 10 * (30 + 40)
    with pytest.raises(InvalidValue):
        split(y, train_per_class=1000)
    with pytest.raises(InvalidValue, match="one label"):
        split(np.zeros((3, 2)))


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_ends_the_training_soon() -> None:
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(3000, 400)), generator.integers(0, 100, 3000)
    model = FederatedSGDClassifier(random_state=0, payload="all", local_epochs=20, **FAST)
    FederatedSGDClassifier(n_rounds=1, **FAST).fit(X[:50], np.arange(50) % 2)  # makes the key
    started = time.perf_counter()
    sent: list[float] = []

    def interrupt() -> None:
        time.sleep(1.0)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    ended = time.perf_counter()
    thread.join()
    assert sent
    assert started < sent[0]
    assert ended - sent[0] < 0.2
    assert not hasattr(model, "coef_")


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_ends_the_search_for_a_key_soon(iris: Arrays) -> None:
    X, y = iris
    sent: list[float] = []

    def interrupt() -> None:
        time.sleep(0.3)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        FederatedSGDClassifier(key_bits=4096).fit(X, y)
    ended = time.perf_counter()
    thread.join()
    assert ended - sent[0] < 0.2


def test_two_threads_may_fit_at_the_same_time(iris: Arrays) -> None:
    X, y = iris
    model = FederatedSGDClassifier(random_state=0, n_rounds=3, **FAST)
    expected = clone(model).fit(X, y).weights_
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: clone(model).fit(X, y).weights_, range(3)))
    assert all(np.array_equal(weights, expected) for weights in found)


def test_a_forked_child_fits_too(iris: Arrays) -> None:
    X, y = iris
    model = FederatedSGDClassifier(random_state=0, n_rounds=2, **FAST).fit(X, y)
    child = os.fork()
    if child == 0:
        same = np.array_equal(clone(model).fit(X, y).weights_, model.weights_)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_other_threads_run_meanwhile(digits: Arrays) -> None:
    X, y = digits
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    started = time.perf_counter()
    FederatedSGDClassifier(random_state=0, n_rounds=5, **FAST).fit(X, y)
    seconds = time.perf_counter() - started
    done.set()
    thread.join()
    assert len(ticks) > 50 * seconds


@pytest.mark.timeout(600)
def test_caltech_by_the_paper_s_protocol_equals_the_program(tmp_path: Path) -> None:
    places = [os.environ.get("DPHE_DATA")] + [parent / "shared/data" for parent in ROOT.parents]
    found = [Path(place, "caltech101") for place in places if place and Path(place, "caltech101").is_dir()]
    if not found:
        pytest.skip(
            "the features of Caltech-101 are absent; set DPHE_DATA to the directory that has caltech101/"
        )
    X = np.load(found[0] / "features.npy").astype(np.float32)
    y = np.load(found[0] / "labels.npy")
    words = ["--train-per-class=30", "--bits=2048", "--noise=fast", "--rounds=15", "--format=json"]
    command = [str(program()), "simulate", str(found[0]), "-o", "run", *words]
    result = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    report = json.loads(result.stdout)
    parts = split(y, train_per_class=30)
    users, initial = of_users(X, y, parts)
    model = FederatedSGDClassifier(random_state=0, **FAST).fit_users(users, initial=initial)
    assert np.array_equal(model.weights_, read_model(tmp_path / "run" / "model.safetensors")["weights"])
    predicted, labels = model.predict(X[parts.held_out]), y[parts.held_out]
    accuracy = np.mean([np.mean(predicted[labels == name] == name) for name in model.classes_])
    assert abs(accuracy - report["accuracy"]) < 0.001
    ours = sum(value for one in model.rounds_ for key, value in one.items() if key.endswith("_seconds"))
    theirs = sum(sum(one["seconds"].values()) for one in report["rounds"])
    print(f"accuracy {accuracy:.4f}, rounds {ours:.2f} s from Python, {theirs:.2f} s in the program")


def test_the_module_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "sklearn.py").write_text("raise ImportError('absent')\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", "import dphe.sklearn"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert 'pip install "dphe[sklearn]"' in result.stderr


def test_loaded_models_predict_and_do_not_continue(iris: Arrays, tmp_path: Path) -> None:
    X, y = iris
    names = y.astype(str)
    model = FederatedSGDClassifier(n_rounds=2, secure=False, random_state=0).fit(X, names)
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = FederatedSGDClassifier.load(path)
    with pytest.raises(InvalidValue, match="start=model"):
        loaded.partial_fit(X, names)
    with pytest.raises(InvalidValue, match="start=model"):
        loaded.set_params(warm_start=True).fit(X, names)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    other = FederatedSGDClassifier(n_rounds=1, secure=False, random_state=0).fit(X, names, start=loaded)
    assert other.score(X, names) > 0.7


def test_files_without_training_are_refused(iris: Arrays, tmp_path: Path) -> None:
    model = FederatedSGDClassifier(n_rounds=1, secure=False, random_state=0).fit(*iris)
    path = tmp_path / "model.safetensors"
    model.save(path)
    data = path.read_bytes()
    for old, new in ((b"training", b"absentee"), (b"rounds", b"absent")):
        path.write_bytes(data.replace(old, new))
        with pytest.raises(InvalidValue, match="not a model"):
            FederatedSGDClassifier.load(path)


def test_numpy_bools_stop_the_training(iris: Arrays) -> None:
    X, y = iris
    model = FederatedSGDClassifier(secure=False, random_state=0)
    assert model.fit(X, y, callback=lambda report, _: np.float64(1) > 0.5).n_iter_ == 1


def test_calls_that_fail_leave_the_features(iris: Arrays) -> None:
    X, y = iris
    model = FederatedSGDClassifier(n_rounds=1, secure=False, random_state=0, warm_start=True).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="warm_start continues"):
        model.fit(X[:, :2], y, start=model)
    assert model.n_features_in_ == 4
    assert np.array_equal(model.predict(X), before)


def test_missing_groups_are_refused(iris: Arrays) -> None:
    X, y = iris
    model = FederatedSGDClassifier(secure=False)
    for missing in (np.nan, None):
        groups = np.array([missing, *(np.arange(len(y) - 1) % 4)], dtype=object)
        with pytest.raises(InvalidValue, match="missing names"):
            model.fit(X, y, groups=groups)


@pytest.mark.parametrize("scale", [1e-7, 1e-12])
def test_small_features_are_learnt_as_large_ones(iris: Arrays, scale: float) -> None:
    X, y = iris
    model = FederatedSGDClassifier(secure=False, random_state=0)
    expected = model.fit(X, y).score(X, y)
    assert model.fit(X * scale, y).score(X * scale, y) > expected - 0.03
    assert np.allclose(model.scale_, X.std(axis=0) * scale, rtol=1e-4)


def test_all_but_one_core(iris: Arrays) -> None:
    assert FederatedSGDClassifier(n_rounds=1, secure=False, n_jobs=-2).fit(*iris).n_iter_ == 1
