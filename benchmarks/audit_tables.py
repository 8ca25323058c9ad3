"""What benchmarks/audit.py measured, as tables, and which goals it meets: docs/research/audit.md is made of them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Any

Row = dict[str, Any]
Of = Callable[[Row], float | None]
"""what a row says; ``None``: nothing"""

STEPE = "stepe"
HUMAN = ("worst", "rand1", "aggre")
RANKS = ("auroc", "average_precision", "f1")
NAMES = {"auroc": "AUROC", "average_precision": "average precision", "f1": "F1"}
KINDS = {"table": "tables", "text": "texts", "images": "digits", "features": "features", None: "ready probabilities"}
FIRST_RIVAL = {"table": "extra trees", None: "the same probabilities"}
"""whom goals are set against; elsewhere it is logistic regression"""
WEAK = 0.6
"""tables on which extra trees are right for less than this share of the rows, fitted on clean labels"""
CALIBRATION = {"table": 0.07, "text": 0.10, "features": 0.05, "images": 0.05, None: 0.05}


# -- Rows ----------------------------------------------------------------------------------------------------------


def group_of(row: Row) -> str:
    """The group that a row is counted in: tables together, human noise and ready probabilities by their labels."""
    if row["kind"] == "table":
        return "tables"
    if row["kind"] is None:
        return "ready: " + row["data"].rpartition("_")[0]
    return row["data"]


def groups_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by their group, in the order of the grid."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(group_of(row), []).append(row)
    return found


def first_rival(kind: str | None) -> str:
    """Whom stepe is measured against on such data."""
    return FIRST_RIVAL.get(kind, "logistic regression")


def noise_kind(row: Row) -> str:
    """The kind of the noise, whatever its rate."""
    return row["noise"].partition(":")[0]


def noisy(rows: Iterable[Row]) -> list[Row]:
    """The rows with wrong labels."""
    return [row for row in rows if row["wrong"] > 0]


def of(who: str, what: str) -> Of:
    """What somebody reached."""
    return lambda row: row["found"].get(who, {}).get(what)


def ahead(what: str, rival: str | None = None) -> Of:
    """By how much stepe is ahead of a rival, by default of the first."""

    def difference(row: Row) -> float | None:
        mine = of(STEPE, what)(row)
        other = of(rival or first_rival(row["kind"]), what)(row)
        return None if mine is None or other is None else mine - other

    return difference


def values(rows: Iterable[Row], what: Of) -> list[float]:
    """What rows say, of those that say anything."""
    return [value for row in rows if (value := what(row)) is not None]


def average(rows: Iterable[Row], what: Of) -> float:
    """The mean over rows; NaN over none."""
    found = values(rows, what)
    return mean(found) if found else math.nan


def over_data(rows: Iterable[Row], what: Of) -> float:
    """The mean over data sets of each one's mean: each counts alike, however many rows it has."""
    by_data: dict[str, list[Row]] = {}
    for row in rows:
        by_data.setdefault(row["data"], []).append(row)
    found = [average(mine, what) for mine in by_data.values()]
    known = [value for value in found if not math.isnan(value)]
    return mean(known) if known else math.nan


def with_error(rows: Iterable[Row], what: Of) -> str:
    """A difference with its standard error over rows."""
    found = values(rows, what)
    if not found:
        return ""
    error = f" ± {stdev(found) / len(found) ** 0.5:.3f}" if len(found) > 1 else ""
    return f"{mean(found):+.3f}{error}"


def weak_tables(rows: Iterable[Row]) -> list[str]:
    """The tables on which extra trees, fitted on clean labels, are right too seldom for anybody to be calibrated."""
    clean = [row for row in rows if row["kind"] == "table" and row["wrong"] == 0]
    names = dict.fromkeys(row["data"] for row in clean)
    right = of(first_rival("table"), "accuracy")
    return [name for name in names if average((row for row in clean if row["data"] == name), right) < WEAK]


# -- Tables --------------------------------------------------------------------------------------------------------


def overview(rows: Sequence[Row]) -> str:
    """Everybody on every group of data, wrong labels there: means over noises and seeds."""
    lines = []
    for group, every in groups_of(noisy(rows)).items():
        for who in dict.fromkeys(name for row in every for name in row["found"]):
            mine = [row for row in every if who in row["found"]]
            cells = [group, who, str(len(mine))]
            cells += [
                _number(average(mine, of(who, what))) for what in (*RANKS, "precision", "recall", "calibration_error")
            ]
            cells.append(f"{average(mine, of(who, 'cpu_seconds')):.1f}")
            cells += [with_error(mine, ahead(what, who)) if who != STEPE else "" for what in RANKS]
            lines.append(cells)
    return _table("data|who|rows|AUROC|AP|F1|precision|recall|calibration error|CPU s|stepe ahead: AUROC|AP|F1", lines)


def in_short(rows: Sequence[Row]) -> str:
    """Stepe beside its first rival on every group of data, for the README."""
    lines = []
    for group, mine in groups_of(noisy(rows)).items():
        rival = first_rival(mine[0]["kind"])
        cells = [group, "cleanlab" if rival == FIRST_RIVAL[None] else rival]
        for what in RANKS:
            cells += [_number(average(mine, of(STEPE, what))), _number(average(mine, of(rival, what)))]
        cells += [f"{average(mine, of(who, 'cpu_seconds')):.1f}" for who in (STEPE, rival)]
        lines.append(cells)
    return _table("data|beside cleanlab on|AUROC|its|average precision|its|F1|its|CPU s|its", lines)


def by_noise(rows: Sequence[Row]) -> str:
    """Stepe beside its first rival, by kind of data and noise."""
    return _ahead_by("data|noise", rows, lambda row: (group_of(row), row["noise"]))


def by_data(rows: Sequence[Row]) -> str:
    """Stepe beside its first rival, by data set."""
    return _ahead_by("data", rows, lambda row: (row["data"],))


def _ahead_by(head: str, rows: Sequence[Row], key: Callable[[Row], tuple[str, ...]]) -> str:
    lines = []
    for group in dict.fromkeys(key(row) for row in noisy(rows)):
        mine = [row for row in noisy(rows) if key(row) == group]
        rival = first_rival(mine[0]["kind"])
        cells = [*group, str(len(mine)), _percent(average(mine, lambda row: row["wrong"]))]
        for what in RANKS:
            cells += [_number(average(mine, of(who, what))) for who in (STEPE, rival)] + [with_error(mine, ahead(what))]
        cells.append(_ratio(mine))
        lines.append(cells)
    return _table(
        f"{head}|rows|wrong|AUROC stepe|rival|ahead|AP stepe|rival|ahead|F1 stepe|rival|ahead|CPU stepe / rival", lines
    )


def rankings(rows: Sequence[Row]) -> str:
    """How well stepe ranks beside what its ranking is made of: AUROC by kind of noise, each data set alike."""
    lines = []
    for kind in dict.fromkeys(noise_kind(row) for row in noisy(rows)):
        mine = [row for row in noisy(rows) if noise_kind(row) == kind]
        names = ("auroc", "auroc_own", "auroc_last_look", "auroc_noise")
        found = [over_data(mine, of(STEPE, name)) for name in names]
        behind = max(found[1], found[3]) - found[0]
        lines.append([kind, str(len(mine)), *map(_number, found), f"{behind:+.3f}"])
    return _table("noise|rows|stepe|own probability|that of the last look|noise matrix|behind the better", lines)


def rates(rows: Sequence[Row]) -> str:
    """How many labels are wrong, and how many stepe says are."""
    lines = []
    for group, mine in groups_of(rows).items():
        off = [abs(row["found"][STEPE]["rate"] - row["wrong"]) for row in mine]
        bias = [row["found"][STEPE]["rate"] - row["wrong"] for row in mine]
        cells = [group, str(len(mine)), f"{mean(off):.3f}", f"{mean(bias):+.3f}"]
        lines.append([*cells, _percent(mean(map(covers, mine))), f"{median(map(width, mine)):.3f}"])
    return _table("data|rows|off by|too high by|range holds the truth|median width", lines)


def covers(row: Row) -> bool:
    """Whether the stated range holds the true rate."""
    low, high = row["found"][STEPE]["range"]
    return bool(low <= row["wrong"] <= high)


def width(row: Row) -> float:
    """How wide the stated range is."""
    low, high = row["found"][STEPE]["range"]
    return float(high - low)


def clean_labels(rows: Sequence[Row]) -> str:
    """What is flagged, and corrected unseen, where no label is wrong."""
    lines = []
    for name in dict.fromkeys(row["data"] for row in rows if row["wrong"] == 0):
        mine = [row for row in rows if row["data"] == name and row["wrong"] == 0]
        rival = first_rival(mine[0]["kind"])
        cells = [name, _percent(average(mine, of(STEPE, "flagged"))), _percent(average(mine, of(rival, "flagged")))]
        cells += [_percent(average(mine, of(STEPE, "changed"))), _number(average(mine, of(STEPE, "rate")))]
        lines.append([*cells, _percent(average(mine, of(rival, "accuracy")))])
    return _table("data|flagged by stepe|by its rival|changed by stepe|rate by stepe|rival's accuracy", lines)


def corrections(rows: Sequence[Row]) -> str:
    """What becomes of labels that are corrected unseen, where stepe is sure."""
    lines = []
    for (group, apart), mine in _by(noisy(rows), lambda row: (group_of(row), noise_kind(row) == "outside")).items():
        before, after = (average(mine, what) for what in (lambda row: row["wrong"], of(STEPE, "wrong_after")))
        worse = [row for row in mine if row["found"][STEPE]["wrong_after"] > row["wrong"]]
        cells = [group + (", outside" if apart else ""), str(len(mine)), _percent(before), _percent(after)]
        lines.append(
            [*cells, _percent(_count(mine, "changed") / _rows(mine)), _percent(rightly(mine)), str(len(worse))]
        )
    return _table("data|rows|wrong before|wrong after|changed|of these right|more wrong than before", lines)


def rightly(rows: Iterable[Row]) -> float:
    """The share of the changed labels that are right afterwards."""
    rows = list(rows)
    changed = _count(rows, "changed")
    return _count(rows, "changed_rightly") / changed if changed else math.nan


def memory(rows: Sequence[Row]) -> str:
    """Peaks of memory, measured once for each data set in a process of its own, and CPU time."""
    lines = []
    for row in rows:
        if peaks := row.get("peak_bytes"):
            rival = first_rival(row["kind"])
            cells = [row["data"], str(row["rows"]), str(row["classes"])]
            cells += [f"{peaks[who] / 2**20:.0f}" for who in (STEPE, rival)]
            mine = [other for other in rows if other["data"] == row["data"]]
            lines.append([*cells, *(f"{average(mine, of(who, 'cpu_seconds')):.2f}" for who in (STEPE, rival))])
    return _table("data|rows|classes|MiB stepe|rival|CPU s stepe|rival", lines)


def beside_before(rows: Sequence[Row], before: Sequence[Row]) -> str:
    """What the audit finds beside the default that it replaces, on the same labels; features and texts included."""
    found = {(row["data"], row["noise"], row["seed"]): row["found"]["command"] for row in before}
    both = [
        row | {"found": row["found"] | {"command": found[key]}}
        for row in noisy(rows)
        if (key := (row["data"], row["noise"], row["seed"])) in found
    ]
    lines = []
    for group, mine in groups_of(both).items():
        cells = [group, str(len(mine))]
        for what in RANKS:
            cells += [_number(average(mine, of("command", what))), _number(average(mine, of(STEPE, what)))]
        seconds = average(mine, of("command", "command_cpu_seconds")), average(mine, of(STEPE, "cpu_seconds"))
        lines.append([*cells, *(f"{each:.1f}" for each in seconds)])
    return _table(
        "data|rows|AUROC before|audit|AP before|audit|F1 before|audit|CPU s of the command before|of the audit", lines
    )


# -- Goals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """Something to reach, what was reached, and whether that is enough; ``None`` where nothing was measured."""

    what: str
    asked: str
    found: str
    met: bool | None


def goals(rows: Sequence[Row]) -> list[Goal]:
    """Every goal that was set before the data were looked at."""
    return [*_ranking_goals(rows), *_other_goals(rows)]


def goals_table(rows: Sequence[Row]) -> str:
    """The goals, met or not."""
    said = {True: "met", False: "**not met**", None: "not measured"}
    return _table("goal|asked|found|", [[g.what, g.asked, g.found, said[g.met]] for g in goals(rows)])


def _ranking_goals(rows: Sequence[Row]) -> Iterable[Goal]:
    tables = [row for row in noisy(rows) if row["kind"] == "table"]
    for what, asked in zip(RANKS, (0.020, 0.040, 0.05), strict=True):
        found, cases = over_data(tables, ahead(what)), with_error(tables, ahead(what))
        yield _least(f"tables, {NAMES[what]} ahead of extra trees", asked, found, f" (each row alike: {cases})")
    ratio = _cpu(tables)
    yield Goal(
        "tables, CPU time over that of extra trees", "at most 1.05", f"{ratio:.2f}", _holds(ratio <= 1.05, ratio)
    )
    wanted = {"worst": (0.020, 0.030, 0.06), "rand1": (0.012, 0.035, 0.055), "aggre": (0.013, 0.045, 0.09)}
    for name in HUMAN:
        mine = [row for row in rows if row["data"] == name]
        for what, asked in zip(RANKS, wanted[name], strict=True):
            yield _least(f"{name}, {NAMES[what]} ahead of logistic regression", asked, average(mine, ahead(what)))
    ready = [row for row in rows if row["kind"] is None]
    for what in RANKS:
        found = {row["data"]: ahead(what)(row) or 0.0 for row in ready}
        least = min(found, key=lambda name: found[name], default="")
        said = f"least {found[least]:+.3f} ({least})" if found else ""
        met = min(found.values()) > 0 if found else None
        yield Goal(f"ready probabilities, {NAMES[what]} ahead of cleanlab in each set", "more than 0", said, met)
    texts = [row for row in noisy(rows) if row["kind"] == "text"]
    for kind, wanted_of in (("symmetric", (-0.003, -0.010, 0.03)), ("asymmetric", (0.06, 0.20, 0.02))):
        mine = [row for row in texts if noise_kind(row) == kind]
        for what, asked in zip(RANKS, wanted_of, strict=True):
            said = f"texts, {kind}, {NAMES[what]} ahead of logistic regression"
            yield _least(said, asked, average(mine, ahead(what)))


def _other_goals(rows: Sequence[Row]) -> Iterable[Goal]:
    silent = [row for row in rows if row["wrong"] > 0.05 and row["found"][STEPE]["f1"] == 0]
    excused = [row for row in silent if not row["found"][STEPE]["has_signal"] and _of_rival(row, "f1") < 0.3]
    mute = [row for row in silent if row not in excused]
    said = f"{len(mute)} rows{_names(mute)}; {len(excused)} more say so"
    yield Goal("F1 of 0 above 5% noise, unless there is not enough signal", "never", said, not mute if rows else None)

    clean = [row for row in rows if row["wrong"] == 0]
    digits = [row for row in clean if row["data"].startswith("digits")]
    flagged = values(digits, of(STEPE, "flagged"))
    most = max(flagged, default=math.nan)
    yield Goal("clean digits, flagged at most", "3%", _percent(most, 2), _holds(most <= 0.03, most))

    for kind in dict.fromkeys(noise_kind(row) for row in noisy(rows)):
        mine = [row for row in noisy(rows) if noise_kind(row) == kind]
        stepe, own, matrix = (over_data(mine, of(STEPE, name)) for name in ("auroc", "auroc_own", "auroc_noise"))
        behind = max(own, matrix) - stepe
        said = f"{behind:+.3f} (own {own:.3f}, matrix {matrix:.3f})"
        yield Goal(f"AUROC behind the better of own and matrix, {kind}", "at most .010", said, behind <= 0.010)

    covered, wide = mean(map(covers, rows)), median(map(width, rows))
    yield Goal("the rate's range holds the truth", "at least 85%", _percent(covered), covered >= 0.85)
    yield Goal("median width of the range", "at most .16", f"{wide:.3f}", wide <= 0.16)

    weak = weak_tables(rows)
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind and row["data"] not in weak]
        error = average(mine, of(STEPE, "calibration_error"))
        left_out = f" (without {', '.join(weak)})" if kind == "table" and weak else ""
        asked = CALIBRATION[kind]
        said = f"{KINDS[kind]}, calibration error{left_out}"
        yield Goal(said, f"at most {asked:.2f}", f"{error:.3f}", error <= asked)
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        claimed, right = _of_flagged(mine, "suspicion_of_flagged"), _of_flagged(mine, "precision")
        said = f"{claimed - right:+.3f} ({claimed:.3f} claimed, {right:.3f} right)"
        yield Goal(
            f"{KINDS[kind]}, suspicion of the flagged beside their precision",
            "within .10",
            said,
            abs(claimed - right) <= 0.10,
        )

    worse = [row for row in noisy(rows) if row["found"][STEPE]["wrong_after"] > row["wrong"]]
    yield Goal("noisy rows with more wrong labels after correction", "none", f"{len(worse)}{_names(worse)}", not worse)
    known = [row for row in noisy(rows) if noise_kind(row) != "outside"]
    share, apart = rightly(known), rightly(row for row in noisy(rows) if noise_kind(row) == "outside")
    said = f"{_percent(share)} (outside: {_percent(apart)})"
    yield Goal("corrections that are right, but for outside", "at least 85%", said, _holds(share >= 0.85, share))
    changed = values(clean, of(STEPE, "changed"))
    most = max(changed, default=math.nan)
    usual = mean(changed) if changed else math.nan
    worst = [row for row in clean if row["found"][STEPE]["changed"] > 0.03]
    yield Goal("clean labels changed, on average", "at most 0.5%", _percent(usual, 2), _holds(usual <= 0.005, usual))
    yield Goal("clean labels changed, at most", "3%", f"{_percent(most, 2)}{_names(worst)}", _holds(most <= 0.03, most))


def _least(what: str, asked: float, found: float, more: str = "") -> Goal:
    # Whoever is asked for three decimals is held to three.
    met = _holds(round(found, 3) >= asked, found)
    return Goal(what, f"at least {asked:+.3f}", "" if math.isnan(found) else f"{found:+.3f}{more}", met)


def _holds(met: bool, found: float) -> bool | None:
    return None if math.isnan(found) else met


def _of_rival(row: Row, what: str) -> float:
    return float(of(first_rival(row["kind"]), what)(row) or 0)


def _of_flagged(rows: Iterable[Row], what: str) -> float:
    """The mean over flagged rows of all cases."""
    total = weighted = 0.0
    for row in rows:
        found = row["found"][STEPE]
        flagged = found["flagged"] * row["rows"]
        if flagged:
            total += flagged
            weighted += flagged * found[what]
    return weighted / total if total else math.nan


def _cpu(rows: Sequence[Row]) -> float:
    rivals = sum(_of_rival(row, "cpu_seconds") for row in rows)
    return sum(values(rows, of(STEPE, "cpu_seconds"))) / rivals if rivals else math.nan


def _ratio(rows: Sequence[Row]) -> str:
    return f"{_cpu(rows):.2f}"


def _rows(rows: Iterable[Row]) -> int:
    return sum(row["rows"] for row in rows)


def _count(rows: Iterable[Row], what: str) -> float:
    return sum(row["found"][STEPE][what] * row["rows"] for row in rows)


def _by(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _names(rows: Sequence[Row]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        name = f"{row['data']} {row['noise']}"
        counts[name] = counts.get(name, 0) + 1
    said = [name + (f" x {count}" if count > 1 else "") for name, count in counts.items()]
    return f" ({', '.join(said)})" if said else ""


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def _percent(value: float, digits: int = 1) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}%}"


def _table(head: str, lines: Iterable[Sequence[str]]) -> str:
    head = f"| {head.replace('|', ' | ')} |"
    rule = "|" + "---|" * (head.count("|") - 1)
    rows = (f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") for cells in lines)
    return "\n".join([head, rule, *rows])


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "Goals": goals_table,
    "Everybody": overview,
    "By noise, beside the first rival": by_noise,
    "By data set, beside the first rival": by_data,
    "Rankings (AUROC)": rankings,
    "The rate": rates,
    "Clean labels": clean_labels,
    "Corrections unseen": corrections,
    "Memory and time": memory,
}


def summary(rows: Sequence[Row]) -> str:
    """All tables."""
    return "\n\n".join(f"## {name}\n\n{make(rows)}" for name, make in TABLES.items())
