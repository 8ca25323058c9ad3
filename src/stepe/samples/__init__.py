"""What engines and methods take: samples by index, as tensors or as a data set, and their augmentation.

An index is a sample's name here. May import ``loop`` and ``models``.
"""
