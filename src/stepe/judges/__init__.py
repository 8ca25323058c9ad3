"""Judges give every row a probability of each class that the row's own label had no say in.

Each judge is a small class: given weights and targets, it answers for all rows, and rows of one block (copies of one
input, rows of one patient) never judge each other. Numpy, scipy and scikit-learn, no torch: networks judge in
``training.judging``. May import ``beliefs`` and ``loop``.
"""
