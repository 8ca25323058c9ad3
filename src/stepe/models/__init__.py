"""The networks that ship with stepe, pretrained ones, and what is done to any network: copies, averages, pairs.

May import ``loop``, ``data`` and ``options``.
"""
