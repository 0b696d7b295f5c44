"""Google's `.npz` releases of ViT: the same logits, every array used, nothing run."""

import io
import zipfile

import google_vit
import numpy as np
import pytest
import reference
from small import predict

import cct_keras
from cct_keras.errors import CheckpointError
from cct_keras.notes import collected_notes


def written(path, arrays):
    np.savez(path, **arrays)
    # The content tells what it is, whatever it is called.
    return path


@pytest.mark.backend
@pytest.mark.parametrize("pre_logits", [None, 24])
def test_same_logits(pre_logits, tmp_path):
    arrays = google_vit.random_arrays(pre_logits=pre_logits)
    path = written(tmp_path / "ViT.npz", arrays)
    model = cct_keras.convert(path, classifier_activation=None)
    # 48 is the width of no published model: the kernels tell the heads.
    assert model.get_layer("block_0").num_heads == 4
    assert model.get_layer("block_0").epsilon == 1e-6
    names = [layer.name for layer in model.layers]
    assert ("pre_logits" in names) == (pre_logits is not None)
    x = reference.random_images("google", (2, 16, 16, 3))
    expected = google_vit.logits(arrays, x)
    difference = np.abs(predict(model, x) - expected).max()
    assert difference < 1e-5 * np.abs(expected).max()


def test_the_representation_goes_there_and_back(tmp_path):
    """Into a file of Keras, one of torch's names, a body and another head."""
    arrays = google_vit.random_arrays(pre_logits=24)
    path = written(tmp_path / "ViT.npz", arrays)
    model = cct_keras.convert(path)
    x = reference.random_images("google", (2, 16, 16, 3))
    cct_keras.to_torch(model, tmp_path / "a.safetensors")
    again = cct_keras.convert(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(predict(again, x), predict(model, x))
    model.save_weights(tmp_path / "a.weights.h5")
    sizes = {"num_layers": 2, "num_heads": 4, "mlp_ratio": 2, "embedding_dim": 48}
    sizes |= {"patch_size": 4, "input_shape": (16, 16, 3)}
    filled = cct_keras.ViT(
        7, representation_size=24, weights=tmp_path / "a.weights.h5", **sizes
    )
    np.testing.assert_array_equal(predict(filled, x), predict(model, x))
    body = cct_keras.ViT(include_top=False, weights=path, **sizes)
    tokens = cct_keras.feature_extractor(model, "norm")(x)["norm"]
    np.testing.assert_array_equal(predict(body, x), np.asarray(tokens))
    with pytest.warns(UserWarning, match="7 classes, the model 3"):
        other = cct_keras.convert(path, num_classes=3)
    for a, b in zip(
        other.get_layer("pre_logits").get_weights(),
        model.get_layer("pre_logits").get_weights(),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_the_representation_without_a_head(tmp_path):
    arrays = google_vit.random_arrays(pre_logits=24)
    whole = cct_keras.convert(written(tmp_path / "whole.npz", arrays))
    headless = {k: x for k, x in arrays.items() if not k.startswith("head/")}
    path = written(tmp_path / "headless.npz", headless)
    x = reference.random_images("headless", (2, 16, 16, 3))
    expected = cct_keras.feature_extractor(whole, "norm")(x)["norm"]
    with collected_notes() as notes:
        body = cct_keras.convert(path)
    assert notes == ["not needed in a body with this `pooling`: pre_logits"]
    np.testing.assert_allclose(predict(body, x), np.asarray(expected), atol=1e-6)
    with pytest.warns(UserWarning, match="the head is left as initialized"):
        fresh = cct_keras.convert(path, num_classes=3)
    assert fresh.output_shape == (None, 3)
    np.testing.assert_array_equal(
        fresh.get_layer("pre_logits").kernel.numpy(), arrays["pre_logits/kernel"]
    )


def test_positions_are_resized(tmp_path):
    path = written(tmp_path / "ViT.npz", google_vit.random_arrays())
    model = cct_keras.convert(path, input_shape=(24, 16, 3))
    assert model.get_layer("position_embedding").grid == (6, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a.pop(google_vit.ATTENTION.format(1) + "key/bias"),
            "missing: .*key",
        ),
        (lambda a: a.update(extra=np.ones(3)), "left over: extra"),
        (lambda a: a.update({"head/kernel": np.ones((2, 2, 2))}), "impossible shape"),
        (lambda a: a.update({"conv_root/kernel": np.ones(3)}), "hybrid of ResNet"),
    ],
    ids=["missing", "left over", "shape", "hybrid"],
)
def test_strict(change, message, tmp_path):
    arrays = google_vit.random_arrays()
    change(arrays)
    with pytest.raises(CheckpointError, match=message):
        cct_keras.convert(written(tmp_path / "ViT.npz", arrays))


def test_pickles_in_an_archive_are_refused(tmp_path):
    arrays = google_vit.random_arrays()
    np.savez(tmp_path / "a.npz", **arrays, args=np.array({"a": 1}, dtype=object))
    with pytest.raises(CheckpointError, match="refused: args.npy is a pickle"):
        cct_keras.convert(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}",
        "__import__('os').system('touch OWNED')",
        "(" * 5000,
        "",
    ],
)
def test_broken_headers(header, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = header.encode()
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("embedding/kernel.npy", data)
    (tmp_path / "a.npz").write_bytes(file.getvalue())
    with pytest.raises(CheckpointError):
        cct_keras.convert(tmp_path / "a.npz")
    assert not (tmp_path / "OWNED").exists()


def test_the_command_converts_and_checks_itself(tmp_path, capsys):
    from cct_keras.cli.main import main

    path = written(tmp_path / "ViT.npz", google_vit.random_arrays(pre_logits=24))
    assert main(["convert", str(path), str(tmp_path / "m.keras")]) == 0
    assert "self-check" in capsys.readouterr().out
