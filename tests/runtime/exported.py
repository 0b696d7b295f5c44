"""Exported models and pictures of every kind, for the tests of the runtime."""

import numpy as np
from PIL import Image

import cct_keras
from cct_keras.exporting import parity

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite", "openvino": ".xml", "saved_model": ""}
PACKAGES = {
    "onnx": "onnxruntime",
    "litert": "ai_edge_litert",
    "openvino": "openvino",
    "saved_model": "tensorflow",
}


def save_classifier(path):
    """A shipped CIFAR-10 model, as a file that cuts the borders of images off."""
    model = cct_keras.load_classifier("cct_2_3x2_32.cifar10_jpeg")
    model.get_layer("preprocessing").crop = 0.8
    model.save(path)
    return path


def export_once(model, folder, format, monkeypatch, **options):
    """Exports without measuring how fast the file is, which takes seconds."""
    monkeypatch.setattr(parity, "_best", lambda run, images, seconds=0: 1.0)
    path = folder / f"model{SUFFIXES[format]}"
    cct_keras.export(model, path, format=format, **options)
    return path


def photo(height, width, channels=3, seed=0):
    """Smooth noise, whose classes change with where it is cut and how it is turned."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (5, 7, channels), "uint8")
    image = Image.fromarray(coarse[..., 0] if channels == 1 else coarse)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


def write_pictures(folder):
    """One picture of each kind: sizes, orientations, modes, formats, broken ones."""
    folder.mkdir()
    for index, (height, width) in enumerate(
        [(1, 1), (1, 900), (900, 1), (32, 32), (31, 33), (480, 640), (37, 1500)]
    ):
        image = Image.fromarray(photo(height, width, seed=index))
        image.save(folder / f"size_{height}x{width}.png")
    image = Image.fromarray(photo(60, 90))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        image.save(folder / f"turned_{orientation}.jpg", exif=exif)
        image.save(folder / f"turned_{orientation}.webp", exif=exif, lossless=True)
    for mode in ("1", "L", "LA", "P", "RGBA", "I;16"):
        _in_mode(image, mode).save(folder / f"mode_{mode.replace(';', '')}.png")
    for mode in ("PA", "CMYK", "YCbCr", "LA", "I;16"):
        converted = _in_mode(image, mode if mode != "PA" else "P")
        converted.save(folder / f"mode_{mode.replace(';', '')}.tif")
    image.convert("CMYK").save(folder / "cmyk.jpg")
    transparent = _in_mode(image, "RGBA").quantize(16)
    transparent.save(folder / "palette.png", transparency=3)
    frames = [Image.fromarray(photo(40, 40, seed=seed)) for seed in range(3)]
    for suffix in ("gif", "webp", "tif", "png"):
        frames[0].save(
            folder / f"animated.{suffix}", save_all=True, append_images=frames[1:]
        )
    image.save(folder / "picture.bmp")
    whole = (folder / "turned_1.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.gif").write_text("no picture")
    return folder


def _in_mode(image, mode):
    if mode == "RGBA" or mode == "LA":
        image = image.convert(mode)
        alpha = Image.fromarray(photo(image.height, image.width, 1, seed=9))
        image.putalpha(alpha)
        return image
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype("uint16") * 257)
    return image.convert(mode)
