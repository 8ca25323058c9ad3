"""The run folder: what a run leaves on disk, as typed values, written so that a kill loses at most an epoch.

Reads and writes; it builds no report and predicts nothing (``app.run.Run``, which people hold, does). No torch. May
import ``beliefs``, ``tables`` and ``loop``.
"""
