"""The input of a run again, with the suspicious rows marked, removed or relabelled, and all else as it was."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepe.data.table import is_hf_folder
from stepe.errors import InputError, RunError
from stepe.files import name_of_text, replacing
from stepe.options import checked
from stepe.options.audit import Force, MinConfidence, MinSuspicion, Top
from stepe.review.edits import MIN_CONFIDENCE, MODES, Edits, Mode
from stepe.run.folder import RunFolder
from stepe.run.paths import Trust, check_paths
from stepe.tables import delimited
from stepe.tables.edit import Cell
from stepe.tables.formats import Format, format_of, rewritten_suffix

Say = Callable[[str], None]


@checked
def write_cleaned(
    run: RunFolder | str | Path,
    mode: Mode = "mark",
    *,
    out: str | Path | None = None,
    top: Top | None = None,
    min_suspicion: MinSuspicion | None = None,
    min_confidence: MinConfidence = MIN_CONFIDENCE,
    force: Force = False,
    trust_paths: Trust = False,
    say: Say = lambda message: None,
) -> Path:
    """Write the input of a finished run again; returns the path, by default ``cleaned.<ext>`` in the run folder.

    Args:
        run: a finished run, or its folder.
        mode: ``"mark"`` adds columns that say which labels look wrong and what they might be, ``"drop"`` leaves those
            rows out, ``"relabel"`` gives them the suggested label where that is sure enough. What people have decided
            in a review is carried out in all three: such a row has the label they chose, and is no suspect any more.
        out: another file to write.
        top: the most suspicious labels are suspects, so many, whatever the run flags.
        min_suspicion: suspects are the labels that are wrong with at least this probability.
        min_confidence: how likely a suggestion has to be right for ``"relabel"`` to follow it.
        force: whether to relabel although the rows say too little about their labels.
        trust_paths: whether the input is read wherever the run folder says that it lies, though somebody else made it.
        say: is told how many labels were corrected, and if the file is of another format than the input.
    """
    run = run if isinstance(run, RunFolder) else RunFolder(run)
    if mode not in MODES:
        raise InputError(f"mode is {mode!r}; choose {', '.join(MODES)}")
    if mode == "relabel" and not force and not run.belief.has_signal:
        raise InputError(
            f"the rows of {run.path} say too little about their labels to correct any; add more rows, better features "
            "(an encoder: --model) or another column, and run again; or insist with --force (force=True)"
        )
    origin = find_origin(run, trust_paths)
    format_ = None if origin is None else origin.format
    suffix = ".csv" if origin is None or format_ is None else rewritten_suffix(origin.path)
    target = run.file(f"cleaned{suffix}") if out is None else Path(out)
    if target.suffix != suffix:
        raise InputError(f"{target} does not end in {suffix}, and the cleaned data of {run.path} is written as that")
    if origin is not None and target.exists() and origin.path.samefile(target):
        raise InputError(f"{target} is the input itself; choose another file")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}; make it first, or choose another file")
    source = () if origin is None else (origin.path, origin.label)
    edits = Edits(run, mode, *source, min_confidence=min_confidence, top=top, min_suspicion=min_suspicion)
    with replacing(target) as temporary:
        if origin is None or format_ is None:
            _write_list(temporary, edits)
        else:
            format_.rewrite(origin.path, temporary, edits, origin.encoding)
            edits.check_complete()
    if mode == "relabel":
        say(f"{edits.corrected:,} corrected, {edits.left:,} left as {'it is' if edits.left == 1 else 'they are'}")
    if origin is not None and format_ is not None and suffix != origin.path.suffix:
        say(f"{target} has the rows of {origin.path} as {suffix[1:].upper()}: what else is in a workbook would be lost")
    return target


@dataclass(frozen=True)
class Origin:
    """The file or folder that a run was made from."""

    path: Path
    label: str
    """the column of the labels"""
    encoding: str

    @property
    def format(self) -> Format | None:
        """The format of the table; ``None`` for a folder of images."""
        return None if self.path.is_dir() else format_of(self.path)


def find_origin(run: RunFolder, trust_paths: Trust) -> Origin | None:
    """Find the input of a run; ``None`` if its labels are in no file: arrays, data sets by name, planted noise."""
    request = run.request
    if not request.data or request.noise:
        return None
    path, images = Path(request.data), request.kind == "images"
    if path.is_dir() and (not images or is_hf_folder(path)):
        return None
    if not path.exists():
        if images or format_of(path) is not None:
            raise RunError(f"{path}, from which {run.path} was made, is gone; put it back")
        return None
    check_paths(run.path, {"input": [path]}, trust_paths)
    label = request.label or ("labels" if path.suffix.lower() == ".npz" else "label")
    return Origin(path, label, request.encoding)


def _write_list(target: Path, edits: Edits) -> None:
    """Write a line for each sample whose label is in no table: its id, or the path of an image in its folder."""
    folder = edits.path if edits.path is not None and edits.path.is_dir() else None
    rows: list[list[Cell]] = [["id" if folder is None else "path", "label", *edits.added]]
    for row, key, given in edits.samples[["row", "id", "given_label"]].itertuples(index=False):
        if folder is not None and not (folder / name_of_text(key)).is_file():
            raise edits.changed(f"there is no {key} any more, which was labelled {given!r}")
        edit = edits.of(row, given)
        if not edit.dropped:
            rows.append([key, given if edit.label is None else edit.label, *edit.added])
    delimited.write(target, rows)
