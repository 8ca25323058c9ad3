"""Step-E+: the probe that says which labels to drop also says what to put in their place.

``method`` puts it together from its parts: correction, the classes' prior, blends. May import what ``methods`` may.
"""
