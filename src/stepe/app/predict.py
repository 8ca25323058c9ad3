"""``stepe predict``: what the model of a run says about further data, encoded as its training data was."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepe.app.handed_over import HandedOver, is_handed_over, read_handed_over
from stepe.data.collect import Collection, collect, from_matrix
from stepe.data.encoders import Encoder, FeatureEncoder
from stepe.data.source import check_there
from stepe.errors import InputError, RunError
from stepe.options.layout import Layout
from stepe.run.paths import Trust
from stepe.run.record import PREPROCESSING

if TYPE_CHECKING:
    import pandas as pd

    from stepe.app.run import Run
    from stepe.app.trained_network import TrainedNetwork


def predict(run: "Run", data: Any, *, device: str = "auto", trust_paths: Trust = False) -> "pd.DataFrame":
    """Predict the label of every sample of ``data``, which may lack labels, with its confidence.

    Args:
        run: a finished run of ``stepe clean``.
        data: a path or an object of the form that the run was trained on.
        device: where a network computes.
        trust_paths: whether a network is read wherever the run folder says that it lies, though somebody else made it.
    """
    import pandas as pd

    model = _model_of(run, device, trust_paths)
    collection = _collect(run, data, model.encoder, model.size)
    probability = model.predict(collection.inputs)
    return pd.DataFrame(
        {
            "id": collection.ids,
            "predicted_label": [run.class_names[label] for label in probability.argmax(1).tolist()],
            "confidence": probability.max(1).round(6),
        }
    )


def _model_of(run: "Run", device: str, trust_paths: Trust) -> "HandedOver | TrainedNetwork":
    if not run.file("model.safetensors").exists():  # a moved run may have nothing else
        run.check_finished()
    path = run.file(PREPROCESSING)
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(
            f"{run.path} cannot predict: it has no {PREPROCESSING}; runs of `stepe clean` have it when they end"
        ) from error
    except (OSError, ValueError) as error:
        raise RunError(f"{run.path} cannot predict: its {PREPROCESSING} is damaged ({error})") from error
    if is_handed_over(saved):
        return read_handed_over(run)
    from stepe.app.trained_network import TrainedNetwork

    return TrainedNetwork(run, saved, device, trust_paths)


def _collect(run: "Run", data: Any, encoder: Encoder, size: int | None) -> Collection:
    asked = run.request
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
