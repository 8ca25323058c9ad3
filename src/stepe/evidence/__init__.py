"""From running guesses to a belief: the rules of today, by which networks judge themselves or each other.

They feed :class:`stepe.beliefs.belief.Belief` and nothing else. To be replaced by the judges. May import ``loop`` and
``beliefs``.
"""
