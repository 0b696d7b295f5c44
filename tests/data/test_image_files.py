"""Which image files are read, and what becomes of their pixels."""

import functools
import warnings

import numpy as np
import pytest
from PIL import Image

from cct_keras.data.image_files import read_headers
from cct_keras.data.image_files import read_images
from cct_keras.errors import DataError
from cct_keras.runtime.image_files import read_image


def save(path, size=(8, 6), mode="RGB", color=None, **kwargs):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color or 0).save(path, **kwargs)
    return path


def luminance(color):
    return round(np.dot(color, [0.299, 0.587, 0.114]))


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_formats(tmp_path, suffix, mode):
    color = 200 if mode == "L" else (200, 100, 50)
    path = save(tmp_path / f"x.{suffix}", mode=mode, color=color)
    pixels = read_image(path)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (6, 8, 3)
    assert np.abs(pixels[0, 0] - np.int64(color)).max() <= 6
    gray = read_image(path, 1)
    assert gray.shape == (6, 8, 1)
    assert abs(int(gray[0, 0, 0]) - (200 if mode == "L" else 124)) <= 6
    # WebP has no gray mode.
    expected = 1 if mode == "L" and suffix != "webp" else 3
    assert read_image(path, None).shape[2] == expected
    sizes, channels, broken = read_headers([path])
    assert (sizes.tolist(), channels.tolist(), broken) == ([[6, 8]], [expected], {})


@pytest.mark.parametrize(
    ("mode", "color", "expected", "channels"),
    [
        ("RGBA", (10, 20, 30, 0), (255, 255, 255), 3),
        ("RGBA", (10, 20, 30, 255), (10, 20, 30), 3),
        ("RGBA", (0, 0, 0, 51), (204, 204, 204), 3),
        ("LA", (10, 0), (255, 255, 255), 1),
        ("LA", (10, 255), (10, 10, 10), 1),
        ("1", 1, (255, 255, 255), 1),
        ("I;16", 65535, (255, 255, 255), 1),
        ("I;16", 257 * 100, (100, 100, 100), 1),
        ("I;16", 300, (1, 1, 1), 1),
    ],
)
def test_modes(tmp_path, mode, color, expected, channels):
    path = save(tmp_path / "x.png", mode=mode, color=color)
    assert tuple(read_image(path)[3, 3].tolist()) == expected
    assert read_image(path, None).shape == (6, 8, channels)
    assert read_image(path, 1)[3, 3].tolist() == [luminance(expected)]
    assert read_headers([path])[1].tolist() == [channels]


def test_palettes(tmp_path):
    image = Image.new("P", (4, 2), 1)
    image.putpalette([0, 0, 0, 10, 20, 30, 40, 50, 60])
    image.putpixel((0, 0), 2)
    image.save(tmp_path / "x.png")
    pixels = read_image(tmp_path / "x.png")
    assert pixels[0, :2].tolist() == [[40, 50, 60], [10, 20, 30]]
    assert read_image(tmp_path / "x.png", None).shape[2] == 3
    image.putpalette([0, 0, 0, 10, 10, 10, 60, 60, 60])
    image.save(tmp_path / "gray.png")
    assert read_image(tmp_path / "gray.png", None)[0, :2].tolist() == [[60], [10]]
    assert read_headers([tmp_path / "gray.png"])[1].tolist() == [1]
    image.putpalette([0, 0, 0, 10, 20, 30, 40, 50, 60])
    for transparency in (1, bytes([255, 0, 255])):
        image.save(tmp_path / "x.png", transparency=transparency)
        pixels = read_image(tmp_path / "x.png", None)
        assert pixels[0, :2].tolist() == [[40, 50, 60], [255, 255, 255]]


def test_transparent_color(tmp_path):
    path = save(tmp_path / "x.png", color=(1, 2, 3), transparency=(1, 2, 3))
    assert (read_image(path) == 255).all()
    path = save(tmp_path / "y.png", mode="L", color=7, transparency=7)
    assert (read_image(path, None) == 255).all()


def test_cmyk(tmp_path):
    for name in ("x.jpg", "x.tif"):
        path = save(tmp_path / name, mode="CMYK", color=(0, 255, 255, 0))
        pixels = read_image(path).astype(int)
        assert np.abs(pixels - [255, 0, 0]).max() <= 4


def test_32_bit_pixels_are_refused(tmp_path):
    for mode, color in (("F", 0.5), ("I", 1 << 20)):
        path = save(tmp_path / f"{mode}.tif", mode=mode, color=color)
        with pytest.raises(DataError, match=r"\.tif: gray pixels of 32 bits; 8 or 16"):
            read_image(path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_orientation(tmp_path, suffix):
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :8] = 255
    # How a camera stores the picture, by the value of its tag.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
        9: upright,
    }
    for value, pixels in stored.items():
        exif = Image.Exif()
        exif[0x0112] = value
        path = tmp_path / f"{value}.{suffix}"
        Image.fromarray(np.ascontiguousarray(pixels)).save(path, exif=exif)
        result = read_image(path)
        assert result.shape == upright.shape
        assert np.abs(result.astype(int) - upright).mean() < 8
        assert read_image(path, shrink=8).shape == (8, 16, 3)
        assert read_headers([path])[0].tolist() == [[16, 32]]


def test_corrupt_exif_is_no_reason_to_refuse(tmp_path):
    for number, data in enumerate(
        (
            b"Exif\0\0garbage",
            b"Exif\0\0MM\0*\0\0\0\x08\0\x05\x01\x12\0\x05\xff\xff\xff\xff\0\0\0\1",
            b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\xff\0\0\0\x08\0\0\0",
        )
    ):
        path = save(tmp_path / f"{number}.jpg", exif=data)
        assert read_image(path).shape == (6, 8, 3)
        assert read_headers([path])[2] == {}


def test_warnings_of_others_are_not_silenced(tmp_path):
    read_image(save(tmp_path / "x.png"))
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", stacklevel=1)
    before = list(warnings.filters)
    read_image(tmp_path / "x.png")
    assert warnings.filters == before


def test_shrink(tmp_path):
    gradient = np.linspace(0, 255, 400)[None, :, None] * np.ones((300, 1, 3))
    for name in ("x.jpg", "x.png"):
        path = tmp_path / name
        Image.fromarray(gradient.astype(np.uint8)).save(path)
        assert read_image(path, shrink=300).shape == (300, 400, 3)
        assert read_image(path, shrink=301).shape == (300, 400, 3)
        small = read_image(path, shrink=60)
        assert small.shape == (60, 80, 3)
        expected = gradient.reshape(60, 5, 80, 5, 3).mean(axis=(1, 3))
        assert np.abs(small - expected).max() < 4
        assert read_image(path, 1, shrink=1).shape == (1, 1, 1)
    thin = save(tmp_path / "thin.png", size=(2, 999))
    assert read_image(thin, shrink=1).shape[1] == 1
    with pytest.raises(
        ValueError, match="`shrink` must be positive. Received: shrink=0"
    ):
        read_image(thin, shrink=0)
    with pytest.raises(
        ValueError, match="`channels` must be 1, 3 or None. .*channels=4"
    ):
        read_image(thin, 4)


@pytest.fixture
def broken_files(tmp_path, monkeypatch):
    noise = Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    )
    files = {}
    for suffix in ("jpg", "png", "webp", "bmp", "gif", "tif"):
        path = tmp_path / f"half.{suffix}"
        noise.save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        files[path] = "."
    (tmp_path / "empty.jpg").write_bytes(b"")
    files[tmp_path / "empty.jpg"] = "^empty file$"
    (tmp_path / "text.jpg").write_text("hello")
    files[tmp_path / "text.jpg"] = "^not one of JPEG, PNG, WEBP, BMP, GIF, TIFF$"
    noise.save(tmp_path / "script.eps")
    (tmp_path / "script.eps").rename(tmp_path / "script.jpg")
    files[tmp_path / "script.jpg"] = "^not one of JPEG"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)
    files[save(tmp_path / "bomb.png", size=(500, 500))] = "decompression bomb"
    files[tmp_path / "missing.jpg"] = "^no such file$"
    return files


def test_broken_files_are_named(broken_files, tmp_path):
    good = [save(tmp_path / "good.png"), save(tmp_path / "large.png", (300, 400))]
    paths = [good[0], *broken_files, good[1]]
    read = functools.partial(read_image, channels=1, shrink=6)
    images, broken = read_images(paths, read)
    assert images[0].shape == (6, 8, 1)
    assert images[-1].shape == (8, 6, 1)
    assert images[1:-1] == [None] * len(broken_files)
    assert list(broken) == list(broken_files)
    for path, reason in broken.items():
        with pytest.raises(DataError, match=broken_files[path]):
            raise DataError(reason)
        with pytest.raises(DataError) as info:
            read_image(path)
        assert str(info.value).startswith(f"{path}: ")
        assert "\n" not in str(info.value)
    sizes, channels, broken = read_headers(paths)
    assert sizes[[0, -1]].tolist() == [[6, 8], [400, 300]]
    assert channels[[0, -1]].tolist() == [3, 3]
    for name in ("empty.jpg", "text.jpg", "script.jpg", "bomb.png", "missing.jpg"):
        assert tmp_path / name in broken
        assert sizes[paths.index(tmp_path / name)].tolist() == [0, 0]


def test_many_files_keep_their_order(tmp_path):
    paths = [save(tmp_path / f"{i}.png", size=(i + 1, 3)) for i in range(40)]
    images, broken = read_images(paths, read_image)
    assert [image.shape[1] for image in images] == list(range(1, 41))
    assert broken == {}
    sizes, _, _ = read_headers(iter(paths))
    assert sizes[:, 1].tolist() == list(range(1, 41))
    sizes, channels, broken = read_headers([])
    assert (sizes.shape, channels.shape, broken) == ((0, 2), (0,), {})


def test_errors_of_the_program_are_not_hidden(tmp_path):
    path = save(tmp_path / "x.png")
    with pytest.raises(ValueError, match="`channels` must be"):
        read_images([path], functools.partial(read_image, channels=2))
