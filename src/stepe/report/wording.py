"""Numbers and names, written for people."""

import math

DASH, OPEN_BOX = "–", "␣"


def percent(value: float | None) -> str:
    """Write a measured share, to a tenth of a percent."""
    return DASH if value is None else f"{100 * value:.1f}%"


def share(value: float) -> str:
    """Write a share in a sentence: whole percents, unless there are few of them.

    >>> share(0.393), share(0.0042)
    ('39%', '0.4%')
    """
    return f"{value:.0%}" if value == 0 or value >= 0.0995 else f"{value:.1%}"


def suspicion(value: float) -> str:
    """Write a suspicion in three digits, rounded down: only what is certain is 1.

    >>> suspicion(0.99998)
    '0.999'
    """
    return DASH if math.isnan(value) else f"{math.floor(value * 1000) / 1000:.3f}"


def duration(seconds: float) -> str:
    """Write seconds for people.

    >>> duration(14.7), duration(150), duration(4000)
    ('15 s', '2 min 30 s', '1 h 6 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if whole else "under a second"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int) -> str:
    """Write a number of bytes for people.

    >>> size(540), size(78781)
    ('540 B', '79 kB')
    """
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if value >= 9.95 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def visible(name: str) -> str:
    """Let the spaces at the ends of a name be seen: classes may differ by them alone.

    >>> visible("cat "), visible("a cat")
    ('cat␣', 'a cat')
    """
    without = name.lstrip()
    body = without.rstrip()
    return f"{OPEN_BOX * (len(name) - len(without))}{body}{OPEN_BOX * (len(without) - len(body))}"
