"""Pictures: any size and mode become squares of bytes; what cannot be read is skipped, what escapes is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stepe import InputError
from stepe.data.images import class_folders, find_images, image_size_for, read_pictures, typical_side


@pytest.fixture
def save(tmp_path):
    def save(name: str, mode: str = "RGB", size: tuple[int, int] = (20, 10), colour="red", **options) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, colour).save(path, **options)
        return path

    return save


def read(*paths: Path, size: int = 8, **options):
    return read_pictures(paths, [path.name for path in paths], size, **options)


def test_any_format_size_and_mode_becomes_a_square_of_bytes(save):
    paths = [
        save("a.png", size=(300, 7)),
        save("b.jpg", size=(8, 8)),
        save("c.webp", lossless=True),
        save("d.bmp"),
        save("e.png", "RGBA", colour=(255, 0, 0, 255)),
        save("f.png", "P", colour=3),
        save("g.png", "L", colour=128),
        save("h.png", "I;16", colour=40000),
        save("i.png", "1", colour=1),
    ]
    found = read(*paths)
    assert found.x.shape == (9, 3, 8, 8)
    assert found.x.dtype == np.uint8
    assert found.kept == list(range(9))
    for i in (0, 2, 3, 4):
        assert (found.x[i].mean((1, 2)) == [255, 0, 0]).all()
    assert (found.x[6] == 128).all()
    assert (found.x[7] == 255).all()


def test_what_is_transparent_is_white(save):
    assert (read(save("a.png", "RGBA", colour=(0, 0, 0, 0))).x == 255).all()


def test_the_orientation_of_a_photo_is_followed(tmp_path):
    half = np.zeros((16, 16, 3), dtype=np.uint8)
    half[:, :8] = 255  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: left becomes top
    Image.fromarray(half).save(tmp_path / "a.png", exif=exif)
    x = read(tmp_path / "a.png").x[0, 0]
    assert x[0].min() > 200
    assert x[-1].max() < 50


def test_the_same_content_has_the_same_digest(save):
    a, b, c = save("a.png"), save("b.png"), save("c.png", colour="blue")
    first, second, third = read(a, b, c).digests
    assert first == second != third


def test_unreadable_files_are_skipped_and_named(save, tmp_path):
    (tmp_path / "torn.jpg").write_bytes(save("whole.jpg", size=(100, 100)).read_bytes()[:300])
    (tmp_path / "text.png").write_text("no picture")
    said: list[str] = []
    paths = [save("a.png"), tmp_path / "text.png", tmp_path / "torn.jpg", tmp_path / "gone.png", save("b.png")]
    found = read(*paths, say=said.append)
    assert found.kept == [0, 4]
    assert sorted(found.skipped) == [1, 2, 3]
    assert len(found.x) == 2
    assert said[0].startswith("3 of 5 pictures cannot be read: text.png (it is no picture); torn.jpg")
    assert "listed in unreadable.csv" in said[0]


def test_too_many_unreadable_files_are_an_error(save, tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(InputError, match=r"6 of 7 pictures cannot be read: .*; repair or remove them"):
        read(save("a.png"), *[tmp_path / "text.png"] * 6)
    with pytest.raises(InputError, match=r"1 of 1 pictures cannot be read"):
        read(tmp_path / "text.png")


def test_an_image_bomb_is_skipped(save, monkeypatch, recwarn):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    found = read(save("a.png"), save("slightly.png", size=(40, 40)), save("far.png", size=(400, 400)))
    assert found.kept == [0]
    assert "40 x 40 pixels are more than the 1000 that are safe to open" in found.skipped[1]
    assert "decompression bomb" in found.skipped[2]
    assert len(recwarn) == 0


# ---------------------------------------------------------------------------------------------------------------
# Folders


def test_pictures_are_found_in_order_and_hidden_files_are_not(save, tmp_path):
    for name in ("b/2.png", "b/10.PNG", "a/deep/1.jpg", "a/.hidden.png", ".trash/1.png", "loose.png"):
        save(name)
    (tmp_path / "a" / "notes.txt").write_text("")
    found = [path.relative_to(tmp_path).as_posix() for path in find_images(tmp_path)]
    assert found == ["a/deep/1.jpg", "b/10.PNG", "b/2.png", "loose.png"]


@pytest.mark.parametrize("link", ["file", "folder"])
def test_links_that_lead_out_are_refused(save, tmp_path, link):
    outside = save("outside/1.png")
    save("photos/a/1.png")
    target = outside if link == "file" else outside.parent
    (tmp_path / "photos" / "a" / "link.png").symlink_to(target)
    with pytest.raises(InputError, match=r"link.png leads out of .*photos; copy the file"):
        find_images(tmp_path / "photos")


def test_links_that_stay_inside_are_followed(save, tmp_path):
    path = save("photos/a/1.png")
    (tmp_path / "photos" / "a" / "2.png").symlink_to(path)
    assert len(find_images(tmp_path / "photos")) == 2


def test_what_is_no_folder_per_class_is_told_how_to_become_one(save, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="neither pictures nor tables"):
        class_folders(tmp_path / "empty")
    save("loose/1.png")
    with pytest.raises(InputError, match="pictures but no subfolders; put the pictures of each class into a subfolder"):
        class_folders(tmp_path / "loose")
    for name in ("train", "val"):
        save(f"splits/{name}/cat/1.png")
    with pytest.raises(
        InputError, match=r"are splits, not classes; say: stepe clean .*splits/train --test .*splits/val"
    ):
        class_folders(tmp_path / "splits")


def test_the_size_follows_the_pictures_and_the_device(save):
    small, large = [save("s.png", size=(50, 48))], [save("l.png", size=(640, 480))]
    assert typical_side(small) == 48
    assert image_size_for(small, gpu=False) == image_size_for(large, gpu=False) == 32
    assert image_size_for(small, gpu=True) == 48
    assert image_size_for(large, gpu=True) == 224
    assert image_size_for(large * 100_000, gpu=True) == 64
