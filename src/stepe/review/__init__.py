"""What people decide about the suspects, and the data written again with it.

The review app with its guard, decisions as a table, the cleaned file, exports to other tools. No torch. May import
``run``, ``tables``, ``data``, ``beliefs``, ``loop`` and ``options``.
"""
