"""scikit-learn's side of sklearn_interop.rs: `name number number ...` a line."""
import sys
import warnings

import numpy as np
from sklearn import metrics
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

warnings.simplefilter("ignore")


def show(name, values):
    print(name, *(repr(float(v)) for v in np.ravel(values)))


def digits():
    x, y = load_digits(return_X_y=True)
    show("digits", x)
    show("labels", y)
    return StandardScaler().fit_transform(x), y


def weights():
    x, y = digits()
    show("scaled", x)

    def fit(name, targets, **options):
        model = SGDClassifier(tol=None, **options).fit(x, targets)
        show(name, model.coef_)
        show(name + "_intercepts", model.intercept_)

    elastic = dict(penalty="elasticnet", l1_ratio=0.5)
    fit("hinge_elastic", y, alpha=0.01, max_iter=20, random_state=7, **elastic)
    fit("hinge_elastic_strong", y, alpha=0.03, max_iter=20, random_state=7, **elastic)
    fit("hinge_l2", y, alpha=0.001, max_iter=5, random_state=3, penalty="l2")
    fit("hinge_l1", y, alpha=0.01, max_iter=5, random_state=4, penalty="l1")
    fit("squared_hinge", y, alpha=0.01, max_iter=3, random_state=5, loss="squared_hinge", **elastic)
    fit("log", y, alpha=0.02, max_iter=5, random_state=6, loss="log_loss", **elastic)
    fit("binary", y == 3, alpha=0.01, max_iter=5, random_state=9, **elastic)


def measure():
    random = np.random.RandomState(2017)
    cases = []
    for n, a, b in [(1, 1, 1), (2, 2, 2), (10, 3, 3), (100, 10, 10), (1000, 20, 257), (3000, 101, 101), (500, 1, 7)]:
        for _ in range(5):
            cases.append((random.randint(a, size=n), random.randint(b, size=n)))
    same = random.randint(9, size=400)
    cases += [
        (same, same),  # equal
        (same, 8 - same),  # equal but for the names
        (np.arange(50), np.arange(50)),  # nothing but singletons
        (np.arange(50), np.zeros(50, int)),  # one group
        (np.zeros(50, int), np.zeros(50, int)),
        (same, np.where(random.rand(400) < 0.3, random.randint(9, size=400), same)),  # noisy
    ]
    show("cases", [len(cases)])
    for i, (t, p) in enumerate(cases):
        n = len(t)
        positive = random.rand(n) < random.choice([0.0, 0.1, 0.5, 1.0])
        # rounded scores have ties
        scores = np.round(random.randn(n) + positive, random.choice([0, 1, 8]))
        show(f"truth{i}", t)
        show(f"predicted{i}", p)
        show(f"positive{i}", positive)
        show(f"scores{i}", scores)
        show(f"confusion{i}", metrics.confusion_matrix(t, p, labels=np.arange(max(t.max(), p.max()) + 1)))
        show(
            f"classification{i}",
            [
                metrics.accuracy_score(t, p),
                np.mean([(p[t == c] == c).mean() for c in np.unique(t)]),
                metrics.adjusted_mutual_info_score(t, p),
                metrics.adjusted_mutual_info_score(t, p, average_method="max"),
                metrics.average_precision_score(positive, scores),
            ],
        )
        assert abs(metrics.balanced_accuracy_score(t, p) - np.mean([(p[t == c] == c).mean() for c in np.unique(t)])) < 1e-12


{"digits": digits, "weights": weights, "metrics": measure}[sys.argv[1]]()
