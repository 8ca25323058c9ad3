"""Options of the audit: which labels are pointed out."""

from typing import Annotated

from stepe.options.option import Option

AUDIT = "The audit"

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
