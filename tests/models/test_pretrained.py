"""Pretrained networks: a tiny language model made here, and a stand-in for timm, which is not everywhere."""

import json
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import stepe
from stepe.data.encoders import ImageEncoder, write_encoder
from stepe.models import pretrained
from stepe.models.encoders import FrozenEncoder, TokenEncoder, read_encoder

WORDS = ["good", "fine", "great", "bad", "poor", "awful", "film", "the", "a", "was"]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("model")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    transformers.BertTokenizer(str(vocabulary)).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return f"hf:{folder}"


@pytest.fixture
def _timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean colours of the four quarters, whatever the name."""

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> nn.Module:
        assert pretrained
        assert num_classes == 0
        if name == "nothing":
            raise RuntimeError("Unknown model (nothing)")
        return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())

    data = types.SimpleNamespace(resolve_model_data_config=lambda network: {"mean": (0.5,) * 3, "std": (0.25,) * 3})
    fake = types.SimpleNamespace(create_model=create_model, data=data)
    monkeypatch.setattr(pretrained, "_package", lambda prefix: fake)


def test_a_text_becomes_the_mean_of_its_tokens_states(language_model):
    one, padded = (torch.from_numpy(TokenEncoder(language_model, length).encode(["good film"])) for length in (8, 16))
    torch.testing.assert_close(pretrained.features(language_model, one), pretrained.features(language_model, padded))
    model = pretrained.TextFeatures(pretrained._package("hf"), language_model.removeprefix("hf:")).eval()
    ids = one[one > 0] - 1
    with torch.no_grad():
        states = model.model(input_ids=ids[None]).last_hidden_state[0]
    torch.testing.assert_close(pretrained.features(language_model, one)[0], states.mean(0))


@pytest.mark.usefixtures("_timm")
def test_pictures_are_normalised_as_the_network_was_trained():
    pictures = torch.full((3, 3, 4, 4), 255, dtype=torch.uint8)
    assert pretrained.features("timm:any", pictures).tolist() == [[2.0] * 12] * 3


def test_the_encoder_is_the_same_after_reading_it_back(language_model):
    texts = ["the film was good", "bad film", "a great film"]
    encoder = FrozenEncoder.fit(texts, TokenEncoder.fit(texts, language_model), language_model)
    again = read_encoder(write_encoder(encoder))
    assert again == encoder
    assert again.kind == "text"
    np.testing.assert_allclose(encoder.encode(texts).mean(0), 0, atol=1e-5)


@pytest.fixture
def hostile_model(tmp_path) -> tuple[str, Path]:
    """A model whose files bring code that would leave a mark, and where that mark would be."""
    pytest.importorskip("transformers")
    folder, mark = tmp_path / "hostile", tmp_path / "mark"
    folder.mkdir()
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w')\nclass Config: pass\nModel = Tokenizer = Config\n")
    own = {"AutoConfig": "code.Config", "AutoModel": "code.Model", "AutoModelForSequenceClassification": "code.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "hostile", "auto_map": own}))
    tokenizer = {"tokenizer_class": "Hostile", "auto_map": {"AutoTokenizer": ["code.Tokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return f"hf:{folder}", mark


@pytest.mark.parametrize(
    "use",
    [
        lambda model: TokenEncoder(model, 8).encode(["a text"]),
        lambda model: pretrained.features(model, torch.ones(1, 8, dtype=torch.int64)),
        lambda model: pretrained.load_model(model, 2, pretrained=True),
        lambda model: pretrained.load_model(model, 2, pretrained=False),
    ],
    ids=["tokenizer", "features", "weights", "architecture"],
)
def test_code_that_a_model_brings_is_never_run_nor_asked_about(hostile_model, monkeypatch, use):
    model, mark = hostile_model
    monkeypatch.setattr("builtins.input", lambda prompt: "y")
    with pytest.raises(stepe.InputError, match="brings code of its own, which stepe never runs: choose a model"):
        use(model)
    assert not mark.exists()


def test_a_run_folder_of_a_stranger_runs_no_code(hostile_model, language_model, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt: "y")
    frame = pd.DataFrame({"text": ["good film", "bad film"] * 20, "label": ["good", "bad"] * 20})
    options = {"label": "label", "text": "text", "model": language_model, "device": "cpu", "epochs": 2}
    run = stepe.clean(frame, out=tmp_path / "run", **options)
    path = run.path / "preprocessing.json"
    path.write_text(path.read_text().replace(language_model, hostile_model[0]))
    with pytest.raises(stepe.InputError, match="brings code of its own"):
        run.predict(frame[["text"]])
    assert not hostile_model[1].exists()


def test_without_a_gpu_texts_train_on_frozen_features(language_model, tmp_path):
    draw = np.random.default_rng(0)
    labels = np.arange(120) % 2
    texts = [f"the film was {draw.choice(WORDS[3 * label : 3 * label + 3])}" for label in labels]
    frame = pd.DataFrame({"text": texts, "label": np.array(["good", "bad"])[labels]})
    options = {"label": "label", "text": "text", "model": language_model, "device": "cpu", "epochs": 6}
    run = stepe.clean(frame, out=tmp_path / "run", **options)
    assert run.summary.test_accuracy == 1
    assert run.predict(pd.DataFrame({"text": ["a awful film", "fine"]}))["predicted_label"].tolist() == ["bad", "good"]


@pytest.mark.usefixtures("_timm")
def test_without_a_gpu_pictures_train_on_frozen_features(tmp_path):
    for i in range(60):
        colour = (200, 30, 30) if i % 2 else (30, 30, 200)
        folder = tmp_path / "photos" / ("red" if i % 2 else "blue")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + i, 30), colour).save(folder / f"{i}.png")
    run = stepe.clean(tmp_path / "photos", model="timm:any", device="cpu", epochs=4, out=tmp_path / "run")
    assert run.summary.test_accuracy == 1
    encoder = read_encoder(json.loads((run.path / "preprocessing.json").read_text())["encoder"])
    assert isinstance(encoder, FrozenEncoder)
    assert isinstance(encoder.inputs, ImageEncoder)
    assert set(run.predict(tmp_path / "photos")["predicted_label"]) == {"red", "blue"}


@pytest.mark.usefixtures("_timm")
def test_a_network_that_is_not_there_is_an_error_with_its_name(tmp_path):
    with pytest.raises(stepe.InputError, match="model 'timm:nothing' cannot be loaded: Unknown model"):
        pretrained.features("timm:nothing", torch.zeros(1, 3, 4, 4, dtype=torch.uint8))
