"""The paper's tables, figures and claims, measured again, and the ladder of speeds.

Nothing that users of their own data load. May import all but ``cli``.
"""
