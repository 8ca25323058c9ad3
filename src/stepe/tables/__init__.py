"""Files of rows, a module a format: each reads one, and writes it again cell for cell with some of it changed.

What is to be changed is decided elsewhere (``review``). No torch. May import ``errors`` and ``files``.
"""
