"""scikit-learn's side of speed.rs: one line of seconds, objective, accuracy, sparsity for every seed."""
import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import SGDClassifier

warnings.simplefilter("ignore")
directory, penalty = sys.argv[1:3]
alpha, ratio, seeds = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
train, test = (np.array(line.split(), dtype=int) for line in sys.stdin)
x = np.load(directory + "/features.npy").astype(np.float64)
y = np.load(directory + "/labels.npy")
mean, deviation = x[train].mean(0), x[train].std(0)
deviation[deviation < 1e-6] = 1
a, b = (np.clip((x[part] - mean) / deviation, -6, 6) for part in (train, test))
targets = np.where(y[train][:, None] == np.arange(y.max() + 1), 1.0, -1.0)
for seed in range(seeds):
    model = SGDClassifier(penalty=penalty, alpha=alpha, l1_ratio=ratio, max_iter=10, tol=None, random_state=seed, n_jobs=1)
    clock = time.process_time()
    model.fit(a, y[train])
    seconds = time.process_time() - clock
    w, scores = model.coef_, a @ model.coef_.T + model.intercept_
    cost = alpha * (ratio * np.abs(w).sum() + (1 - ratio) / 2 * (w**2).sum())
    objective = (np.maximum(0, 1 - targets * scores).mean(0).sum() + cost) / len(w)
    predicted = model.predict(b)
    accuracy = np.mean([(predicted[y[test] == c] == c).mean() for c in np.unique(y[test])])
    print(seconds, objective, accuracy, (w == 0).mean(), flush=True)
