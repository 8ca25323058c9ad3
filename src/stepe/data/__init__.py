"""People's data and bundled data: found, read, checked, split, encoded as numbers, and noise to plant in it.

Everything is numpy: arrays become tensors in ``training``. May import ``run``, ``tables`` and the rooms above them.
"""
