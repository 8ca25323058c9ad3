"""Judges give every row probabilities that its own label had no say in.

Numpy and scikit-learn, no torch: networks judge in ``training.judging``. May import ``loop`` and ``beliefs``.
"""
