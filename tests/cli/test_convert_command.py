"""`cct-keras convert`."""

import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import reference
from small import images
from small import predict
from test_conversion import checkpoint

import cct_keras
from cct_keras.cli import main as cli
from cct_keras.converter import conversion
from cct_keras.converter.safetensors_file import write_safetensors

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "checkpoints"


@pytest.fixture
def official(tmp_path):
    path = tmp_path / "official.safetensors"
    with path.open("wb") as file:
        write_safetensors(file, checkpoint())
    return path


def test_convert_to_keras_and_back(official, tmp_path, capsys):
    out = tmp_path / "out.keras"
    assert cli.main(["convert", str(official), str(out), "--verbose"]) == 0
    output = capsys.readouterr().out
    for fact in ("cct_2_3x2_32", "283,723", "learnable 8 x 8", "self-check", "qkv"):
        assert fact in output
    assert (
        "heads       2, as published at this width; --num-heads N says others" in output
    )
    model = keras.models.load_model(out)
    x = images(2, 32, 32, 3)
    expected = predict(cct_keras.convert(official), x)
    np.testing.assert_array_equal(predict(model, x), expected)

    back = tmp_path / "back.safetensors"
    assert cli.main(["convert", str(out), str(back), "--to", "torch"]) == 0
    np.testing.assert_array_equal(predict(cct_keras.convert(back), x), expected)
    assert {p.name for p in tmp_path.iterdir()} == {
        "official.safetensors",
        "out.keras",
        "back.safetensors",
    }


def test_the_activation_is_told(official, tmp_path, capsys):
    """What a PyTorch file does not record; the check in NumPy knows it, too."""
    out, back = tmp_path / "relu.keras", tmp_path / "relu.safetensors"
    command = ["convert", str(official), str(out), "--activation", "relu"]
    assert cli.main(command) == 0
    assert "activation  relu" in capsys.readouterr().out
    model = keras.models.load_model(out)
    assert model.get_layer("block_0").activation == "relu"
    assert cli.main(["convert", str(out), str(back), "--to", "torch"]) == 0
    assert cct_keras.convert(back).get_layer("block_0").activation == "relu"
    # A file that records it is not overruled.
    for source in (out, back):
        target = tmp_path / "gelu.weights.h5"
        command = ["convert", str(source), str(target), "--activation", "gelu"]
        assert cli.main(command) == 2
        assert "--activation relu" in capsys.readouterr().err
        assert not target.exists()


def test_a_file_cannot_control_the_terminal(tmp_path, capsys):
    path = tmp_path / "a.pth"
    path.write_bytes(b"\x80\x02cos\n\x1b[31mred\n.")
    assert cli.main(["convert", str(path), str(tmp_path / "a.keras")]) == 2
    error = capsys.readouterr().err
    assert "refused" in error
    assert "\x1b" not in error


def test_a_keras_file_has_its_grid_and_heads(tmp_path, capsys):
    model = cct_keras.CCT(
        4,
        (32, 48, 3),
        num_layers=1,
        num_heads=3,
        mlp_ratio=1.5,
        embedding_dim=48,
        kernel_size=3,
    )
    model.save(tmp_path / "a.keras")
    out = tmp_path / "a.safetensors"
    source = str(tmp_path / "a.keras")
    assert cli.main(["convert", source, str(out), "--to", "torch"]) == 0
    output = capsys.readouterr().out
    assert "positions   learnable 8 x 12" in output
    assert "heads       3\n" in output
    again = cct_keras.convert(out)
    assert again.input_shape == (None, 32, 48, 3)
    assert again.get_layer("block_0").num_heads == 3


def test_preprocessing_that_is_lost_is_named(tmp_path, capsys):
    scaled = keras.layers.Rescaling(1 / 255, name="scale")(keras.Input((32, 32, 3)))
    model = cct_keras.create_model("cct_2_3x2_32", input_tensor=scaled)
    model.save(tmp_path / "a.keras")
    source, out = str(tmp_path / "a.keras"), str(tmp_path / "a.safetensors")
    assert cli.main(["convert", source, out, "--to", "torch"]) == 0
    assert "note: scale before the tokenizer" in capsys.readouterr().out


def test_the_weights_alone_of_a_keras_file(tmp_path, capsys):
    model = cct_keras.create_model("cct_2_3x2_32", input_shape=(16, 16, 1))
    model.save(tmp_path / "a.keras")
    source, out = str(tmp_path / "a.keras"), tmp_path / "a.weights.h5"
    assert cli.main(["convert", source, str(out)]) == 0
    assert "self-check" in capsys.readouterr().out
    x = images(2, 16, 16, 1)
    again = cct_keras.create_model("cct_2_3x2_32", input_shape=(16, 16, 1), weights=out)
    np.testing.assert_array_equal(predict(again, x), predict(model, x))
    assert cli.main(["convert", source, str(tmp_path / "b.keras")]) == 2
    assert "is a Keras file already" in capsys.readouterr().err


def test_convert_with_changes(official, tmp_path, capsys):
    out = tmp_path / "out.weights.h5"
    changes = ["--num-classes", "4", "--input-shape", "48", "40", "1"]
    assert cli.main(["convert", str(official), str(out), *changes]) == 0
    output = capsys.readouterr().out
    assert "note: the first convolution" in output
    assert "the head is left as initialized" in output
    cct_keras.create_model(
        "cct_2_3x2_32", num_classes=4, input_shape=(48, 40, 1)
    ).load_weights(out)


def test_a_failed_self_check_writes_nothing(official, tmp_path, capsys, monkeypatch):
    """A converter that confuses two weights is found out."""
    fill = conversion.fill

    def confused(model, arrays, **options):
        fill(model, arrays, **options)
        block = model.get_layer("block_0")
        norm1, norm2 = block.norm1.get_weights(), block.norm2.get_weights()
        block.norm1.set_weights(norm2)
        block.norm2.set_weights(norm1)

    monkeypatch.setattr(conversion, "fill", confused)
    out = tmp_path / "out.keras"
    assert cli.main(["convert", str(official), str(out)]) == 2
    assert "self-check failed" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["official.safetensors"]


def test_errors_are_one_line_and_leave_nothing(official, tmp_path, capsys):
    existing = tmp_path / "existing.keras"
    existing.write_bytes(b"mine")
    broken = tmp_path / "broken.pth"
    broken.write_bytes((GOLDEN / "zip.pth").read_bytes()[:1500])
    before = sorted(tmp_path.iterdir())
    for arguments, message in (
        ([official, existing], "--force"),
        ([official, tmp_path / "out.pth"], "must end in"),
        ([official, tmp_path / "no" / "out.keras"], "folder"),
        ([broken, tmp_path / "out.keras"], "broken.pth"),
        ([GOLDEN / "zip.pth", tmp_path / "out.keras"], "--num-heads"),
        ([tmp_path, tmp_path / "out.keras"], "directory"),
        ([tmp_path / "none.pth", tmp_path / "out.keras"], "No such file"),
        (["http://127.0.0.1:9/x.pth", tmp_path / "out.keras"], "cannot download"),
        ([existing, tmp_path / "a.pth", "--to", "torch"], "cannot be loaded"),
    ):
        assert cli.main(["convert", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert message in error
        assert sorted(tmp_path.iterdir()) == before
    assert existing.read_bytes() == b"mine"
    assert cli.main(["convert", str(official), str(existing), "--force"]) == 0
    assert keras.models.load_model(existing).name == "cct_2_3x2_32"


@pytest.mark.integration
def test_in_a_shell(tmp_path):
    """A real file of torch, heads given; nothing but the answer on the screen."""
    command = pathlib.Path(sys.executable).with_name("cct-keras")
    out = tmp_path / "out.keras"
    result = subprocess.run(
        [command, "convert", GOLDEN / "legacy.pth", out, "--num-heads", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    assert "no named variant" in result.stdout
    state = reference.random_state(**reference.TINY)
    kernel = keras.models.load_model(out).get_layer("head").kernel.numpy()
    np.testing.assert_array_equal(kernel, state["classifier.fc.weight"].T)
