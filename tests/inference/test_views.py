"""Answers that are averaged over an image and its mirror image."""

import json

import numpy as np
import pytest

import cct_keras
from cct_keras.cli.main import main

MODEL = "cct_2_3x2_32.digits"


@pytest.mark.backend
def test_predict_averages_probabilities():
    image = cct_keras.load_data("digits").test.images[0]

    def probabilities(image, **options):
        [row] = cct_keras.predict(MODEL, image, top=10, **options)
        return {entry["name"]: entry["probability"] for entry in row["classes"]}

    plain, mirrored = probabilities(image), probabilities(image[:, ::-1])
    averaged = probabilities(image, tta="flip")
    assert max(abs(plain[name] - mirrored[name]) for name in plain) > 0.1
    for name, value in averaged.items():
        assert value == pytest.approx((plain[name] + mirrored[name]) / 2, abs=1e-5)


def test_evaluate_reports_them_apart():
    data = cct_keras.load_data("digits")
    metrics = cct_keras.evaluate(MODEL, data, tta="flip")
    model = cct_keras.load_classifier(MODEL)
    images = np.stack([data.test.images[i] for i in range(len(data.test))])
    views = [np.array(model(x.astype("float32"))) for x in (images, images[:, :, ::-1])]
    right = sum(views).argmax(1) == data.test.labels
    assert metrics["tta"]["top1"] == pytest.approx(right.mean())
    assert metrics["tta"]["name"] == "flip"
    plain = cct_keras.evaluate(MODEL, data)
    assert metrics["top1"] == plain["top1"] > metrics["tta"]["top1"]
    assert "tta" not in plain


def test_the_commands(capsys):
    main(["evaluate", MODEL, "digits", "--tta", "flip", "--json"])
    assert json.loads(capsys.readouterr().out)["tta"]["name"] == "flip"
    main(["evaluate", MODEL, "digits", "--tta", "flip"])
    assert "\n  flip  " in capsys.readouterr().out


def test_other_views_are_refused():
    with pytest.raises(ValueError, match="`tta` must be flip. Received: tta='crop'"):
        cct_keras.evaluate(MODEL, "digits", tta="crop")
    with pytest.raises(ValueError, match="tta='crop'"):
        cct_keras.predict(MODEL, np.zeros((8, 8)), tta="crop")
