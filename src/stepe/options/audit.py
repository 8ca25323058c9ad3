"""Options of the audit: which labels are pointed out, and what becomes of them."""

from typing import Annotated

from stepe.options.option import Option

AUDIT = "The audit"
CLEANED = "The cleaned file"

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
