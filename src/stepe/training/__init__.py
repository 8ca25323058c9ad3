"""Training a network by a method: ``fit``, the session under it, its inputs, its checkpoints, and who judges.

Arrays become tensors here. May import all but ``app``, ``integrations``,
``reproduction`` and ``cli``.
"""
