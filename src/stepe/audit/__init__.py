"""Audits: judges look at the rows in rounds, each without the labels that the one before doubted.

A round is an epoch of Step-E with judges in the place of a network: the same selection, floors and trusted rows. No
torch. May import ``judges``, ``beliefs``, ``loop`` and ``options``.
"""
