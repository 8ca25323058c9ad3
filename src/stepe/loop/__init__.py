"""The paper's loop in parts: schedule, selection, ledger, plan, objective, and what they stand on (labels, named
randomness, processes, metrics).

Each part is a small pure function or value. Rooms that know no torch may use those that know none either: ``schedule``,
``draws``, ``kinds``, ``numpy_selection`` and ``metrics``. May import ``errors`` and ``files``.
"""
