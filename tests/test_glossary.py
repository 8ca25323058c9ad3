"""The glossary stays short, can be read aloud, and names what the code names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^- \*\*(.+?)\*\*: (.+)$", PAGE, re.MULTILINE))
CODE = "\n".join(path.read_text(encoding="utf-8").lower() for path in sorted((ROOT / "src").rglob("*.py")))


def test_there_are_at_most_thirty_words_in_the_order_of_the_alphabet():
    assert 20 < len(ENTRIES) <= 30
    assert list(ENTRIES) == sorted(ENTRIES)
    assert len(ENTRIES) == PAGE.count("\n- ")


@pytest.mark.parametrize("word", ENTRIES)
def test_a_word_is_told_in_a_sentence_of_its_own(word):
    assert re.fullmatch(rf"(A|An|The) {word} (is|are) .+[^.]\.", ENTRIES[word])


@pytest.mark.parametrize("word", ENTRIES)
def test_the_code_uses_the_word(word):
    assert re.search(r"\b" + re.sub(r"[ -]", r"[ _-]?\\s*", word), CODE)
