"""Encoders: what raw inputs become, the same again after a round trip through JSON."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfTransformer

from stepe import InputError, RunError
from stepe.data.columns import column_type
from stepe.data.encoders import (
    Encoder,
    FeatureEncoder,
    ImageEncoder,
    TableEncoder,
    TextEncoder,
    read_encoder,
    write_encoder,
)
from stepe.data.encoders.text import TEXT_LIMIT

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "", "Ein süßes Kätzchen", "the cat and the dog"] * 3


def again(encoder: Encoder) -> Encoder:
    return read_encoder(json.loads(json.dumps(write_encoder(encoder))))


# ---------------------------------------------------------------------------------------------------------------
# Text


def grams(encoder: TextEncoder, text: str) -> set[int]:
    return set(encoder.encode([text])[0].tolist()) - {0}


def test_texts_become_numbers_of_their_ngrams_padded_with_zeros():
    encoder = TextEncoder.fit(TEXTS)
    x = encoder.encode(TEXTS)
    assert x.shape == (15, encoder.length)
    assert x.dtype == np.int32
    assert int(x.max()) < encoder.vocabulary
    assert (x[2] == 0).all()
    lengths = (x > 0).sum(1)
    assert all((row[:length] > 0).all() for row, length in zip(x, lengths.tolist(), strict=True))


def test_a_text_is_encoded_alike_in_any_company_and_after_json(monkeypatch):
    encoder = TextEncoder.fit(TEXTS)
    whole = encoder.encode(TEXTS)
    assert np.array_equal(np.concatenate([encoder.encode([text]) for text in TEXTS]), whole)
    monkeypatch.setattr("stepe.data.encoders.text.CHUNK", 10)
    assert np.array_equal(encoder.encode(TEXTS), whole)
    assert again(encoder) == encoder


def test_hashes_do_not_depend_on_the_process():
    assert TextEncoder.fit(["ab ab", "ab"]).buckets == TextEncoder.fit(["ab", "ab ab"]).buckets
    assert TextEncoder.fit(["one two", "one two"]).buckets[:3] == [80720, 174569, 214753]


def test_ngrams_that_texts_share_have_the_same_numbers():
    encoder = TextEncoder.fit(TEXTS)
    assert grams(encoder, "cat") & grams(encoder, "the CAT sat")
    assert grams(encoder, "the cat") == grams(encoder, "  The\n cat ")
    assert not grams(encoder, "zzz qqq")
    assert grams(encoder, "süßes")


def test_ngrams_of_one_text_alone_are_left_out_where_others_repeat():
    encoder = TextEncoder.fit(["red fox", "red hen", "blue owl"])
    assert grams(encoder, "red")
    assert not grams(encoder, "owl")


def test_a_long_text_is_cut_and_keeps_its_words_first():
    words = [f"word{i}" for i in range(2000)]
    encoder = TextEncoder.fit([" ".join(words)] * 2)
    assert encoder.length == 512
    assert (encoder.encode([" ".join(words)]) > 0).all()
    beyond = "x " * TEXT_LIMIT + "word7"
    assert not grams(encoder, beyond) & grams(encoder, "word7")


@pytest.mark.parametrize("texts", [["", ""], ["!", "?"], ["\ud800 odd", "\ud800 odd"], ["a", "b"]])
def test_odd_texts_are_encoded_like_any(texts):
    encoder = TextEncoder.fit(texts)
    assert encoder.encode(texts).shape == (2, encoder.length)


# ---------------------------------------------------------------------------------------------------------------
# Tables


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "weight": ["1.5", "2", "", "1e9", "3"] * 4,
            "colour": ["red", "blue", "NA", "red", "green"] * 4,
            "born": ["2020-01-31", "2021-02-28", "2019-12-24", "", "2020-06-01"] * 4,
            "same": ["7"] * 20,
        }
    )


def test_columns_are_known_by_what_they_hold(frame):
    assert [column_type(frame[name]) for name in frame] == ["number", "category", "date", "number"]
    assert column_type(pd.Series(["1", "2", "x"])) == "category"
    assert column_type(pd.Series(["31/12/2020", "01/02/2021 10:30"])) == "date"
    assert column_type(pd.Series(["12.5", "13-2"])) == "category"
    assert column_type(pd.Series([True, False])) == "number"
    assert column_type(pd.Series(pd.to_datetime(["2020-01-01"]))) == "date"
    assert column_type(pd.Series([None, ""], dtype=object)) == "category"


def test_numbers_come_first_and_codes_last(frame):
    encoder = TableEncoder.fit(frame)
    x = encoder.encode(frame)
    assert [column.name for column in encoder.columns] == ["weight", "colour", "born"]
    assert encoder.numbers == 2 + 5  # a number and four parts of a date, each with its gaps
    assert encoder.codes == [4]
    assert x.shape == (20, 8)
    assert x[:, -1].tolist()[:5] == [1.0, 2.0, 0.0, 1.0, 3.0]
    assert x[:5, 1].tolist() == [0, 0, 1, 0, 0]
    assert x[2, 0] == 0
    assert np.abs(x[:, :7]).max() <= 1
    assert again(encoder) == encoder


def test_a_table_is_spread_into_its_own_numbers_and_a_column_for_each_category():
    table = pd.DataFrame(
        {
            "price": ["3", "", "12.5", "7", "1000"],
            "colour": ["red", "blue", "red", "", "blue"],
            "count": [1, 2, 2, 4, 5],
        }
    )
    encoder = TableEncoder.fit(table)
    spread = encoder.spread(encoder.encode(table))
    assert spread[:, 0] == pytest.approx([3, 9.75, 12.5, 7, 1000])  # the median where none is given
    assert spread[:, 1].tolist() == [0, 1, 0, 0, 0]
    by_name = dict(zip(encoder.columns[1].categories, spread.T[2:4].tolist(), strict=True))
    assert by_name == {"red": [1, 0, 1, 0, 0], "blue": [0, 1, 0, 0, 1]}
    assert spread[:, 4] == pytest.approx([1, 2, 2, 4, 5])
    later = pd.DataFrame({"price": ["5000"], "colour": ["green"], "count": [3]})
    assert encoder.spread(encoder.encode(later))[0] == pytest.approx([1000, 0, 0, 0, 3])


def test_texts_are_weighted_as_scikit_learn_weights_them():
    texts = ["a red apple", "a green apple", "a red car in the rain", ""]
    encoder = TextEncoder.fit(texts)
    encoded = encoder.encode(texts)
    rows, idf = encoder.weighted(encoded)
    counts = np.zeros((4, len(encoder.buckets)))
    for row, numbers in enumerate(encoded):
        counts[row, numbers[numbers > 0] - 1] = 1
    assert rows.toarray() == pytest.approx(TfidfTransformer().fit_transform(counts).toarray())
    again, _ = encoder.weighted(encoded[:1], idf)
    assert again.toarray() == pytest.approx(rows.toarray()[:1])
    assert not rows.toarray()[3].any()


def test_what_training_never_saw_is_encoded_all_the_same(frame):
    encoder = TableEncoder.fit(frame)
    odd = pd.DataFrame({"weight": ["-1e300", "many"], "colour": ["pink", ""], "born": ["never", "2099-01-01"]})
    x = encoder.encode(odd)
    assert np.isfinite(x).all()
    assert x[:, -1].tolist() == [0, 0]
    assert x[0, 0] == -1
    assert x[1, :2].tolist() == [0, 1]
    with pytest.raises(InputError, match="has no column 'colour', which the model was trained on"):
        encoder.encode(odd[["weight", "born"]])


def test_typed_cells_are_as_good_as_written_ones(frame):
    typed = pd.DataFrame(
        {
            "weight": [1.5, 2, np.nan, 1e9, 3] * 4,
            "colour": pd.Series(["red", "blue", None, "red", "green"] * 4, dtype="category"),
            "born": pd.to_datetime(["2020-01-31", "2021-02-28", "2019-12-24", None, "2020-06-01"] * 4),
            "same": [7] * 20,
        }
    )
    assert np.array_equal(TableEncoder.fit(typed).encode(typed), TableEncoder.fit(frame).encode(frame))


# ---------------------------------------------------------------------------------------------------------------
# Features and images


def test_features_keep_their_centres_and_scales():
    features = np.random.default_rng(0).normal(5, 3, (20, 2))
    encoder = FeatureEncoder.fit(features)
    assert np.array_equal(again(encoder).encode(features), encoder.encode(features))
    with pytest.raises(InputError, match=r"shape \(20, 1\); the model was trained on 2 columns"):
        encoder.encode(features[:, :1])


def test_pictures_keep_their_size_means_and_deviations():
    pictures = np.random.default_rng(0).integers(0, 256, (2000, 3, 8, 8), dtype=np.uint8)
    encoder = ImageEncoder.fit(pictures)
    scaled = pictures / 255
    assert encoder.size == 8
    np.testing.assert_allclose(encoder.mean, scaled.mean((0, 2, 3)))
    np.testing.assert_allclose(encoder.std, scaled.std((0, 2, 3)))
    assert min(ImageEncoder.fit(np.zeros((2, 3, 4, 4), dtype=np.uint8)).std) > 0
    assert again(encoder) == encoder


def test_damaged_preprocessing_says_so():
    for saved in ({}, {"name": "TextEncoder"}, {"name": "Odd"}, {"name": "TableEncoder", "columns": [{}]}):
        with pytest.raises(RunError, match="the preprocessing of the run cannot be read"):
            read_encoder(saved)
