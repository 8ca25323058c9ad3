"""Options: each is declared here once, with what it means, its range and the panel of ``--help`` it stands in.

Signatures take these declarations as their annotations; command line, config.json, resume and reference read them from
there. May import ``files`` and ``errors``.
"""
