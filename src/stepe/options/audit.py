"""Options of the audit: who judges labels, how much one says for itself, which are pointed out and corrected."""

from collections.abc import Sequence
from typing import Annotated

from stepe.options.data import names
from stepe.options.option import Option

AUDIT = "The audit"
CLEANED = "The cleaned file"
JUDGE_NAMES = ("linear", "kernel", "ranks", "forest", "neighbours", "boosting")
"""what ``stepe.audit.panel.MAKERS`` holds, for those who do not load it to say it"""
NETWORK = "network"

Judges = Annotated[
    str | Sequence[str] | None,
    Option(
        f"Who judges the labels: a comma list of {', '.join(JUDGE_NAMES)}, mixed by how well they explain the labels; "
        f"or {NETWORK}: a network is trained.",
        AUDIT,
        metavar="NAMES",
        default="those that fit the data; of pictures of more than 16 pixels, or with an option that only networks "
        "have, a network",
        read=lambda judges: ",".join(names(judges) or ()),
    ),
]
Evidence = Annotated[
    float,
    Option(
        "How much a label says for itself: 1 where classes overlap, so that it is a fair draw among those that a row "
        "allows; 0.5 where an expert could always tell and people erred.",
        AUDIT,
        metavar="TAU",
        default="1 for texts, 0.85 for tables, 0.75 for features and pictures",
        above=0,
        max=2,
    ),
]

Top = Annotated[
    int,
    Option(
        "Flag the most suspicious labels, so many.",
        AUDIT,
        metavar="N",
        default="every label that is more likely wrong than right",
        min=1,
    ),
]
MinSuspicion = Annotated[
    float,
    Option(
        "Flag the labels that are wrong with at least this probability. With `top`, at most so many of them.",
        AUDIT,
        metavar="SHARE",
        default="every label that is more likely wrong than right",
        min=0,
        max=1,
    ),
]

# -- Of the cleaned file -------------------------------------------------------------------------------------------

MinConfidence = Annotated[
    float,
    Option(
        "Relabelling changes a label only where the suggestion is right with at least this probability.",
        CLEANED,
        metavar="SHARE",
        min=0,
        max=1,
    ),
]
Force = Annotated[bool, Option("Relabel even where the rows say too little about their labels.", CLEANED)]
