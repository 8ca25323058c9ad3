"""People's data and bundled data: found, read, checked, split, encoded as numbers, and noise to plant in it.

Everything is numpy and no torch: arrays become tensors in ``app`` and ``training``, and encoders that need a pretrained
network are in ``models``. May import ``run``, ``tables``, ``beliefs``, ``loop`` and ``options``.
"""
