"""The run folder: what a run leaves on disk, as typed values, written so that a kill loses at most an epoch.

This room builds no report and predicts nothing: ``app.run.Run``, which people hold, does. ``training.recorder`` writes
a run as it trains. No torch. May import ``beliefs``, ``tables``, ``loop`` and ``options``.
"""
