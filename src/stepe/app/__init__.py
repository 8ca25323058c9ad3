"""Whole jobs: ``stepe clean`` from data to a finished run, resuming it, predicting with it, training with decisions.

Here meet the rooms that know files and those that know networks. May import all but ``integrations``, ``reproduction``
and ``cli``.
"""
