"""What stands in for a kill in the tests of resuming."""

from stepe.training.building import Silent, Training
from stepe.training.session import Row


class StopHereError(Exception):
    """Stands in for a kill."""


class Stopper(Silent):
    """Ends a run after some epochs, once they are written down; ``None``: never."""

    def __init__(self, epoch: int | None):
        self.epoch = epoch

    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch == self.epoch:
            raise StopHereError
