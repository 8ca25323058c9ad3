import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "sklearn_pipeline.py"


def test_texts_and_trees_are_learned_and_their_wrong_labels_found(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    texts, plain, trees = (float(share) for share in re.findall(r"accuracy ([\d.]+)%", printed))
    assert texts > 95
    assert trees >= plain
    assert all(float(right) > 80 for right in re.findall(r"and ([\d.]+)% of them are", printed))
    for wrong, estimated in re.findall(r"([\d.]+)% of the labels are wrong, estimated ([\d.]+)%", printed):
        assert abs(float(wrong) - float(estimated)) < 5
