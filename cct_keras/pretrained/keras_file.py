"""What `.keras` and `.weights.h5` files of this package hold, without building a model.

The files name their layers; newer ones also record the settings that no shape tells.
Nothing of a file is run: a `.keras` file is read as JSON and arrays.
"""

import io
import json
import pathlib
import re
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import h5py
import ml_dtypes
import numpy as np

from cct_keras.converter.infer import published_heads
from cct_keras.errors import CheckpointError
from cct_keras.errors import one_line
from cct_keras.layers.position_embedding import kind_of_table
from cct_keras.layers.settings import KEY as SETTINGS
from cct_keras.layers.settings import load_settings
from cct_keras.models.architecture import Architecture
from cct_keras.models.families import known_heads
from cct_keras.models.families import known_prefix_tokens
from cct_keras.models.families import order_prefix_tokens
from cct_keras.models.inspection import architecture_from_layers
from cct_keras.models.transfer import POSITIONS

SUFFIXES = (".keras", ".weights.h5")
# A file may declare this many bytes, or so many times its size.
UNPACKED_LIMIT, UNPACKED_RATIO = 2**26, 20
LONGEST_REASON = 200
NORMS = ("norm", "norm1", "norm2", "norm_pre", "fc_norm")
# Weights that are neither of a linear layer nor of a normalization.
OWN_NAMES = {
    "registers": "tokens",
    "pool": "probe",
    "scale1": "scale",
    "scale2": "scale",
}


class KerasFile(NamedTuple):
    """What a file holds.

    Attributes:
        architecture: The architecture of its weights.
        arrays: `{weight path: array}`, adapters merged.
        states_settings: Whether it records what no shape tells, such as heads, which
            `.weights.h5` files of version 0.1 do not.
        preprocessing: Arguments of its `Preprocessing` layer, if it has one.
    """

    architecture: Architecture
    arrays: dict[str, np.ndarray]
    states_settings: bool
    preprocessing: Mapping | None


def read_keras_file(path: pathlib.Path) -> KerasFile:
    """Reads a `.keras` or `.weights.h5` file of this package."""
    try:
        if path.suffix == ".keras":
            return _read_archive(path)
        return _read_weights(path)
    except KeyError as error:
        reason = one_line(str(error))[:LONGEST_REASON]
        raise CheckpointError(
            f"{path} holds no weights of this package: there is no {reason}"
        ) from error
    except CheckpointError:
        raise
    except Exception as error:
        # Whatever a damaged file makes the readers stumble over.
        reason = one_line(str(error))[:LONGEST_REASON]
        raise CheckpointError(f"{path} is not a readable file: {reason}") from error


# === .keras ===


def _read_archive(path):
    with zipfile.ZipFile(path) as archive:
        declared = sum(info.file_size for info in archive.infolist())
        if declared > _most_bytes(path.stat().st_size):
            raise CheckpointError(f"{path} declares far more than it holds")
        entries = json.loads(archive.read("config.json"))["config"]["layers"]
        weights = io.BytesIO(archive.read("model.weights.h5"))
    tokenizers = [e for e in entries if e["class_name"] == "ConvTokenizer"]
    if len(tokenizers) != 1:
        raise CheckpointError(
            f"{path} holds no model of this package, or more than one: it has "
            f"{len(tokenizers)} layers of the class ConvTokenizer"
        )
    layers = {
        entry["name"]: (entry["class_name"], entry["config"]) for entry in entries
    }
    tokenizer = tokenizers[0]
    shape = tokenizer["build_config"]["input_shape"][1:]
    if tokenizer["config"]["data_format"] == "channels_first":
        shape = (shape[1], shape[2], shape[0])
    adapters = {
        name: config["lora"]
        for name, (_, config) in layers.items()
        if isinstance(config, dict) and config.get("lora")
    }
    preprocessing = next(
        (config for kind, config in layers.values() if kind == "Preprocessing"), None
    )
    stored = _read_layers(weights)
    _check_not_quantized(path, stored)
    return KerasFile(
        architecture_from_layers(layers, tuple(shape)),
        _arrays_by_path(stored, adapters),
        True,
        preprocessing,
    )


# === .weights.h5 ===


def _read_weights(path):
    stored = _read_layers(path)
    _check_not_quantized(path, stored)
    projections = ("attention/qkv", "attention/proj")
    projections += ("feed_forward/linear1", "feed_forward/linear2")
    places = {f"{projection}/2" for projection in projections}
    if any(places & set(datasets) for datasets in stored.values()):
        raise CheckpointError(
            f"{path} holds weights with adapters: merge_lora the model before, or save "
            "it as a .keras file"
        )
    arrays = _arrays_by_path(stored, {})
    layers = _layers_of_weights(stored, arrays)
    channels = stored["tokenizer"]["convs/0/0"].shape[2]
    draft = architecture_from_layers(layers, (None, None, channels))
    if draft.grid is not None:
        size = tuple(side * draft.pixels_per_token for side in draft.grid)
        arguments = {**draft.arguments, "input_shape": (*size, channels)}
        draft = Architecture(draft.family, arguments, draft.grid)
    return KerasFile(draft, arrays, SETTINGS in stored["block_0"], None)


def _layers_of_weights(stored, arrays):
    """Class and settings of each layer, as far as a file of weights tells."""
    layers = {"tokenizer": ("ConvTokenizer", _tokenizer_settings(stored))}
    # As in a model: the token that comes first in the sequence is put on last.
    present = {name for name in known_prefix_tokens() if name in stored}
    for name in reversed(order_prefix_tokens(present)):
        layers[name] = ("ClassToken", {})
    if "position_embedding" in stored:
        table = np.asarray(arrays[POSITIONS], "float32")
        grid = stored["position_embedding"]["grid"].tolist()
        settings = {"grid": grid, "kind": kind_of_table(table)}
        settings |= _settings(stored["position_embedding"])
        layers["position_embedding"] = ("PositionEmbedding", settings)
    for name, datasets in stored.items():
        if re.fullmatch(r"block_\d+", name):
            layers[name] = ("EncoderBlock", _block_settings(datasets))
    if "registers" in stored:
        count = stored["registers"]["0"].shape[1]
        layers["registers"] = ("RegisterTokens", {"num_tokens": count})
    for name in NORMS:
        if name in stored:
            layers[name] = ("LayerNormalization", {})
    if "query/0" in stored.get("pool", {}):
        layers["pool"] = ("AttentionPool", {})
    for name in (*known_heads(), "pre_logits", "projection"):
        if name in stored:
            layers[name] = ("Dense", {"units": stored[name]["0"].shape[-1]})
    first = stored.get("pre_logits") or stored.get("head")
    width = layers["tokenizer"][1]["embedding_dim"]
    if first is not None and first["0"].shape[0] == 2 * width:
        layers["pool"] = ("Concatenate", {})
    return layers


def _tokenizer_settings(stored):
    datasets = stored["tokenizer"]
    kernels = [x for key, x in datasets.items() if re.fullmatch(r"convs/\d+/0", key)]
    patches = "convs/0/1" in datasets
    side = kernels[0].shape[0]
    settings = {
        "embedding_dim": kernels[-1].shape[-1],
        "num_conv_layers": len(kernels),
        "kernel_size": side,
        # What a file of version 0.1 does not tell.
        "stride": side if patches else max(1, side // 2 - 1),
        "padding": 0 if patches else max(1, side // 2),
        "pooling_kernel_size": None if patches else 3,
        "pooling_stride": 2,
        "pooling_padding": 1,
    }
    return {**settings, **_settings(datasets)}


def _block_settings(datasets):
    pre_norm = "attention/qkv/1" in datasets
    return {
        # A file of version 0.1 does not tell these two.
        "num_heads": published_heads(datasets["norm1/0"].shape[0]),
        "epsilon": 1e-6 if pre_norm else 1e-5,
        "pre_norm": pre_norm,
        "hidden_dim": datasets["feed_forward/linear1/1"].shape[0],
        **_settings(datasets),
    }


def _settings(datasets):
    """What the layer itself recorded, in files newer than version 0.1."""
    return dict(load_settings(datasets))


# === Arrays ===


def _read_layers(file):
    """`{layer name: {place: array}}`; a place is such as `attention/qkv/0`."""
    layers, total = {}, 0
    size = (
        file.getbuffer().nbytes if isinstance(file, io.BytesIO) else file.stat().st_size
    )
    with h5py.File(file) as content:
        for group in content["layers"].values():
            datasets = {}

            def collect(key, item, datasets=datasets):
                nonlocal total
                if isinstance(item, h5py.Dataset):
                    if item.external or item.is_virtual:
                        raise CheckpointError(f"{key} is kept in another file")
                    total += item.nbytes
                    if total > _most_bytes(size):
                        raise CheckpointError("the file declares more than it holds")
                    place = re.sub(r"(^|/)vars/", r"\1", key)
                    # Keras names the convolutions of a list after their class.
                    place = re.sub(r"^convs/conv2d/", "convs/conv2d_0/", place)
                    place = re.sub(r"^convs/conv2d_(\d+)/", r"convs/\1/", place)
                    datasets[place] = _as_array(item)

            group.visititems(collect)
            if datasets:
                layers[str(group["vars"].attrs.get("name", group.name))] = datasets
    return layers


def _most_bytes(size):
    """A file may declare so much; one that declares more would fill the memory."""
    return max(UNPACKED_LIMIT, UNPACKED_RATIO * size)


def _as_array(dataset):
    array = dataset[...]
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        # So Keras stores bfloat16.
        array = array.view(ml_dtypes.bfloat16).astype("float32")
    return array


def _check_not_quantized(path, stored):
    """Refuses integer kernels, and the kernels of float8 with scales beside them."""
    for layer, datasets in stored.items():
        for place, array in datasets.items():
            integer = array.ndim == 2 and array.dtype.kind in "iu"
            # A linear layer with an adapter has four weights, in float8 it has eight.
            if integer or re.fullmatch(r"(.*/)?7", place):
                raise CheckpointError(
                    f"{path} holds the weights of a quantized model ({layer}/{place}): "
                    "use the file from before model.quantize"
                )


def _arrays_by_path(stored, adapters):
    arrays = {}
    for layer, datasets in stored.items():
        for place, array in datasets.items():
            if place in ("grid", SETTINGS):
                continue
            arrays[_weight_path(layer, place, array)] = array
        if layer in adapters:
            _merge_adapters(arrays, layer, datasets, adapters[layer])
    return arrays


def _weight_path(layer, place, array):
    """The path of a weight in a model, from its place in a file."""
    if place == "embeddings":
        return POSITIONS
    sublayer, _, index = place.rpartition("/")
    sublayer = re.sub(r"^convs/(\d+)", r"conv_\1", sublayer)
    path = f"{layer}/{sublayer}" if sublayer else layer
    if layer.endswith("_token"):
        return f"{path}/token"
    last = path.rpartition("/")[2]
    if last in OWN_NAMES:
        return f"{path}/{OWN_NAMES[last]}"
    if last in NORMS:
        return f"{path}/{('gamma', 'beta')[int(index)]}"
    return f"{path}/{'bias' if array.ndim == 1 else 'kernel'}"


def _merge_adapters(arrays, block, datasets, adapters):
    """Adds each adapter to its kernel: in the file they stand before it."""
    scale = adapters["alpha"] / adapters["rank"]
    for sublayer in {place.rpartition("/")[0] for place in datasets}:
        if f"{sublayer}/2" in datasets:
            down, up, kernel = (datasets[f"{sublayer}/{i}"] for i in range(3))
            kernel = np.asarray(kernel, "float32")
            arrays[f"{block}/{sublayer}/kernel"] = kernel + (down @ up) * scale
