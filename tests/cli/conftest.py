import sys
from collections.abc import Callable

import pytest

import stepe.cli
from command import Ended


@pytest.fixture
def call(monkeypatch, capsys) -> Callable[..., Ended]:
    """A command in this process, which is quicker; a module that needs fewer words makes it its own."""

    def call(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["stepe", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            stepe.cli.main()
        return Ended(ended.value.code, *capsys.readouterr())

    return call
