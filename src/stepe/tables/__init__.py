"""Files of rows, a module a format: each is read in Arrow batches, and written again cell for cell with some edited.

``formats`` says which format a path has. What is edited is decided elsewhere (``review``). Knows no torch. May import
``loop``, ``options``, ``files`` and ``errors``.
"""
