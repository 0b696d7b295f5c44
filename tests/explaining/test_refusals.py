"""What cannot be explained is refused in one line that says what to do."""

import pathlib

import keras
import numpy as np
import pytest
from small import images
from small import small_model

import cct_keras
from cct_keras.cli.main import main
from cct_keras.errors import DataError
from cct_keras.errors import ModelError

DIGITS = "cct_2_3x2_32.digits"
SEVEN = str(pathlib.Path(__file__).parent.parent / "samples/mnist/7/0000.png")
NAMES = ("ape", "bee", "cat", "dog", "elk")


@pytest.fixture(scope="module")
def model():
    return small_model("CCT")


def refusal(error, *arguments, **options):
    with pytest.raises(error) as caught:
        cct_keras.explain(*arguments, verbose=False, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


X = images(2, 16, 16, 3)


@pytest.fixture(scope="module", autouse=True)
def coarse_figures():
    """Fewer pixels take less time."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr("cct_keras.drawing.html.DOTS_PER_INCH", 40)
        yield


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "rolout"}, "unknown `method` 'rolout'. Did you mean: rollout?"),
        ({"method": "Grad-CAM"}, "unknown `method` 'Grad-CAM'. Did you mean: gradcam"),
        ({"method": "shap"}, "Known: seqpool, attention, rollout, gradient"),
        ({"target": 5}, "`target` must be a class from 0 to 4, or its name. "),
        ({"target": -1}, "Received: target=-1"),
        ({"target": "9"}, "Received: target=9"),
        ({"target": "bea"}, "`target`: there is no class 'bea'. Did you mean: bee?"),
        ({"target": [0, 1, 2]}, "one for each of the 2 images. Received: 3"),
        ({"target": [0, "bea"]}, "there is no class 'bea'"),
        ({"target": 1.5}, "or its name. Received: target=1.5"),
        ({"target": True}, "Received: target=True"),
        ({"target": [0, None]}, "Received: target=None"),
        ({"target": "--3"}, "there is no class '--3'"),
        (
            {"method": ["rollout"]},
            "unknown `method` ['rollout']. Did you mean: rollout",
        ),
        ({"method": "attention", "block": 0.5}, "Received: block=0.5"),
        ({"batch_size": 2.5}, "`batch_size` must be 1 or more. Received: 2.5"),
        ({"method": "attention", "block": 2}, "`block` must be from 0 to 1"),
        ({"method": "attention", "block": -3}, "Received: block=-3"),
        ({"method": "attention", "head": 2}, "`head` must be from 0 to 1"),
        ({"method": "rollout", "block": 0}, "belong to method='attention'"),
        ({"head": 0}, "belong to method='attention'"),
        ({"batch_size": 0}, "`batch_size` must be 1 or more. Received: 0"),
        ({"mean": (0.5, 0.5, 0.5)}, "both `mean` and `std`"),
    ],
)
def test_arguments(model, options, message):
    assert message in refusal(ModelError, model, X, class_names=NAMES, **options)


def test_class_names_for_other_classes(model):
    message = refusal(ModelError, model, X, class_names=NAMES[:3])
    assert "5 classes" in message
    assert "Received: 3 names" in message


def test_no_images(model):
    assert "no image" in refusal(DataError, model, [])
    assert "no image" in refusal(DataError, model, np.zeros((0, 16, 16, 3)))
    assert "Received: NoneType" in refusal(DataError, model, None)


def test_a_model_without_attention():
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)], name="plain")
    assert "plain" in refusal(ModelError, plain, X)


def test_a_model_inside_of_another(model):
    outer = keras.Sequential([keras.Input((16, 16, 3)), model], name="outer")
    message = refusal(ModelError, outer, X)
    assert f"its layer {model.name!r} is: give that one" in message
    body = small_model("CCT", include_top=False, pooling="seq")
    layers = [keras.Input((16, 16, 3)), body, keras.layers.Dense(3)]
    message = refusal(ModelError, keras.Sequential(layers, name="outer"), X)
    assert f"its layer {body.name!r} is, without a head: put your layers on" in message


def test_what_is_no_model():
    assert "Received: int" in refusal(ModelError, 3, X)
    assert "no such model: none.keras" in refusal(ModelError, "none.keras", X)


def test_a_model_without_head():
    headless = small_model("CCT", include_top=False)
    assert "no head" in refusal(ModelError, headless, X)


def test_seqpool_of_a_model_without():
    message = refusal(ModelError, small_model("ViT"), X, "seqpool")
    assert "this model has none; use one of: attention, rollout" in message


def test_strength(model, tmp_path):
    found = cct_keras.explain(model, X, "attention")
    for strength in (-0.1, 1.5, float("nan")):
        for draw in (
            found.plot,
            found.plot_heads,
            lambda strength: found.save(tmp_path / "out", strength=strength),
        ):
            with pytest.raises(ModelError, match="`strength` must be from 0 to 1"):
                draw(strength=strength)
    assert not (tmp_path / "out").exists()


def test_heads_of_another_method(model):
    found = cct_keras.explain(model, X, "rollout")
    with pytest.raises(ModelError, match="need method='attention'"):
        found.plot_heads()


def test_pictures_that_are_not_there(model):
    found = cct_keras.explain(model, X, "attention")
    for index in (2, -3, "0"):
        with pytest.raises(ModelError, match="`index` must be one of the 2 pictures"):
            found.plot_heads(index)
    with pytest.raises(ModelError, match="`most` must be 1 or more"):
        found.plot(most=0)


# === The command line ===


def run(capsys, *words):
    code = main(["explain", *words])
    return code, capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([DIGITS], "give images to explain, or --weights-only, or --data"),
        ([DIGITS, SEVEN, "--judge"], "--judge needs images"),
        (["model.onnx", SEVEN], "is an exported file"),
        (["model.tflite", SEVEN], "is an exported file"),
        (["none.keras", SEVEN], "none.keras"),
        (["cct_2_3x2_33.digits", SEVEN], "Did you mean: cct_2_3x2_32"),
        ([DIGITS, SEVEN, "--target", "10"], "--target must be a class from 0 to 9"),
        (
            [DIGITS, SEVEN, "--method", "attention", "--block", "7"],
            "--block must be from 0 to 1",
        ),
        ([DIGITS, SEVEN, "--strength", "2"], "--strength must be from 0 to 1"),
        *(
            pytest.param([DIGITS, *words], message, marks=pytest.mark.integration)
            for words, message in (
                ([SEVEN, "--method", "rolout"], "Did you mean: rollout"),
                ([SEVEN, "--target", "seven"], "no class 'seven'"),
                ([SEVEN, "--block", "0"], "--block and --head belong to"),
                (["none.png"], "none.png"),
            )
        ),
    ],
)
def test_the_command_line(words, message, capsys, tmp_path):
    """One line on stderr, nothing on stdout, nothing written, and exit code 2."""
    out = tmp_path / "out"
    code, printed = run(capsys, *words, "--out", str(out))
    assert code == 2
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith("cct-keras: error: ")
    assert "`" not in printed.err
    assert printed.out == ""
    assert not out.exists()


@pytest.mark.parametrize("command", ["explain", "predict"])
def test_a_file_in_the_place_of_the_folder(command, capsys, tmp_path):
    file = tmp_path / "out"
    file.write_bytes(b"mine")
    option = {"explain": "--out", "predict": "--explain"}[command]
    assert main([command, DIGITS, SEVEN, option, str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("out is a file, and a folder is to be written\n")
    assert len(printed.err.splitlines()) == 1
    assert file.read_bytes() == b"mine"


def test_an_exported_file_that_is_there(capsys, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"graph")
    code, printed = run(capsys, str(file), SEVEN)
    assert code == 2
    assert "is an exported file, which shows no attention" in printed.err


def test_what_can_be_explained_is_before_the_error_comes(capsys, tmp_path):
    out = tmp_path / "out"
    code, printed = run(capsys, DIGITS, SEVEN, "none.png", "--out", str(out))
    assert code == 2
    assert "none.png" in printed.err
    assert len(printed.err.splitlines()) == 1
    assert "1 map by gradient_rollout" in printed.out
    assert (out / "index.html").is_file()


def test_the_command_line_writes_maps(capsys, tmp_path):
    out = tmp_path / "out"
    words = ["--method", "attention", "--block", "0", "--head", "1", "--target", "7"]
    code, printed = run(capsys, DIGITS, SEVEN, *words, "--out", str(out))
    assert code == 0
    assert printed.err == ""
    assert str(out / "index.html") in printed.out
    numbers = np.load(out / "maps.npz")
    found = cct_keras.explain(DIGITS, SEVEN, "attention", "7", block=0, head=1)
    np.testing.assert_allclose(numbers["token_maps"], found.token_maps, atol=1e-6)
    assert list(numbers["targets"]) == [7]


def test_images_may_stand_behind_the_options(capsys, tmp_path):
    words = ["--method", "rollout", "--out", str(tmp_path / "out"), SEVEN]
    code, printed = run(capsys, DIGITS, *words)
    assert (code, printed.err) == (0, "")
    assert printed.out.startswith("1 map by rollout: ")


@pytest.mark.integration
def test_predict_writes_maps_beside_its_answers(capsys, tmp_path):
    """Of the pictures that can be read; the answers on stdout are the same."""
    out, broken = tmp_path / "out", tmp_path / "broken.png"
    broken.write_text("no picture")
    assert main(["predict", DIGITS, SEVEN]) == 0
    answers = capsys.readouterr().out
    assert main(["predict", DIGITS, SEVEN, "--explain", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == answers
    assert str(out / "index.html") in printed.err
    expected = cct_keras.explain(DIGITS, SEVEN).token_maps
    stored = np.load(out / "maps.npz")["token_maps"]
    np.testing.assert_allclose(stored, expected, atol=1e-6)
    words = ["predict", DIGITS, SEVEN, str(broken), "--explain", str(out)]
    assert main(words) == 2
    assert "broken.png" in capsys.readouterr().err
    assert len(np.load(out / "maps.npz")["token_maps"]) == 1


def test_the_command_line_inspects_weights(capsys, tmp_path):
    out = tmp_path / "out"
    code, printed = run(capsys, DIGITS, "--weights-only", "--out", str(out))
    assert code == 0
    assert str(out / "learned.html") in printed.out
    assert {path.name for path in out.iterdir()} == {
        "learned.html",
        "learned.npz",
        "learned-filters.png",
        "learned-positions.png",
    }
