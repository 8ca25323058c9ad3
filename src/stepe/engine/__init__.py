"""Engines carry out the probe and the epoch: eager, resident on a GPU, compiled, stacked, several at a time.

They know how to train, never what or why. May import ``loop``, ``samples``, ``models`` and ``methods``.
"""
