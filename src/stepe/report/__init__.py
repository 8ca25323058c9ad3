"""``report.html``: what a run found, as one page to look at and to send around.

Made from a run folder alone. No torch. May import ``run``, ``review`` and ``beliefs``.
"""
