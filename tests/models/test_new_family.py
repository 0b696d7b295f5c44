"""A new family is one file and one row: this one has both in a few lines."""

import numpy as np
import pytest
from small import images
from small import predict
from small import stripes

import cct_keras
from cct_keras.converter import formats
from cct_keras.converter import shi_labs
from cct_keras.layers.conv_tokenizer import ConvTokenizer
from cct_keras.models import parts
from cct_keras.models.cost import variant_cost
from cct_keras.models.families import FAMILIES
from cct_keras.models.families import Family
from cct_keras.models.inspection import layer_depths
from cct_keras.models.inspection import undecayed_weights
from cct_keras.models.variants import VARIANTS
from cct_keras.models.variants import Variant
from cct_keras.models.weights_argument import load_weights


def TokenCCT(
    num_classes,
    input_shape=None,
    *,
    embedding_dim,
    num_layers,
    num_heads,
    mlp_ratio,
    positional_embedding="learnable",
    classifier_activation="softmax",
    weights=None,
    input_tensor=None,
    data_format="channels_last",
    dtype=None,
    name="token_cct",
    dropout_rate=0.0,
    attention_dropout=0.0,
    stochastic_depth=0.0,
    **convolutions,
):
    """CCT that reads a class token: convolutions before it, no pooling after it."""
    images = parts.image_input(name, input_shape, input_tensor, data_format, 32)
    tokenizer = ConvTokenizer(embedding_dim, **convolutions, name="tokenizer")
    x = parts.class_token(tokenizer(images), dtype, name="reader_token")
    grid = tokenizer.compute_grid(images.shape)
    x = parts.add_positions(
        x, name, grid, positional_embedding, dtype, num_prefix_tokens=1
    )
    x = parts.drop_out(x, name, dropout_rate, dtype)
    x = parts.encoder(
        x,
        name,
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        dropout_rate=dropout_rate,
        attention_dropout=attention_dropout,
        stochastic_depth=stochastic_depth,
        dtype=dtype,
    )
    x = parts.pool_tokens(x, name, None, dtype, top="token", num_prefix_tokens=1)
    x = parts.classifier_head(x, name, num_classes, classifier_activation, dtype)
    model = parts.functional_model(images, x, name)
    load_weights(model, weights)
    return model


ROW = Family(
    "TokenCCT",
    TokenCCT,
    tokenizer="convolutions",
    block_order="replacing",
    prefix_tokens=((("reader_token",), {}),),
    top_pooling="token",
    name_table="token_cct",
    defaults=FAMILIES["CCT"].defaults,
)
TOKEN = "classifier.reader"
TABLE = shi_labs.TABLE._replace(
    tensors={**shi_labs.TABLE.tensors, "reader_token/token": TOKEN}
)
FORMAT = formats.Format("token CCT", lambda state: TOKEN in state, TABLE)


@pytest.fixture(autouse=True)
def family(monkeypatch):
    monkeypatch.setitem(FAMILIES, "TokenCCT", ROW)
    monkeypatch.setitem(formats.NAME_TABLES, "token_cct", TABLE)
    monkeypatch.setattr(formats, "FORMATS", [FORMAT, *formats.FORMATS])
    row = Variant("TokenCCT", 2, 3, 2, 32, "learnable", 10)
    monkeypatch.setitem(VARIANTS, "token_cct_2_3x2_32", row)


def test_it_is_costed():
    model = cct_keras.create_model("token_cct_2_3x2_32")
    cost = variant_cost("token_cct_2_3x2_32")
    assert cost.parameters == model.count_params()
    assert cost.tokens == 65


def test_it_is_converted_both_ways(tmp_path):
    model = cct_keras.create_model("token_cct_2_3x2_32", num_classes=3)
    token = model.get_layer("reader_token").token
    token.assign(np.random.default_rng(0).normal(0, 0.1, token.shape))
    path = tmp_path / "a.safetensors"
    cct_keras.to_torch(model, path)
    x = images(2, 32, 32, 3)
    for again in (
        cct_keras.convert(path),
        cct_keras.create_model("token_cct_2_3x2_32", weights=path),
    ):
        np.testing.assert_array_equal(predict(again, x), predict(model, x))


def test_its_layers_have_a_depth_and_its_tables_are_not_decayed():
    model = cct_keras.create_model("token_cct_2_3x2_32")
    assert layer_depths(model)["reader_token"] == 0
    assert layer_depths(model)["block_1"] == 2
    paths = {weight.path for weight in undecayed_weights(model)}
    assert paths == {"reader_token/token", "position_embedding/embeddings"}


@pytest.mark.integration
def test_it_is_trained_by_name(tmp_path):
    run = cct_keras.train(
        stripes(64),
        "token_cct_2_3x2_32",
        "quick",
        epochs=2,
        batch_size=16,
        layer_decay=0.5,
        out=tmp_path / "run",
        verbose=False,
    )
    assert run.metrics["variant"] == "token_cct_2_3x2_32"
    again = cct_keras.create_model("token_cct_2_3x2_32", weights=tmp_path / "run")
    assert again.output_shape == (None, 2)
