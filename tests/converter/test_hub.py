"""Repositories of the hub, from a real HTTP server that speaks its endpoints."""

import io
import json
import re
import sys

import numpy as np
import pytest
import reference
from hub_server import TOKEN
from hub_server import running_hub
from hub_server import use_hub
from plain_vits import HUGGING_FACE
from plain_vits import as_version_4
from plain_vits import state_of
from small import predict

import cct_keras
from cct_keras.converter.hub_config import read_documents
from cct_keras.converter.hub_model import choose_file
from cct_keras.converter.safetensors_file import write_safetensors
from cct_keras.errors import CheckpointError
from cct_keras.errors import DownloadError
from cct_keras.errors import MissingPackageError
from cct_keras.hub import Repository
from cct_keras.notes import collected_notes
from cct_keras.pretrained.source import open_weights

BY_NAME = {case["name"]: case for case in HUGGING_FACE}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with running_hub() as hub:
        use_hub(hub, tmp_path / "home", monkeypatch)
        yield hub


def as_bytes(state):
    buffer = io.BytesIO()
    write_safetensors(buffer, state)
    return buffer.getvalue()


def state_and_config(name="dinov2", **changes):
    case = BY_NAME[name]
    config = {
        "model_type": "dinov2",
        "num_attention_heads": case["num_heads"],
        "hidden_size": 32,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "image_size": 32,
        "patch_size": 8,
    }
    return case, as_version_4(state_of(case)), {**config, **changes}


PREPROCESSOR = {
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "do_center_crop": True,
    "size": {"shortest_edge": 40},
    "crop_size": {"height": 32, "width": 32},
    "resample": 3,
}


def test_a_repository_of_transformers(hub):
    """The heads are in the config alone, and the classes have names."""
    case, state, config = state_and_config()
    names = ["cat", "dog", "\x1b[2Jbird"]
    config["id2label"] = {str(i): name for i, name in enumerate(names)}
    commit = hub.put(
        "me/vit",
        model__safetensors=as_bytes(state),
        pytorch_model__bin=b"not read",
        config__json=config,
        preprocessor_config__json=PREPROCESSOR,
    )
    with collected_notes() as notes:
        model = cct_keras.convert("hf://me/vit")
    assert f"model.safetensors of hf://me/vit, commit {commit[:8]}" in notes[0]
    x = reference.random_images(case["name"], (1, *case["input_shape"]))
    expected = cct_keras.convert(state, num_heads=case["num_heads"])
    np.testing.assert_array_equal(predict(model, x), predict(expected, x))
    logits = cct_keras.convert("hf://me/vit", classifier_activation=None)
    golden = np.array(case["output"])
    assert np.abs(predict(logits, x)[0] - golden).max() < 1e-5 * np.abs(golden).max()

    whole = cct_keras.create_model(weights="hf://me/vit", include_preprocessing=True)
    layer = whole.get_layer("preprocessing")
    assert layer.class_names == ("cat", "dog", "?[2Jbird")
    assert (layer.mean, layer.std) == (
        tuple(PREPROCESSOR["image_mean"]),
        tuple(PREPROCESSOR["image_std"]),
    )
    assert (layer.crop, layer.interpolation) == (0.8, "bicubic")
    pixels = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3))
    normalized = (pixels / 255 - np.array(layer.mean)) / np.array(layer.std)
    difference = predict(whole, pixels) - predict(model, normalized.astype("float32"))
    assert np.abs(difference).max() < 1e-5
    paths = [path for _, path in hub.requests]
    assert not any("pytorch_model" in path for path in paths)


def save_beside(folder, name, state, **documents):
    (folder / name).write_bytes(as_bytes(state))
    for document, content in documents.items():
        path = folder / document.replace("__", ".")
        path.write_text(json.dumps(content))
    return folder / name


def test_a_folder_that_save_pretrained_wrote(tmp_path):
    """Its `config.json` tells the heads, and that the activation is another."""
    case, state, config = state_and_config(hidden_act="gelu_new", layer_norm_eps=1e-3)
    config["id2label"] = {str(i): name for i, name in enumerate("abc")}
    documents = {"config__json": config, "preprocessor_config__json": PREPROCESSOR}
    path = save_beside(tmp_path, "model.safetensors", state, **documents)
    model = cct_keras.convert(path)
    block = model.get_layer("block_0")
    assert block.num_heads == case["num_heads"]
    assert (block.activation, block.epsilon) == ("gelu_tanh", 1e-3)
    # Another is asked for, and the caller knows better.
    other = cct_keras.convert(path, num_heads=1)
    assert other.get_layer("block_0").num_heads == 1

    for place in (path, tmp_path):
        whole = cct_keras.create_model(weights=place, include_preprocessing=True)
        assert whole.get_layer("preprocessing").class_names == ("a", "b", "c")
        assert whole.get_layer("block_0").epsilon == 1e-3


def test_which_file_of_a_folder_is_taken(tmp_path):
    case, state, config = state_and_config()
    with pytest.raises(CheckpointError, match="is a directory, and holds no check"):
        cct_keras.convert(tmp_path)
    # Keras' own file, which `publish` writes beside it, is not to be converted.
    (tmp_path / "model.keras").touch()
    (tmp_path / "pytorch_model.bin").touch()
    save_beside(tmp_path, "model.safetensors", state, config__json=config)
    block = cct_keras.convert(tmp_path).get_layer("block_0")
    assert block.num_heads == case["num_heads"]


def test_a_config_beside_a_file_that_it_does_not_describe(tmp_path):
    _, state, config = state_and_config(hidden_act="silu")
    path = save_beside(tmp_path, "model.safetensors", state, config__json=config)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: config\.json") as e:
        cct_keras.convert(path)
    assert "`hidden_act` must be one of" in str(e.value)
    # A file by a name of one's own has nothing beside it.
    path = save_beside(tmp_path, "mine.safetensors", state)
    assert cct_keras.convert(path, num_heads=2).get_layer("block_0").num_heads == 2
    # Nor does a file of options that happens to be there.
    path = save_beside(tmp_path, "model.safetensors", state, config__json={"lr": 0.1})
    assert cct_keras.convert(path, num_heads=2).get_layer("block_0").num_heads == 2


def test_a_checkpoint_in_several_files(hub, tmp_path):
    case, state, config = state_and_config()
    names = sorted(state)
    parts = {"a": names[::2], "b": names[1::2]}
    places = {name: f"{part}.safetensors" for part in parts for name in parts[part]}
    files = {
        f"{part}.safetensors": as_bytes({name: state[name] for name in names})
        for part, names in parts.items()
    }
    files["model.safetensors.index.json"] = json.dumps({"weight_map": places}).encode()
    files["config.json"] = json.dumps(config).encode()
    hub.commit("me/parts", files)
    x = reference.random_images(case["name"], (1, *case["input_shape"]))
    expected = predict(cct_keras.convert(state, num_heads=4), x)
    np.testing.assert_array_equal(
        predict(cct_keras.convert("hf://me/parts"), x), expected
    )
    # The same files in a folder.
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    index = tmp_path / "model.safetensors.index.json"
    model = cct_keras.convert(index, num_heads=4)
    np.testing.assert_array_equal(predict(model, x), expected)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({}, "names no files"),
        ({"x": "../other.safetensors"}, "something else than a file beside it"),
        ({"x": "/etc/passwd"}, "something else than a file beside it"),
        ({"x": 3}, "something else than a file beside it"),
        ({"x": "own.index.json"}, "names another index"),
        ({"x": "gone.safetensors"}, "gone.safetensors: No such file"),
        ({"x": "a.safetensors"}, "holds other tensors than the index says: x, y"),
        ({str(i): f"{i}.bin" for i in range(1001)}, "1001 files, more than 1000"),
    ],
)
def test_an_index_that_is_refused(places, message, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(as_bytes({"y": np.ones(3, "float32")}))
    index = tmp_path / "own.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(CheckpointError, match=re.escape(message)):
        cct_keras.convert(index)


def test_what_is_chosen(hub):
    """The first of the list, or one line about what is there."""
    order = [
        "model.keras",
        "own.weights.h5",
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        "vit.npz",
        "open_clip_model.safetensors",
        "open_clip_pytorch_model.bin",
    ]
    others = {"README.md": b"", "last.pth": b"", "small/vit.npz": b"1"}
    for first in range(len(order)):
        hub.commit("me/all", {**others, **dict.fromkeys(order[first:], b"")})
        repository = Repository("hf://me/all")
        assert choose_file(repository) == order[first]
    assert choose_file(Repository("hf://me/all/last.pth")) == "last.pth"
    assert choose_file(Repository("hf://me/all/small")) == "small/vit.npz"
    for files, message in (
        (others, "give the address of a file, hf://user/repo/FILE: last.pth, small/"),
        ({"README.md": b"", "flax_model.msgpack": b""}, "it holds README.md, flax_"),
        ({}, "it holds nothing"),
        ({"a.npz": b"", "b.npz": b""}, "several such files: a.npz, b.npz"),
        ({f"{i}.txt": b"" for i in range(20)}, "and 12 more"),
    ):
        hub.commit("me/all", files)
        with pytest.raises(CheckpointError, match=re.escape(message)):
            cct_keras.convert("hf://me/all")
    with pytest.raises(CheckpointError, match="no file or folder gone"):
        cct_keras.convert("hf://me/all/gone")


def test_a_revision_and_a_page_of_the_website(hub):
    _, state, config = state_and_config()
    old = hub.put("me/vit", model__safetensors=as_bytes(state), config__json=config)
    hub.put("me/vit", README__md=b"gone")
    assert cct_keras.convert(f"hf://me/vit@{old}").output_shape == (None, 3)
    page = f"https://huggingface.co/me/vit/blob/{old}/model.safetensors"
    assert cct_keras.convert(page).output_shape == (None, 3)
    with pytest.raises(CheckpointError, match=r"it holds README\.md"):
        cct_keras.convert("https://huggingface.co/me/vit")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://me/gone", "has no model me/gone, or shows it to its members only"),
        ("hf://me/vit@v9", "no revision 'v9': name a branch, a tag or"),
        ("hf://me/gated", "me/gated is gated: accept its terms at http://127.0.0.1"),
        ("hf://me/gated", "hf auth login"),
        ("hf://me", "hf://user/repo of a model"),
        ("hf://datasets/me/pictures", "hf://user/repo of a model"),
        ("hf://me/vit/../other", "hf://user/repo of a model"),
        ("hf://me/vi--t", "me/vi--t cannot be read"),
    ],
)
def test_what_the_hub_refuses_is_one_line(hub, address, message):
    _, state, config = state_and_config()
    hub.put("me/vit", model__safetensors=as_bytes(state), config__json=config)
    hub.put("me/gated", model__safetensors=as_bytes(state))
    hub.gated.add("me/gated")
    for load in (cct_keras.convert, open_weights):
        with pytest.raises(DownloadError, match=re.escape(message)) as error:
            load(address)
        assert "\n" not in str(error.value)


def test_a_private_repository_and_its_token(hub, monkeypatch):
    _, state, config = state_and_config()
    hub.put("me/mine", model__safetensors=as_bytes(state), config__json=config)
    hub.private.add("me/mine")
    with pytest.raises(DownloadError, match="log in"):
        cct_keras.convert("hf://me/mine")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert cct_keras.convert("hf://me/mine").output_shape == (None, 3)


def test_without_a_network(hub, monkeypatch):
    """What was read before is read from the cache, and said."""
    from huggingface_hub import constants

    _, state, config = state_and_config()
    hub.put("me/vit", model__safetensors=as_bytes(state), config__json=config)
    cct_keras.convert("hf://me/vit")
    count = len(hub.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with collected_notes() as notes:
        assert cct_keras.convert("hf://me/vit").output_shape == (None, 3)
    assert any("the hub cannot be reached" in note for note in notes)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE forbids"):
        cct_keras.convert("hf://me/other")
    assert len(hub.requests) == count
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert cct_keras.convert("hf://me/vit").output_shape == (None, 3)
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:9 cannot be reached"):
        cct_keras.convert("hf://me/other")


def test_without_the_package(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r'pip install "cct-keras\[hub\]"'):
        cct_keras.convert("hf://me/vit")


# === What the JSON files tell ===


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": "4"}, "`num_attention_heads` must be an integer"),
        ({"num_attention_heads": True}, "`num_attention_heads` must be an integer"),
        ({"num_attention_heads": 10**30}, "`num_attention_heads` must be an integer"),
        ({"num_attention_heads": 5}, "a divisor of hidden_size=32"),
        ({"hidden_act": "swish"}, "`hidden_act` must be one of gelu"),
        ({"hidden_act": ["gelu"]}, "`hidden_act` must be a text"),
        ({"layer_norm_eps": 2}, "`layer_norm_eps` must be a number"),
        ({"image_size": "32"}, "`image_size` must be a side"),
        ({"image_size": 64}, "image_size=(64, 64), for 64 patches, and the tensors"),
        ({"patch_size": 16}, "patch_size=16, and the tensors have patches of 8"),
        ({"id2label": ["cat"]}, "`id2label` must be a mapping"),
        ({"id2label": {"0": "cat", "7": "dog"}}, "a name for each number below 2"),
        ({"id2label": {"0": {"os": "system"}}}, "a list of at most"),
        ({"model_type": {}}, "`model_type` must be a text"),
        ({"padding": "x" * 2**24}, "bytes, more than the 16,777,216"),
    ],
)
def test_a_config_that_is_refused(hub, changes, message):
    _, state, config = state_and_config(**changes)
    hub.put("me/vit", model__safetensors=as_bytes(state), config__json=config)
    with pytest.raises(CheckpointError, match=re.escape(message)) as error:
        cct_keras.convert("hf://me/vit")
    assert "config.json" in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[1]", b"NaN", b'{"a": Infinity}', b'{"a":' * 200_000],
)
def test_what_is_no_json(hub, content):
    _, state, _ = state_and_config()
    hub.put("me/vit", model__safetensors=as_bytes(state), config__json=content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        cct_keras.convert("hf://me/vit")


def told(name="model.safetensors", **documents):
    return read_documents(
        {k.replace("__", "."): json.loads(json.dumps(v)) for k, v in documents.items()},
        name,
    )


@pytest.mark.integration
def test_the_config_of_each_kind_and_its_defaults():
    """A file leaves out what is at the default of `transformers`."""
    transformers = pytest.importorskip("transformers")
    for kind, name in (
        ("vit", "ViT"),
        ("deit", "DeiT"),
        ("vit_mae", "ViTMAE"),
        ("dinov2", "Dinov2"),
        ("dinov2_with_registers", "Dinov2WithRegisters"),
        ("clip_vision_model", "CLIPVision"),
        ("siglip_vision_model", "SiglipVision"),
    ):
        config = getattr(transformers, f"{name}Config")().to_dict()
        whole = told(config__json=config)
        short = told(config__json={"model_type": kind})
        assert short.settings_are_known
        for key in ("num_heads", "epsilon", "activation"):
            assert short.arguments[key] == whole.arguments[key]
    for kind, vision in (("clip", "quick_gelu"), ("siglip", "gelu_tanh")):
        config = {"model_type": kind, "vision_config": {"num_attention_heads": 6}}
        arguments = told(config__json=config).arguments
        assert (arguments["num_heads"], arguments["activation"]) == (6, vision)
        assert told(config__json={"model_type": kind}).arguments["num_heads"] == 12
    assert told(config__json={"model_type": "bert"}).arguments == {}


def test_how_an_image_processor_normalizes():
    """Against its own formula: `(pixel * factor - mean) / std`."""
    pixels = np.arange(256.0)
    for document in (
        {"image_mean": [0.5], "image_std": [0.25]},
        {"image_mean": [0.5], "image_std": [0.25], "rescale_factor": 1 / 127.5},
        {"image_mean": [120.0], "image_std": [60.0], "do_rescale": False},
        {"image_mean": [0.5], "image_std": [0.25], "do_normalize": False},
    ):
        found = told(preprocessor_config__json=document).preprocessing
        factor = document.get("rescale_factor", 1 / 255)
        expected = pixels * (factor if document.get("do_rescale", True) else 1)
        if document.get("do_normalize", True):
            expected = (expected - document["image_mean"]) / document["image_std"]
        ours = (pixels / 255 - found["mean"]) / found["std"]
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)
    nested = {"image_processor": {"image_mean": [0.1], "image_std": [0.2]}}
    assert told(processor_config__json=nested).preprocessing["mean"] == (0.1,)
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json: `im"):
        told(preprocessor_config__json={"image_mean": [0.1], "image_std": [0.0]})


def test_a_config_of_timm():
    config = {
        "architecture": "vit_base_patch16_clip_quickgelu_224",
        "global_pool": "token",
        "label_names": ["cat", "dog"],
        "pretrained_cfg": {
            "input_size": [3, 32, 64],
            "mean": [0.5, 0.5, 0.5],
            "std": [0.2, 0.2, 0.2],
            "crop_pct": 0.9,
            "interpolation": "bicubic",
        },
    }
    found = told(config__json=config)
    assert found.arguments == {
        "activation": "quick_gelu",
        "top_pooling": "token",
        "image_size": (32, 64),
    }
    assert found.preprocessing == {
        "mean": (0.5, 0.5, 0.5),
        "std": (0.2, 0.2, 0.2),
        "crop": 0.9,
        "interpolation": "bicubic",
        "class_names": ("cat", "dog"),
    }
    assert not found.settings_are_known


def test_a_config_of_open_clip():
    config = {
        "model_cfg": {"vision_cfg": {"width": 32, "head_width": 8}},
        "preprocess_cfg": {"mean": [0.4] * 3, "std": [0.2] * 3},
    }
    name = "open_clip_model.safetensors"
    found = told(name, open_clip_config__json=config)
    assert found.arguments == {"num_heads": 4, "activation": "gelu"}
    assert found.preprocessing["mean"] == (0.4,) * 3
    config["model_cfg"]["quick_gelu"] = True
    found = told(name, open_clip_config__json=config)
    assert found.arguments["activation"] == "quick_gelu"
    assert told(open_clip_config__json=config).arguments == {}
