"""A Flower app: digits with scikit-learn."""
