"""What the network of a run says about further data, encoded as its training data was."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from stepe.data.encoders import Encoder, ImageEncoder
from stepe.errors import InputError, RunError
from stepe.loop.probe import evaluating
from stepe.loop.randomness import preserved
from stepe.models.build import build
from stepe.models.encoders import FrozenEncoder, read_encoder
from stepe.run.paths import Trust, check_paths, local_paths
from stepe.run.record import PREPROCESSING
from stepe.samples.augmentation import Normalised
from stepe.training.building import find_device

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder

BATCH = 512


class TrainedNetwork:
    """The network of a run, with the encoder of its inputs."""

    def __init__(self, run: "RunFolder", saved: Any, device: str, trust_paths: Trust):
        self._device = find_device(device)
        with preserved():  # networks draw their first weights, which are then replaced
            self.encoder, self._model = _load(run, saved, trust_paths)

    @property
    def size(self) -> int | None:
        """The side of the pictures that it takes."""
        shown = self.encoder.inputs if isinstance(self.encoder, FrozenEncoder) else self.encoder
        return shown.size if isinstance(shown, ImageEncoder) else None

    def predict(self, inputs: Any) -> Any:
        """Return how likely each class is for raw inputs."""
        x = torch.from_numpy(self.encoder.encode(inputs))
        return _probabilities(self._model, self.encoder, x, self._device).double().numpy()


def _load(run: "RunFolder", saved: Any, trust_paths: Trust) -> tuple[Encoder, nn.Module]:
    try:
        check_paths(run.path, {"model": [path for name in _models(saved) for path in local_paths(name)]}, trust_paths)
        encoder, model = read_encoder(saved["encoder"]), build(saved["model"], pretrained=False)
        safetensors.torch.load_model(model, str(run.file("model.safetensors")))
    except FileNotFoundError as error:
        missing = Path(error.filename or "model.safetensors").name
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
