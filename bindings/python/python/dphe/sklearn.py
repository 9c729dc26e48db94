"""Estimators for scikit-learn that learn from many users without collecting their samples.

Every call of ``fit`` simulates a task in this process: users train on their own samples, an aggregator adds up their
encrypted updates, and a key generator opens the sums. The rounds are those of ``dphe simulate``: the same data and
``random_state`` give the same weights. A simulation has no secrets, because one process holds all data and keys. It
shows what a task learns and what it costs.

>>> from sklearn.datasets import load_iris
>>> from dphe.sklearn import FederatedSGDClassifier
>>> X, y = load_iris(return_X_y=True)
>>> hospital = [row % 5 for row in range(len(X))]  # whose sample each row is
>>> model = FederatedSGDClassifier(key_bits=2048, random_state=0).fit(X, y, groups=hospital)
>>> bool(model.score(X, y) > 0.8)
True

``secure=False`` computes the same weights without encryption. A callback sees every round:

>>> model = FederatedSGDClassifier(n_rounds=2, secure=False, random_state=0)
>>> seen = []
>>> _ = model.fit(X, y, callback=lambda report, model: seen.append(report["round"]))
>>> seen
[1, 2]
"""

from __future__ import annotations

import copy
import functools
import json
import os
import struct
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    import scipy.sparse
    from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin
    from sklearn.cluster import KMeans
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError('dphe.sklearn needs scikit-learn; run: pip install "dphe[sklearn]"') from error

from dphe import __main__ as _program
from dphe import _core
from dphe.errors import InvalidValue, StorageError
from dphe.layout import aligned

__all__ = ["FederatedMiniBatchKMeans", "FederatedSGDClassifier", "Split", "split"]

Report: TypeAlias = dict[str, Any]
Callback: TypeAlias = Callable[[Report, Any], object]
Loss: TypeAlias = Literal["hinge", "squared_hinge", "log_loss", "multinomial"]
Payload: TypeAlias = Literal["rotate", "all", "d-block", "d-topk", "d-l1", "w-topk", "w-l1"]

_Floats: TypeAlias = NDArray[np.float64]
_Samples: TypeAlias = tuple[NDArray[np.float32], NDArray[np.uint32]]

_LOSSES = {
    "hinge": "hinge",
    "squared_hinge": "squared-hinge",
    "log_loss": "logistic",
    "multinomial": "multinomial",
}
_FEWEST_USERS = 3
# Sparse samples of a user are made dense, which must fit into memory.
_MOST_DENSE_BYTES = 4 << 30
_MODEL_VERSION = 1

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _all_or_nothing(method: _Method) -> _Method:
    """Give back what scikit-learn notes about the samples if the call fails."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        noted = ("n_features_in_", "feature_names_in_")
        before = {name: vars(self)[name] for name in noted if name in vars(self)}
        try:
            return method(self, *arguments, **named)
        except BaseException:
            for name in noted:
                vars(self).pop(name, None)
            vars(self).update(before)
            raise

    return cast(_Method, call)


class Split(NamedTuple):
    """Which rows are public, which belong to each user, and which are held out."""

    initial: NDArray[np.intp]
    users: list[NDArray[np.intp]]
    held_out: NDArray[np.intp]


def split(
    y: ArrayLike,
    *,
    n_users: int = 5,
    initial_per_class: int = 3,
    train_per_class: int | None = None,
    test_per_class: int = 50,
    random_state: int = 0,
) -> Split:
    """Split rows by their labels as ``dphe simulate`` does, with the same defaults.

    >>> parts = split([0, 1] * 20, n_users=3, initial_per_class=2, random_state=1)
    >>> len(parts.initial), [len(rows) for rows in parts.users], len(parts.held_out)
    (4, [9, 9, 8], 10)
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.size == 0:
        raise InvalidValue("y needs one label per row", "shape")
    classes, numbers = np.unique(labels, return_inverse=True)
    initial, users, held_out = _core.split_samples(
        numbers.astype(np.uint32),
        len(classes),
        n_users,
        initial_per_class,
        train_per_class,
        test_per_class,
        _seed(random_state),
    )
    return Split(_rows(initial), [_rows(user) for user in users], _rows(held_out))


class FederatedSGDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier that users train together by encrypted rounds.

    In every round, each user trains the current weights on its own samples by stochastic gradient descent, and sends an
    encrypted update. The average of the updates gives the next weights.

    Features are standardised. With public ``initial`` samples, their means and deviations are used, and the rounds
    start from weights trained on them, as in the program ``dphe``. Without, two rounds sum the moments of all users'
    features, and the weights start from zero.

    Parameters
    ----------
    loss : {"hinge", "squared_hinge", "log_loss", "multinomial"}
        The loss function.
    penalty : {"l2", "l1", "elasticnet"}
        The penalty, with the strength ``alpha`` and, for ``"elasticnet"``, the share ``l1_ratio`` of L1.
    n_users : int
        The number of users that rows are dealt to at random if ``fit`` gets no groups. At least three.
    n_rounds : int
        The number of rounds.
    local_epochs : int
        Passes over a user's samples per round.
    payload : {"rotate", "all", "d-block", "d-topk", "d-l1", "w-topk", "w-l1"}
        What an update carries. ``share`` says how much of the model (a tenth by default), or ``capacity`` how many
        weights, blocks or features. ``"d-l1"`` and ``"w-l1"`` need ``initial`` samples.
    feedback : float
        The share of what an update leaves out that is added to the next one.
    step, server_step : float
        The first step of the learner, and the factor of the average.
    weighting : {"equal", "samples"}
        Whether users count alike, or by their numbers of samples, which stay encrypted.
    profile : {"full", "sparse"} or None
        The variant of the protocol. None takes the one that suits the payload.
    key_bits, noise : int, {"secure", "fast"}
        The length of the key, and how noise is made.
    secure : bool
        Whether sums are encrypted. The weights do not depend on it.
    warm_start : bool
        Whether ``fit`` continues from the weights of the last call.
    random_state : int, RandomState or None
        The random seed of everything except the encryption.
    n_jobs : int or None
        The number of threads; None or -1 for all cores, -2 for all but one. Results do not depend on it.

    Attributes
    ----------
    coef_, intercept_ : arrays
        The weights *for standardised features*: ``clip((X - mean_) / scale_, -clip_, clip_)``.
    mean_, scale_, clip_ : arrays, float
        The standardisation. Samples are read in single precision, so subtract a large offset (such as of Unix times)
        before.
    classes_, n_features_in_, n_iter_ : array, int, int
        The labels, the number of features, the number of rounds so far.
    rounds_ : list of dict
        The report of every round: sizes, shares and seconds.
    task_ : dict
        The name of the task, its profile, the bits per number, and the largest initial weight, from which the range of
        updates follows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> parts = split(y)
    >>> users = [(X[rows], y[rows]) for rows in parts.users]
    >>> model = FederatedSGDClassifier(secure=False, random_state=0)
    >>> model = model.fit_users(users, initial=(X[parts.initial], y[parts.initial]))
    >>> bool(model.score(X[parts.held_out], y[parts.held_out]) > 0.9)
    True
    """

    def __init__(
        self,
        *,
        loss: Loss = "hinge",
        penalty: Literal["l2", "l1", "elasticnet"] = "l2",
        alpha: float = 1e-3,
        l1_ratio: float = 0.15,
        n_users: int = 5,
        n_rounds: int = 15,
        local_epochs: int = 5,
        payload: Payload = "rotate",
        share: float | None = None,
        capacity: int | None = None,
        feedback: float = 0.9,
        step: float = 1.0,
        server_step: float = 1.0,
        weighting: Literal["equal", "samples"] = "equal",
        profile: Literal["full", "sparse"] | None = None,
        key_bits: int = 3072,
        noise: Literal["secure", "fast"] = "secure",
        secure: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        """Keep the parameters, which ``fit`` checks."""
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.n_users = n_users
        self.n_rounds = n_rounds
        self.local_epochs = local_epochs
        self.payload = payload
        self.share = share
        self.capacity = capacity
        self.feedback = feedback
        self.step = step
        self.server_step = server_step
        self.weighting = weighting
        self.profile = profile
        self.key_bits = key_bits
        self.noise = noise
        self.secure = secure
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs

    @_all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: ArrayLike | None = None,
        initial: tuple[Any, Any] | None = None,
        start: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train on the rows of X, which belong to the users that ``groups`` names.

        ``initial`` is a pair of public samples and labels. ``start`` is a fitted linear classifier, of scikit-learn or
        of this class, whose weights the rounds start from. ``callback(report, model)`` is called after every round with
        its report and a copy of this estimator with the weights so far. If it returns ``True``, the training ends.

        Ctrl-C ends the call at once and changes nothing, but the round goes on in the background until it is over.
        """
        seed = _seed(self.random_state)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32)
        check_classification_targets(y)
        rows = _deal(len(y), self.n_users, seed) if groups is None else _rows_of_groups(groups, len(y))
        users = [(X[chosen], y[chosen]) for chosen in rows]
        return self._fit(users, initial, start, callback, seed)

    @_all_or_nothing
    def fit_users(
        self,
        users: Sequence[tuple[Any, Any]],
        *,
        initial: tuple[Any, Any] | None = None,
        start: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train on a list of users' data: a pair of samples and labels per user. Otherwise as :meth:`fit`."""
        seed = _seed(self.random_state)
        checked = []
        for number, user in enumerate(users, 1):
            checked.append(self._check_pair(user, f"user {number}", reset=number == 1))
        return self._fit(checked, initial, start, callback, seed)

    @_all_or_nothing
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, *, groups: ArrayLike | None = None
    ) -> Self:
        """Run one more round. The first call needs all ``classes``, and fixes the standardisation.

        What updates leave out is not kept from call to call.
        """
        seed = _seed(self.random_state)
        first = not hasattr(self, "classes_")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, reset=first)
        check_classification_targets(y)
        if first and classes is None:
            raise InvalidValue("the first call of partial_fit needs the list of all classes", "classes")
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise InvalidValue("the classes are not those of the first call", "classes")
        rows = _deal(len(y), self.n_users, seed) if groups is None else _rows_of_groups(groups, len(y))
        users = [(X[chosen], y[chosen]) for chosen in rows]
        known = np.unique(cast(ArrayLike, classes)) if first else self.classes_
        return self._train(users, known, None, None, None, seed, rounds=1, resume=not first)

    def _check_pair(self, pair: tuple[Any, Any], name: str, reset: bool = False) -> tuple[Any, Any]:
        try:
            X, y = pair
        except (TypeError, ValueError):
            raise InvalidValue(f"{name} is not a pair of samples and labels", "shape") from None
        try:
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, reset=reset)
        except ValueError as error:
            raise InvalidValue(f"{name}: {error}", "shape") from error
        check_classification_targets(y)
        return X, y

    def _fit(
        self,
        users: list[tuple[Any, Any]],
        initial: tuple[Any, Any] | None,
        start: Any,
        callback: Callback | None,
        seed: int,
    ) -> Self:
        if initial is not None:
            initial = self._check_pair(initial, "initial")
        parts = [y for _, y in users] + ([] if initial is None else [initial[1]])
        if not parts:
            raise InvalidValue("there are no users", "samples")
        classes = np.unique(np.concatenate(parts))
        resume = bool(self.warm_start) and hasattr(self, "weights_")
        if resume:
            if not np.array_equal(classes, self.classes_):
                raise InvalidValue(
                    "the classes are not those of the last call, as warm_start demands", "classes"
                )
            if start is not None or initial is not None:
                raise InvalidValue(
                    "warm_start continues from the last call, without initial or start", "state"
                )
        rounds = _count(self.n_rounds, "n_rounds")
        return self._train(users, classes, initial, start, callback, seed, rounds, resume)

    def _train(
        self,
        users: list[tuple[Any, Any]],
        classes: NDArray[Any],
        initial: tuple[Any, Any] | None,
        start: Any,
        callback: Callback | None,
        seed: int,
        rounds: int,
        resume: bool,
    ) -> Self:
        _check_users(len(users))
        if resume and not hasattr(self, "_squared_radius"):
            raise InvalidValue(
                "a model that was loaded cannot continue; use fit(X, y, start=model) of another estimator",
                "state",
            )
        if len(classes) < 2:
            raise InvalidValue("the labels have only one class; a classifier needs at least two", "classes")
        done = self.n_iter_ if resume else 0
        width = self.n_features_in_
        federation = _core.Federation(
            [_samples(X, y, classes) for X, y in users],
            width,
            len(classes),
            None if initial is None else _samples(*initial, classes),
            self._learner(seed, done + 1),
            _protection(self),
            _threads(self.n_jobs),
        )
        known = None
        if resume:
            known = (self.mean_, self.scale_, self.clip_, self._squared_radius)
        mean, scale = np.empty(width), np.empty(width)
        clip, squared_radius = federation.standardize(known, mean, scale)
        weights: tuple[_Floats, _Floats] | None = None
        if resume:
            weights = (self.weights_, self.intercepts_)
        elif start is not None:
            weights = _start(start, classes, mean, scale, self.loss)
        # The range of updates is that of the first round, as in one long run.
        task = federation.begin(weights, self.task_["largest_weight"] if resume else None)

        result = copy.copy(self)
        result.classes_, result.mean_, result.scale_, result.clip_ = classes, mean, scale, clip
        result._squared_radius, result.task_ = squared_radius, dict(task)
        result.rounds_ = list(self.rounds_) if resume else []
        result._users = len(users)
        for number in range(rounds):
            report, more = federation.round()
            result = copy.copy(result)
            result.rounds_ = [*result.rounds_, report]
            if callback is not None or not more or number + 1 == rounds:
                result._store(federation)
            stop = callback is not None and _is_true(callback(dict(report), result))
            if stop or not more:
                break
        # Nothing is changed before all rounds are over.
        for name in _FITTED:
            setattr(self, name, getattr(result, name))
        return self

    def _store(self, federation: _core.Federation) -> None:
        """Take the weights."""
        weights = np.empty((self.n_features_in_, len(self.classes_)))
        intercepts = np.empty(len(self.classes_))
        federation.weights(weights, intercepts)
        self._set_weights(weights, intercepts)
        self.n_iter_ = int(self.rounds_[-1]["round"])

    def _set_weights(self, weights: _Floats, intercepts: _Floats) -> None:
        self.weights_, self.intercepts_ = weights, intercepts
        self.coef_, self.intercept_ = np.ascontiguousarray(weights.T), intercepts
        if len(self.classes_) == 2:
            # There is one function per class. The difference decides; for one class against the rest, it is twice the
            # score, because the two functions are opposite to each other.
            factor = 1.0 if self.loss == "multinomial" else 0.5
            self.coef_ = factor * (self.coef_[1:] - self.coef_[:1])
            self.intercept_ = factor * (intercepts[1:] - intercepts[:1])

    def _learner(self, seed: int, first_round: int) -> dict[str, Any]:
        if self.loss not in _LOSSES:
            raise InvalidValue(f"unknown loss {self.loss!r}; use one of {', '.join(_LOSSES)}", "parameter")
        ratios = {"l2": 0.0, "l1": 1.0, "elasticnet": self.l1_ratio}
        if self.penalty not in ratios:
            raise InvalidValue(
                f"unknown penalty {self.penalty!r}; use one of {', '.join(ratios)}", "parameter"
            )
        if self.weighting not in ("equal", "samples"):
            raise InvalidValue(f"unknown weighting {self.weighting!r}; use equal or samples", "parameter")
        return {
            "payload": _name(self.payload, "payload"),
            "share": None if self.share is None else _number(self.share, "share"),
            "capacity": None if self.capacity is None else _count(self.capacity, "capacity"),
            "loss": _LOSSES[self.loss],
            "strength": _number(self.alpha, "alpha"),
            "l1_ratio": _number(ratios[self.penalty], "l1_ratio"),
            "epochs": _count(self.local_epochs, "local_epochs"),
            "feedback": _number(self.feedback, "feedback"),
            "step": _number(self.step, "step"),
            "server_step": _number(self.server_step, "server_step"),
            "weighted": self.weighting == "samples",
            "seed": seed,
            "first_round": first_round,
        }

    def decision_function(self, X: Any) -> _Floats:
        """Return the score of every class per row, or one score if there are two classes."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        scores = np.empty((X.shape[0], len(self.coef_)))
        for rows in _chunks(X.shape[0], X.shape[1]):
            scores[rows] = _standardized(X[rows], self.mean_, self.scale_, self.clip_) @ self.coef_.T
        scores += self.intercept_
        return scores.ravel() if len(self.coef_) == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class per row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return cast(NDArray[Any], self.classes_[chosen])

    def _has_probabilities(self) -> bool:
        if self.loss not in ("log_loss", "multinomial"):
            raise AttributeError(f"probabilities are not available with loss={self.loss!r}")
        return True

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> _Floats:
        """Return the probability of every class per row, for the losses ``log_loss`` and ``multinomial``."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            positive = 1 / (1 + np.exp(-np.clip(scores, -500, 500)))
            return np.column_stack([1 - positive, positive])
        if self.loss == "multinomial":
            likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        else:
            likely = np.maximum(1 / (1 + np.exp(-np.clip(scores, -500, 500))), 1e-300)
        return cast(_Floats, likely / likely.sum(axis=1, keepdims=True))

    def to_sklearn(self, *, fold: bool = False) -> Any:
        """Return a plain scikit-learn estimator with the same weights.

        It is a pipeline that standardises, clips and classifies, and that predicts as this estimator does. With
        ``fold=True`` it is a linear classifier of raw features, which cannot clip.
        """
        check_is_fitted(self, "coef_")
        if self.loss == "multinomial":
            plain = LogisticRegression()
        else:
            plain = SGDClassifier(
                loss=self.loss, penalty=self.penalty, alpha=self.alpha, l1_ratio=self.l1_ratio
            )
        plain.classes_, plain.n_features_in_ = self.classes_.copy(), self.n_features_in_
        plain.n_iter_, plain.t_ = self.n_iter_, 1.0
        if fold:
            plain.coef_ = self.coef_ / self.scale_
            plain.intercept_ = self.intercept_ - plain.coef_ @ self.mean_
            return plain
        plain.coef_, plain.intercept_ = self.coef_.copy(), self.intercept_.copy()
        return Pipeline([*_preparation(self), ("classify", plain)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as the program ``dphe`` does: ``.safetensors``, or ``.onnx``, ``.npz`` and ``.json``.

        The program reads the file (``dphe evaluate``, ``predict`` and ``export``). All endings but ``.safetensors``
        need the program, which release wheels contain. The file holds weights, standardisation and names of classes,
        and no key.
        """
        check_is_fitted(self, "coef_")
        path = Path(path)
        if path.suffix == ".safetensors":
            _write(path, self._safetensors())
            return
        if path.suffix not in (".onnx", ".npz", ".json"):
            raise InvalidValue(f"{path.name}: use the ending .safetensors, .onnx, .npz or .json", "path")
        program = _program._program()
        if program is None:
            raise StorageError(
                f"{path.suffix} files are written by the program dphe, which this installation lacks; save as "
                ".safetensors and run `dphe export` elsewhere",
                "program",
            )
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder, "model.safetensors")
            _write(model, self._safetensors())
            command = [str(program), "export", "--model", str(model), "-o", str(path.absolute())]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise StorageError(f"{path.name} could not be written: {result.stderr.strip()}", "program")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a ``.safetensors`` model that :meth:`save`, the program ``dphe`` or a service wrote.

        The names of classes are texts. All parameters but the payload and the length of the key are the defaults. The
        model predicts, and other estimators start from it (``fit(X, y, start=model)``). It cannot continue itself,
        because the file does not say what the rounds of its task need.
        """
        try:
            about, tensors = _read_model(Path(path).read_bytes())
            training = about["training"]
            model = cls(
                payload=training.get("payload") or "rotate",
                key_bits=training.get("key_bits") or 3072,
                secure=training.get("task") is not None,
            )
            model.classes_, model.clip_ = np.array(about["classes"]), float(about["clip"])
            model.mean_, model.scale_ = tensors["mean"], tensors["deviation"]
            model.n_features_in_, model.n_iter_ = len(model.mean_), int(training["rounds"])
            model.task_ = {name: training.get(name) for name in ("task", "profile")}
            model.rounds_, model._users = [], int(training["users"])
        except OSError as error:
            raise StorageError(f"{path} could not be read: {error.strerror}", "path") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidValue(f"{path} is not a model of dphe: {error}", "model") from error
        model._set_weights(tensors["weights"], tensors["intercepts"])
        return model

    def _safetensors(self) -> bytes:
        training = {
            "task": self.task_.get("task") if self.secure else None,
            "profile": self.task_.get("profile") if self.secure else None,
            "payload": self.payload,
            "key_bits": self.key_bits if self.secure else None,
            "rounds": self.n_iter_,
            "users": self._users,
        }
        about = {
            "version": _MODEL_VERSION,
            "classes": [str(name) for name in self.classes_.tolist()],
            "labels": "classes",
            "clip": self.clip_,
            "feature_model": None,
            "preprocessing": None,
            "training": training,
        }
        header: dict[str, Any] = {"__metadata__": {"dphe": json.dumps(about)}}
        body = b""
        arrays = {
            "deviation": self.scale_,
            "intercepts": self.intercepts_,
            "mean": self.mean_,
            "weights": self.weights_,
        }
        for name, array in arrays.items():
            data = np.ascontiguousarray(array, dtype="<f8").tobytes()
            offsets = [len(body), len(body) + len(data)]
            header[name] = {"dtype": "F64", "shape": list(array.shape), "data_offsets": offsets}
            body += data
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + body

    def __sklearn_tags__(self) -> Any:
        """Say that sparse samples are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class FederatedMiniBatchKMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters of samples that users keep.

    In every round, each user assigns its samples to the nearest centroids, and sends their encrypted sums and numbers
    per cluster. Their average gives the next centroids.

    Features are standardised as by :class:`FederatedSGDClassifier`. With public ``initial`` samples, k-means++ on them
    gives the first centroids. Without, the rounds start with the mean of all samples, and every two rounds split the
    half of the clusters whose samples lie farthest apart, until there are ``n_clusters``. These rounds come before
    the ``n_rounds``. As with ``n_init=1`` in scikit-learn, the result depends on ``random_state``.

    Parameters
    ----------
    n_clusters : int
        The number of clusters.
    n_users : int
        The number of users that rows are dealt to at random if ``fit`` gets no groups. At least three.
    n_rounds : int
        The number of rounds with all clusters.
    batch_size : int or None
        How many samples each user draws per round. None takes all of them, so that a round is a full pass.
    share : float or None
        The share of the values that an update carries, in the profile ``sparse``. None sends all of them in ``full``.
    key_bits, noise, secure, random_state, n_jobs
        As of :class:`FederatedSGDClassifier`.

    Attributes
    ----------
    cluster_centers_ : array
        The centroids, in the units of the samples.
    labels_ : array
        The cluster of every row of the last ``fit``; of ``fit_users``, user after user.
    mean_, scale_, clip_, n_features_in_, n_iter_, rounds_
        As of :class:`FederatedSGDClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.metrics import adjusted_rand_score
    >>> X, y = make_blobs(200, centers=3, random_state=0, cluster_std=0.6)
    >>> model = FederatedMiniBatchKMeans(3, key_bits=2048, random_state=0).fit(X)
    >>> bool(adjusted_rand_score(y, model.labels_) > 0.9)
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_users: int = 5,
        n_rounds: int = 10,
        batch_size: int | None = None,
        share: float | None = None,
        key_bits: int = 3072,
        noise: Literal["secure", "fast"] = "secure",
        secure: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        """Keep the parameters, which ``fit`` checks."""
        self.n_clusters = n_clusters
        self.n_users = n_users
        self.n_rounds = n_rounds
        self.batch_size = batch_size
        self.share = share
        self.key_bits = key_bits
        self.noise = noise
        self.secure = secure
        self.random_state = random_state
        self.n_jobs = n_jobs

    @_all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: ArrayLike | None = None,
        initial: Any = None,
        start: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Cluster the rows of X, which belong to the users that ``groups`` names. ``y`` is ignored.

        ``initial`` is an array of public samples. ``start`` is an array of centroids, or a fitted estimator that has
        some. ``callback`` is called as by :meth:`FederatedSGDClassifier.fit`.
        """
        seed = _seed(self.random_state)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32)
        rows = (
            _deal(X.shape[0], self.n_users, seed) if groups is None else _rows_of_groups(groups, X.shape[0])
        )
        users = [_dense(X[chosen]) for chosen in rows]
        self._train(users, initial, start, callback, seed, _count(self.n_rounds, "n_rounds"), resume=False)
        self.labels_ = self.predict(X)
        return self

    @_all_or_nothing
    def fit_users(
        self,
        users: Sequence[Any],
        *,
        initial: Any = None,
        start: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Cluster the samples of a list of users: one array per user. Otherwise as :meth:`fit`."""
        seed = _seed(self.random_state)
        checked = [self._check(user, f"user {number}", number == 1) for number, user in enumerate(users, 1)]
        self._train(checked, initial, start, callback, seed, _count(self.n_rounds, "n_rounds"), resume=False)
        self.labels_ = np.concatenate([self.predict(user) for user in checked])
        return self

    @_all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, *, groups: ArrayLike | None = None) -> Self:
        """Run one more round. The first call also splits clusters in rounds, and fixes the standardisation."""
        seed = _seed(self.random_state)
        first = not hasattr(self, "cluster_centers_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=first)
        rows = (
            _deal(X.shape[0], self.n_users, seed) if groups is None else _rows_of_groups(groups, X.shape[0])
        )
        users = [_dense(X[chosen]) for chosen in rows]
        self._train(users, None, None, None, seed, 1, resume=not first)
        self.labels_ = self.predict(X)
        return self

    def _check(self, X: Any, name: str, reset: bool = False) -> NDArray[np.float32]:
        try:
            return _dense(validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset))
        except ValueError as error:
            raise InvalidValue(f"{name}: {error}", "shape") from error

    def _train(
        self,
        users: list[NDArray[np.float32]],
        initial: Any,
        start: Any,
        callback: Callback | None,
        seed: int,
        rounds: int,
        resume: bool,
    ) -> None:
        _check_users(len(users))
        clusters, width = _count(self.n_clusters, "n_clusters"), self.n_features_in_
        samples = sum(len(user) for user in users)
        if samples < clusters and not resume:
            raise InvalidValue(f"n_samples={samples} is too small for n_clusters={clusters}", "samples")
        if resume and len(self._centroids) != clusters:
            raise InvalidValue(
                f"the last call ended with {len(self._centroids)} clusters, but n_clusters is {clusters}; call fit",
                "state",
            )
        capacity = None
        if self.share is not None:
            if not 0 < self.share <= 1:
                raise InvalidValue("share must be above 0 and at most 1", "parameter")
            capacity = max(1, int(np.ceil(self.share * clusters * width)))
        native = _core.Clusters(
            users,
            width,
            None if initial is None else self._check(initial, "initial"),
            clusters,
            None if self.batch_size is None else _count(self.batch_size, "batch_size"),
            capacity,
            seed,
            _protection(self),
            _threads(self.n_jobs),
        )
        mean, scale = np.empty(width), np.empty(width)
        known = (self.mean_, self.scale_, self.clip_) if resume else None
        clip = native.standardize(known, mean, scale)
        centroids: tuple[_Floats, _Floats] | None = None
        if resume:
            centroids = (self._centroids, self._seen)
        elif start is not None:
            centres = check_array(getattr(start, "cluster_centers_", start), dtype=np.float64)
            if centres.shape != (clusters, width):
                raise InvalidValue(
                    f"start has the shape {centres.shape}, but {(clusters, width)} is needed", "start"
                )
            centroids = (np.ascontiguousarray((centres - mean) / scale), np.zeros(clusters))
        done = self.n_iter_ if resume else 0
        native.begin(centroids, done + 1)

        result = copy.copy(self)
        result.mean_, result.scale_, result.clip_ = mean, scale, clip
        result.rounds_ = list(self.rounds_) if resume else []
        growing, counted = centroids is None and initial is None and clusters > 1, 0
        while growing or counted < rounds:
            counted += not growing
            report, growing = native.round()
            result = copy.copy(result)
            result.rounds_ = [*result.rounds_, report]
            flat, seen = native.centroids()
            result._centroids, result._seen = np.array(flat).reshape(-1, width), np.array(seen)
            result.cluster_centers_ = result._centroids * scale + mean
            result.n_iter_ = int(report["round"])
            if callback is not None and _is_true(callback(dict(report), result)):
                break
        # Nothing is changed before all rounds are over.
        for name in _CLUSTERED:
            setattr(self, name, getattr(result, name))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the nearest centroid of every row."""
        check_is_fitted(self, "cluster_centers_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        halves = (self._centroids**2).sum(axis=1) / 2
        labels = np.empty(X.shape[0], dtype=np.int64)
        for rows in _chunks(X.shape[0], X.shape[1]):
            values = _standardized(X[rows], self.mean_, self.scale_, self.clip_)
            labels[rows] = (values @ self._centroids.T - halves).argmax(axis=1)
        return labels

    def to_sklearn(self) -> Any:
        """Return a plain scikit-learn pipeline that standardises, clips and assigns rows as this estimator does."""
        check_is_fitted(self, "cluster_centers_")
        plain = KMeans(len(self._centroids), init=self._centroids, n_init=1, max_iter=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # equal centroids, of which one has no samples
            plain.fit(self._centroids)
        plain.cluster_centers_ = self._centroids.copy()
        return Pipeline([*_preparation(self), ("cluster", plain)])

    def __sklearn_tags__(self) -> Any:
        """Say that sparse samples are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


_CLUSTERED = (
    "mean_",
    "scale_",
    "clip_",
    "rounds_",
    "n_iter_",
    "cluster_centers_",
    "_centroids",
    "_seen",
)
_FITTED = (
    "classes_",
    "mean_",
    "scale_",
    "clip_",
    "_squared_radius",
    "_users",
    "task_",
    "rounds_",
    "weights_",
    "intercepts_",
    "coef_",
    "intercept_",
    "n_iter_",
)


def _preparation(model: Any) -> list[tuple[str, Any]]:
    """Return the steps of a pipeline that standardise and clip."""
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_, scaler.var_ = model.mean_.copy(), model.scale_.copy(), model.scale_**2
    scaler.n_features_in_, scaler.n_samples_seen_ = model.n_features_in_, 1
    clip = FunctionTransformer(np.clip, kw_args={"a_min": -model.clip_, "a_max": model.clip_})
    return [("standardize", scaler), ("clip", clip.fit(np.zeros((1, model.n_features_in_))))]


def _check_users(users: int) -> None:
    if users < _FEWEST_USERS:
        raise InvalidValue(
            f"there are {users} users, but a sum needs at least {_FEWEST_USERS}, because smaller ones reveal single "
            "users' values",
            "set_small",
        )


def _is_true(value: Any) -> bool:
    """Return whether a callback returned True, as a comparison of numpy's numbers gives it, too."""
    return isinstance(value, (bool, np.bool_)) and bool(value)


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidValue(f"{name}={value!r} must be a whole number from 1 on", "parameter")
    return int(value)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidValue(f"{name}={value!r} must be a number", "parameter")
    return float(value)


def _name(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{name}={value!r} must be a name", "parameter")
    return value


def _seed(random_state: Any) -> int:
    """Return the random seed, which is the number itself if one is given."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if not 0 <= random_state < 1 << 64:
            raise InvalidValue("random_state must be from 0 to 2^64 - 1", "parameter")
        return int(random_state)
    return int(check_random_state(random_state).randint(1 << 31))


def _threads(n_jobs: int | None) -> int | None:
    if n_jobs is None or n_jobs == -1:
        return None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise InvalidValue("n_jobs must be a whole number other than 0, or None", "threads")
    # As in joblib, -2 leaves one core out.
    return int(n_jobs) if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + int(n_jobs))


def _protection(estimator: Any) -> dict[str, Any]:
    return {
        "profile": getattr(estimator, "profile", None),
        "key_bits": estimator.key_bits,
        "noise": _name(estimator.noise, "noise"),
        "secure": bool(estimator.secure),
    }


def _rows(indices: Iterable[int]) -> NDArray[np.intp]:
    return np.fromiter(indices, dtype=np.intp)


def _deal(samples: int, users: int, seed: int) -> list[NDArray[np.intp]]:
    """Deal rows to users at random."""
    if _count(users, "n_users") < _FEWEST_USERS:
        raise InvalidValue(
            f"n_users={users} is too small; a sum needs at least {_FEWEST_USERS} users", "parameter"
        )
    if samples < users:
        raise InvalidValue(
            f"n_samples={samples} is too small for n_users={users}; every user needs a sample", "samples"
        )
    return [_rows(chosen) for chosen in _core.deal_samples(samples, int(users), seed)]


def _rows_of_groups(groups: ArrayLike, samples: int) -> list[NDArray[np.intp]]:
    """Return the rows of every user, in the order of their names."""
    names = np.asarray(groups)
    if names.ndim != 1 or len(names) != samples:
        raise InvalidValue(f"groups has the shape {names.shape}, but there are {samples} samples", "shape")
    if any(name is None or name != name for name in names.tolist()):
        raise InvalidValue("groups has missing names, such as NaN; name the user of every row", "shape")
    _, numbers = np.unique(names, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def _dense(X: Any) -> NDArray[np.float32]:
    """Return the rows as a contiguous array."""
    if scipy.sparse.issparse(X):
        if 4 * X.shape[0] * X.shape[1] > _MOST_DENSE_BYTES:
            raise InvalidValue("the sparse samples of one user would take more than 4 GiB when dense", "size")
        X = X.toarray()
    return aligned(np.ascontiguousarray(X, dtype=np.float32))


def _samples(X: Any, y: Any, classes: NDArray[Any]) -> _Samples:
    """Return features and numbers of classes."""
    numbers = np.searchsorted(classes, y)
    numbers = np.minimum(numbers, len(classes) - 1)
    if not np.array_equal(classes[numbers], y):
        raise InvalidValue("a label is not among the classes", "classes")
    return _dense(X), numbers.astype(np.uint32)


def _chunks(rows: int, width: int) -> Iterable[slice]:
    """Return slices of rows that are small when standardised."""
    size = max(1, (1 << 24) // max(1, width))
    return (slice(first, first + size) for first in range(0, rows, size))


def _standardized(X: Any, mean: _Floats, scale: _Floats, clip: float) -> _Floats:
    values = (_dense(X).astype(np.float64) - mean) / scale
    return cast(_Floats, np.clip(values, -clip, clip))


def _start(
    start: Any, classes: NDArray[Any], mean: _Floats, scale: _Floats, loss: Loss
) -> tuple[_Floats, _Floats]:
    """Return the weights of a fitted linear classifier of raw features, for standardised ones."""
    if isinstance(start, FederatedSGDClassifier):
        start = start.to_sklearn(fold=True)
    divisor, shift = np.ones_like(mean), np.zeros_like(mean)
    if isinstance(start, Pipeline):
        scaler = start.steps[0][1]
        if not isinstance(scaler, StandardScaler) or not scaler.with_mean or not scaler.with_std:
            raise InvalidValue("start: a pipeline must begin with a StandardScaler", "start")
        divisor, shift, start = scaler.scale_, scaler.mean_, start.steps[-1][1]
    if not all(hasattr(start, name) for name in ("coef_", "intercept_", "classes_")):
        raise InvalidValue("start is not a fitted linear classifier", "start")
    if not np.array_equal(start.classes_, classes):
        raise InvalidValue("start has other classes than the samples", "start")
    coef = check_array(start.coef_, dtype=np.float64) / divisor
    if coef.shape[1] != len(mean):
        raise InvalidValue(f"start has {coef.shape[1]} features, but the samples have {len(mean)}", "start")
    intercept = np.broadcast_to(np.asarray(start.intercept_, dtype=np.float64), len(coef)) - coef @ shift
    weights, intercepts = coef * scale, intercept + coef @ mean
    if len(classes) == 2:
        half = 0.5 if loss == "multinomial" else 1.0
        weights, intercepts = (
            half * np.vstack([-weights, weights]),
            half * np.concatenate([-intercepts, intercepts]),
        )
    return np.ascontiguousarray(weights.T), intercepts


def _read_model(data: bytes) -> tuple[dict[str, Any], dict[str, _Floats]]:
    """Return the metadata and the tensors of a model file."""
    if len(data) < 8:
        raise ValueError("it is too short")
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    about = json.loads(header["__metadata__"]["dphe"])
    if about["version"] != _MODEL_VERSION or about["labels"] != "classes":
        raise ValueError("it has another version, or attributes instead of classes")
    tensors = {}
    for name in ("weights", "intercepts", "mean", "deviation"):
        first, last = header[name]["data_offsets"]
        values = np.frombuffer(body[first:last], {"F64": "<f8", "F32": "<f4"}[header[name]["dtype"]])
        tensors[name] = values.astype(np.float64).reshape(header[name]["shape"])
        if not np.isfinite(tensors[name]).all():
            raise ValueError(f"{name} has a number that is not finite")
    features, classes = tensors["weights"].shape
    shapes = [tensors[name].shape for name in ("intercepts", "mean", "deviation")]
    if shapes != [(classes,), (features,), (features,)] or len(about["classes"]) != classes or classes < 2:
        raise ValueError("its arrays do not fit each other")
    if not (tensors["deviation"] > 0).all() or not about["clip"] > 0:
        raise ValueError("its standardisation is not positive")
    return about, tensors


def _write(path: Path, data: bytes) -> None:
    """Write a file at once, so that nobody reads half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"{path} could not be written: {error.strerror}", "path") from error
