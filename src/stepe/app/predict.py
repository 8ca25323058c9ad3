"""``stepe predict``: what the model of a run says about further data, encoded as its training data was."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from stepe.app.work import PREPROCESSING
from stepe.data.collect import Collection, collect, from_matrix
from stepe.data.encoders import Encoder, FeatureEncoder, ImageEncoder
from stepe.data.source import check_there
from stepe.errors import InputError, RunError
from stepe.loop.probe import evaluating
from stepe.loop.randomness import preserved
from stepe.models.build import build
from stepe.models.encoders import FrozenEncoder, read_encoder
from stepe.options.layout import Layout
from stepe.run.paths import Trust, check_paths, local_paths
from stepe.samples.augmentation import Normalised
from stepe.training.building import find_device

if TYPE_CHECKING:
    import pandas as pd

    from stepe.app.run import Run

BATCH = 512


def predict(run: "Run", data: Any, *, device: str = "auto", trust_paths: Trust = False) -> "pd.DataFrame":
    """Predict the label of every sample of ``data``, which may lack labels, with its confidence.

    Args:
        run: a finished run of ``stepe clean``.
        data: a path or an object of the form that the run was trained on.
        device: where to compute.
        trust_paths: whether a network is read wherever the run folder says that it lies, though somebody else made it.
    """
    import pandas as pd

    found_device = find_device(device)
    with preserved():  # networks draw their first weights, which are then replaced
        encoder, model = _load(run, trust_paths)
    collection = _collect(run, data, encoder)
    probability = _probabilities(model, encoder, torch.from_numpy(encoder.encode(collection.inputs)), found_device)
    confidence, predicted = probability.max(1)
    return pd.DataFrame(
        {
            "id": collection.ids,
            "predicted_label": [run.class_names[label] for label in predicted.tolist()],
            "confidence": confidence.double().numpy().round(6),
        }
    )


def _load(run: "Run", trust_paths: Trust) -> tuple[Encoder, nn.Module]:
    if not run.file("model.safetensors").exists():  # a moved run may have nothing else
        run.check_finished()
    path = run.file(PREPROCESSING)
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        check_paths(run.path, {"model": [path for name in _models(saved) for path in local_paths(name)]}, trust_paths)
        encoder, model = read_encoder(saved["encoder"]), build(saved["model"], pretrained=False)
        safetensors.torch.load_model(model, str(run.file("model.safetensors")))
    except FileNotFoundError as error:
        missing = Path(error.filename or path).name
        raise RunError(
            f"{run.path} cannot predict: it has no {missing}; runs of `stepe clean` have it when they are finished"
        ) from error
    except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
        if isinstance(error, RunError | InputError):
            raise
        raise RunError(f"{run.path} cannot predict: its model or {PREPROCESSING} is damaged ({error})") from error
    return encoder, model


def _models(saved: Any) -> Iterator[str]:
    """Name the pretrained networks in a preprocessing."""
    if isinstance(saved, dict):
        for name, value in saved.items():
            yield from [value] if name == "model" and isinstance(value, str) else _models(value)


def _collect(run: "Run", data: Any, encoder: Encoder) -> Collection:
    asked = run.request
    shown = encoder.inputs if isinstance(encoder, FrozenEncoder) else encoder
    size = shown.size if isinstance(shown, ImageEncoder) else None
    layout = Layout(
        text=asked.text,
        image=asked.image,
        features=asked.features,
        id=asked.id,
        encoding=asked.encoding,
        image_size=size,
    )
    if isinstance(data, str | Path):
        check_there(str(data))
        if Path(data).is_dir() or str(data).lower().endswith((".npz", ".npy")):
            layout = Layout(image_size=size)
        found = collect(str(data), layout, lambda message: None, labelled=False)
    elif isinstance(encoder, FeatureEncoder) and not hasattr(data, "columns"):
        found = from_matrix(data, None, "arrays")
    else:
        found = collect(data, layout, lambda message: None, labelled=False)
    if found.kind != encoder.kind:
        raise InputError(f"{run.path} was trained on {encoder.kind}, and the data is {found.kind}; give data like that")
    return found


def _probabilities(model: nn.Module, encoder: Encoder, x: Tensor, device: torch.device) -> Tensor:
    normalised = Normalised.by(encoder.mean, encoder.std, device) if isinstance(encoder, ImageEncoder) else None
    model.to(device)
    found = []
    with evaluating(model):
        for batch in torch.split(x, BATCH):
            part = batch.to(device)
            logits = model(part) if normalised is None else normalised(model, part)
            found.append(logits.float().softmax(1).cpu())
    return torch.cat(found)
