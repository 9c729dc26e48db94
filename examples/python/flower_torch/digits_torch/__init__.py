"""A Flower app: digits with PyTorch."""
