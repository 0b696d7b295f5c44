"""Files of training scripts are read for their weights; nothing beside them is run.

`tests/golden/make_training_files.py` wrote them with torch.
"""

import argparse
import collections
import copyreg
import decimal
import io
import logging
import os
import pathlib
import pickle
import subprocess
import sys
import types
import uuid
import zipfile

import numpy as np
import pytest
import reference

import cct_keras
from cct_keras.converter.formats import open_checkpoint
from cct_keras.converter.reference import forward
from cct_keras.converter.torch_file import INERT
from cct_keras.errors import CheckpointError

FOLDER = pathlib.Path(__file__).parent.parent / "golden" / "training_files"
CCT = reference.random_state(**reference.TINY)
VIT = reference.random_vit_state(
    tokens=4, num_classes=3, num_layers=1, embedding_dim=8, mlp_ratio=1, patch_size=4
)
AVERAGED = {name: array + 1 for name, array in CCT.items()}
OTHERS = "the weights in {!r} are taken; entry=... takes others: {}"
# What is refused, and the lines that save its weights.
LOAD_AND_SAVE = (
    "`x = torch.load(PATH, weights_only=False)`",
    "`torch.save(x.state_dict() if hasattr(x, 'state_dict') else x.get('state_dict') "
    "or x['model'], 'weights.pth')`",
)


def assert_same(tensors, state):
    assert sorted(tensors) == sorted(state)
    for name, array in state.items():
        np.testing.assert_array_equal(tensors[name], array)
        assert tensors[name].dtype == array.dtype


def error_of(path, **arguments):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path, **arguments)
    return str(caught.value)


# === The weights ===


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("timm.pth.tar", AVERAGED),
        ("deit.pth", VIT),
        ("lightning.ckpt", CCT),
        ("omegaconf.ckpt", CCT),
        ("compiled.pth", CCT),
        ("ddp_compiled.pth", CCT),
        ("averaged_model.pth", CCT),
        ("model_ema.pth", CCT),
        ("one_unknown_entry.pth", CCT),
        ("protocol4.pth", CCT),
        ("legacy.pth", CCT),
    ],
)
def test_weights_are_exact(name, state):
    assert_same(open_checkpoint(FOLDER / name).tensors, state)


def test_every_file_is_small_and_tested():
    text = pathlib.Path(__file__).read_text()
    for path in FOLDER.iterdir():
        assert path.stat().st_size < 20_000
        assert f'"{path.name}"' in text


def test_a_converted_training_file_computes_the_original():
    images = reference.random_images("training file", (2, 8, 8, 3))
    model = cct_keras.convert(
        FOLDER / "lightning.ckpt", num_heads=2, classifier_activation=None
    )
    expected = forward(CCT, images, num_heads=2)
    np.testing.assert_allclose(model.predict(images, verbose=0), expected, atol=1e-5)


# === Several entries ===


@pytest.mark.parametrize(
    ("name", "taken", "others"),
    [
        ("timm.pth.tar", "state_dict_ema", "state_dict"),
        ("model_ema.pth", "model_ema", "model"),
    ],
)
def test_averaged_weights_come_first_and_a_note_says_so(name, taken, others, caplog):
    caplog.set_level(logging.INFO, logger="cct_keras")
    averaged = open_checkpoint(FOLDER / name).tensors
    records = [x for x in caplog.records if x.name == "cct_keras"]
    assert [x.getMessage() for x in records] == [OTHERS.format(taken, others)]
    assert records[0].levelno == logging.INFO
    assert_same(open_checkpoint(FOLDER / name, entry=taken).tensors, averaged)


@pytest.mark.parametrize(
    ("name", "entry", "state"),
    [("timm.pth.tar", "state_dict", CCT), ("model_ema.pth", "model", AVERAGED)],
)
def test_another_entry_is_chosen_by_name_without_a_note(name, entry, state, caplog):
    caplog.set_level(logging.INFO, logger="cct_keras")
    assert_same(open_checkpoint(FOLDER / name, entry=entry).tensors, state)
    assert not caplog.records


@pytest.mark.parametrize("name", ["deit.pth", "lightning.ckpt", "compiled.pth"])
def test_one_entry_needs_no_note(name, caplog):
    caplog.set_level(logging.INFO, logger="cct_keras")
    open_checkpoint(FOLDER / name)
    assert not caplog.records


@pytest.mark.parametrize("entry", ["x", "optimizer", "args", "epoch"])
def test_a_wrong_entry_lists_those_with_weights(entry):
    path = FOLDER / "timm.pth.tar"
    assert error_of(path, entry=entry) == (
        f"{path} has no entry {entry!r} with weights; it has: state_dict, "
        "state_dict_ema"
    )


def test_entries_of_unknown_names_are_not_guessed():
    path = FOLDER / "two_unknown.pth"
    assert error_of(path) == (
        f"{path} has several entries with weights: a, b; name one, entry=..."
    )
    assert_same(open_checkpoint(path, entry="b").tensors, {"x": np.zeros(2, "f")})


# === What stands around a model ===


def below(prefix, state):
    return {prefix + name: array for name, array in state.items()}


@pytest.mark.parametrize("state", [CCT, VIT], ids=["cct", "vit"])
@pytest.mark.parametrize(
    "prefix", ["encoder.", "vit.", "backbone.", "lit.model._orig_mod.", "a.b.module."]
)
def test_a_script_may_call_its_model_what_it_likes(prefix, state):
    tensors = open_checkpoint({"state_dict": below(prefix, state)}).tensors
    assert_same(tensors, state)


@pytest.mark.parametrize(
    "inner", ["_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."]
)
def test_wrappers_of_single_blocks(inner):
    state = {
        name.replace("blocks.0.", f"blocks.0.{inner}"): array
        for name, array in below(inner, VIT).items()
    }
    assert_same(open_checkpoint(state).tensors, VIT)


def test_what_a_module_keeps_beside_its_model_is_left_out_and_said(caplog):
    caplog.set_level(logging.INFO, logger="cct_keras")
    beside = {
        "criterion.weight": np.ones(3),
        "train_acc.total": np.zeros(()),
        "val_metrics.accuracy.tp": np.zeros(3),
        "loss_fn.ce.weight": np.ones(3),
    }
    content = {"state_dict": {**beside, **below("model.", VIT)}}
    assert_same(open_checkpoint(content).tensors, VIT)
    names = "criterion.weight, train_acc.total, val_metrics.accuracy.tp and 1 more"
    assert [x.getMessage() for x in caplog.records] == [f"not needed: {names}"]


@pytest.mark.parametrize("prefix", ["", "model."])
def test_other_tensors_beside_a_model_are_refused(prefix):
    state = {"projector.weight": np.ones((3, 3)), **below(prefix, VIT)}
    with pytest.raises(CheckpointError, match=r"projector\.weight"):
        cct_keras.convert({"state_dict": state}, num_heads=2)


@pytest.mark.parametrize("average", ["model_ema.module.", "ema_model.", "ema."])
def test_an_average_beside_the_model_below_one_module(average, caplog):
    caplog.set_level(logging.INFO, logger="cct_keras")
    plain = {name: array + 1 for name, array in VIT.items()}
    state = {**below("model.", plain), **below(average, VIT)}
    content = {"state_dict": state, "epoch": 3}
    assert_same(open_checkpoint(content).tensors, VIT)
    taken = average.partition(".")[0]
    assert [x.getMessage() for x in caplog.records] == [OTHERS.format(taken, "model")]
    assert_same(open_checkpoint(content, entry="model").tensors, plain)


@pytest.mark.parametrize(
    "content",
    [
        {"n_averaged": np.array(3), **below("module.", VIT)},
        {"swa": {"n_averaged": np.array(3), **below("module.", VIT)}},
        below("model.", {"n_averaged": np.array(3), **VIT}),
    ],
    ids=["AveragedModel", "in an entry", "below another name"],
)
def test_the_count_of_an_average_is_not_needed_and_said(content, caplog):
    caplog.set_level(logging.INFO, logger="cct_keras")
    assert_same(open_checkpoint(content).tensors, VIT)
    assert [x.getMessage() for x in caplog.records] == ["not needed: n_averaged"]


def test_an_average_of_ema_pytorch(caplog):
    """It keeps the model, its average and two counters in one entry."""
    caplog.set_level(logging.INFO, logger="cct_keras")
    plain = {name: array + 1 for name, array in VIT.items()}
    counters = {"initted": np.array([True]), "step": np.array([3])}
    average = {**below("online_model.", plain), **below("ema_model.", VIT), **counters}
    content = {"model": plain, "ema": average}
    assert_same(open_checkpoint(content).tensors, VIT)
    notes = [x.getMessage() for x in caplog.records]
    others = OTHERS.format("ema_model", "model, online_model")
    assert notes == ["not needed: initted, step", others]
    assert_same(open_checkpoint(average).tensors, VIT)
    assert_same(open_checkpoint(content, entry="model").tensors, plain)


def test_the_losses_of_dinov2_are_not_needed():
    losses = {
        "dino_head.mlp.0.weight": np.ones((2, 2)),
        "dino_head.last_layer.weight_v": np.ones((2, 2)),
        "ibot_head.mlp.0.bias": np.ones(2),
    }
    content = {"teacher": {**below("backbone.", VIT), **losses}}
    assert_same(open_checkpoint(content).tensors, VIT)


# === Without a head ===


@pytest.mark.parametrize(
    ("name", "state", "head"),
    [
        ("headless_cct.pth", CCT, ("classifier.fc.",)),
        ("headless_without_pool.pth", CCT, ("classifier.fc.", "classifier.att")),
        ("headless_vit.pth", VIT, ("head.",)),
    ],
)
def test_a_file_without_a_head_becomes_a_body(name, state, head):
    body = {key: x for key, x in state.items() if not key.startswith(head)}
    assert_same(open_checkpoint(FOLDER / name).tensors, body)
    model = cct_keras.convert(FOLDER / name, num_heads=2)
    images = reference.random_images("headless", (2, 8, 8, 3))
    # Of timm's ViT and of the authors' CCT.
    epsilon = 1e-6 if state is VIT else 1e-5
    expected = forward(body, images, num_heads=2, epsilon=epsilon)
    assert model.output_shape == (None, *expected.shape[1:])
    np.testing.assert_allclose(model.predict(images, verbose=0), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "fresh"),
    [
        ("headless_cct.pth", "the head is"),
        ("headless_without_pool.pth", "the pool and head are"),
        ("headless_vit.pth", "the head is"),
    ],
)
def test_a_file_without_a_head_gets_a_fresh_one(name, fresh):
    with pytest.warns(UserWarning, match=f"{fresh} left as initialized"):
        model = cct_keras.convert(FOLDER / name, num_heads=2, num_classes=4)
    assert model.output_shape == (None, 4)
    kernel = model.get_layer("block_0").attention.qkv.kernel
    names = {"headless_vit.pth": "blocks.0.attn.qkv.weight"}
    expected = {**CCT, **VIT}[
        names.get(name, "classifier.blocks.0.self_attn.qkv.weight")
    ]
    np.testing.assert_array_equal(np.asarray(kernel), expected.T)


# === What only running its code would open ===


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("whole_model.pth", "torch.nn.modules.container.Sequential, a part of a whole"),
        ("whole_model_own.pth", "__main__.Net, which no plain checkpoint needs"),
    ],
)
def test_a_whole_model_is_refused_with_the_lines_that_save_its_weights(name, what):
    message = error_of(FOLDER / name)
    assert message.startswith(f"{FOLDER / name}: refused: the pickle names {what}")
    assert "nothing was run" in message
    for line in LOAD_AND_SAVE:
        assert line in message


def test_torchscript_is_refused_with_the_lines_that_save_its_weights():
    message = error_of(FOLDER / "torchscript.pt")
    assert "refused: a TorchScript archive" in message
    assert "nothing was run" in message
    assert "`model = torch.jit.load(PATH)`" in message
    assert "`torch.save(model.state_dict(), 'weights.pth')`" in message


def test_options_among_the_weights_are_refused():
    path = FOLDER / "options_among_weights.pth"
    expected = f"{path} mixes weights with something else: args, mean"
    assert error_of(path) == expected
    assert error_of(path, entry="state_dict") == expected


# === Nothing is run ===


def text(value):
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


COMMAND = text("touch OWNED")
# The top of the stack as a tuple; a call; an object; one with keywords; a state.
TUPLE1, REDUCE, NEWOBJ, NEWOBJ_EX, BUILD = b"\x85", b"R", b"\x81", b"}\x92", b"b"


def with_entry(target, fragment, source="timm.pth.tar", name="extra"):
    """A copy of a training file whose mapping has one more entry, by its opcodes."""
    entry = text(name) + fragment + b"s."
    with (
        zipfile.ZipFile(FOLDER / source) as old,
        zipfile.ZipFile(target, "w") as new,
    ):
        for member in old.namelist():
            data = old.read(member)
            if member.endswith("data.pkl"):
                assert data.endswith(b".")
                data = data[:-1] + entry
            new.writestr(member, data)
    return target


def global_(module, name):
    return f"c{module}\n{name}\n".encode()


class Evil:
    def __reduce__(self):
        return os.system, ("touch OWNED",)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: argparse.Namespace(a=[x])])
def test_options_that_call_a_function_are_refused(
    wrap, protocol, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    fragment = pickle.dumps(wrap(Evil()), protocol)[2:-1]
    if protocol == 4:
        # Without the frame, whose length would be another one.
        fragment = fragment[9:]
    path = with_entry(tmp_path / "a.pth", fragment, name="args")
    message = error_of(path)
    assert f"refused: the pickle names {os.system.__module__}.system" in message
    assert "nothing was run" in message
    for line in LOAD_AND_SAVE:
        assert line in message
    assert not (tmp_path / "OWNED").exists()


@pytest.mark.parametrize(
    "fragment",
    [
        global_("__main__", "Options") + b")" + NEWOBJ + b"}" + BUILD,
        text("__main__") + text("Options") + b"\x93)" + NEWOBJ,
        global_("argparse", "Namespace.__init__") + b")" + REDUCE,
        global_("argparse", "_sys.modules"),
        global_("argparse", "ArgumentParser") + b")" + NEWOBJ,
        global_("builtins", "eval") + COMMAND + TUPLE1 + REDUCE,
        global_("__builtin__", "getattr") + b")" + REDUCE,
        global_("numpy", "load") + COMMAND + TUPLE1 + REDUCE,
        global_("copyreg", "__newobj__") + b")" + REDUCE,
        global_("pathlib", "os.system") + COMMAND + TUPLE1 + REDUCE,
    ],
)
def test_any_other_name_is_refused(fragment, tmp_path, monkeypatch):
    """A subclass of Namespace, too: a name tells nothing of what it is."""
    monkeypatch.chdir(tmp_path)
    message = error_of(with_entry(tmp_path / "a.pth", fragment))
    assert "refused: the pickle names" in message
    assert not (tmp_path / "OWNED").exists()


CALLS = {
    "call": COMMAND + TUPLE1 + REDUCE,
    "object": COMMAND + TUPLE1 + NEWOBJ,
    "keywords": COMMAND + TUPLE1 + NEWOBJ_EX,
    "state": b")" + NEWOBJ + b"}" + text("__setstate__") + COMMAND + b"s" + BUILD,
    "items": b")" + REDUCE + b"(" + COMMAND + COMMAND + b"u" + b"(" + COMMAND + b"e",
    "set": b")" + REDUCE + b"(" + COMMAND + b"\x90" + COMMAND + b"a",
    "nothing": b"",
}


def test_byte_arrays_of_protocol_5_are_not_kept(tmp_path):
    content = b"\x96" + (3).to_bytes(8, "little") + b"abc"
    path = with_entry(tmp_path / "a.pth", content)
    assert_same(open_checkpoint(path).tensors, AVERAGED)
    content = b"\x96" + (2**62).to_bytes(8, "little")
    message = error_of(with_entry(tmp_path / "b.pth", content))
    assert "a byte array that is far too long" in message


@pytest.mark.parametrize("call", list(CALLS))
def test_inert_names_are_never_called(call, tmp_path, monkeypatch):
    def called(*arguments, **keywords):
        raise AssertionError("called")

    for module, name in (
        (argparse, "Namespace"),
        (types, "SimpleNamespace"),
        (collections, "Counter"),
        (decimal, "Decimal"),
        (uuid, "UUID"),
        (copyreg, "_reconstructor"),
        (sys.modules["_codecs"], "encode"),
        (pathlib, "PureWindowsPath"),
    ):
        monkeypatch.setattr(module, name, called)
    monkeypatch.chdir(tmp_path)
    modules = set(sys.modules)
    names = [(module, name) for module, all_ in INERT.items() for name in all_]
    fragment = b"]" + b"".join(
        global_(*name) + CALLS[call] + b"a" for name in (*names, names[0])
    )
    assert_same(
        open_checkpoint(with_entry(tmp_path / "a.pth", fragment)).tensors, AVERAGED
    )
    assert set(sys.modules) == modules
    assert os.listdir(tmp_path) == ["a.pth"]


@pytest.mark.parametrize(
    "fragment",
    [
        global_("argparse", "Namespace") + b")" + NEWOBJ,
        global_("collections", "defaultdict") + b")" + REDUCE,
        global_("numpy._core.multiarray", "_reconstruct") + b")" + REDUCE,
        global_("builtins", "dict"),
        b"\x8f",
        b"(K\x01\x91",
    ],
)
def test_what_stands_for_an_object_is_no_tensor(fragment, tmp_path):
    """A plain state dict, one of whose values is an object."""
    path = with_entry(tmp_path / "a.pth", fragment, source="headless_cct.pth")
    assert error_of(path) == f"{path} mixes weights with something else: extra"


@pytest.mark.parametrize(
    "fragment",
    [
        # A call, an object or items of what is no stub.
        b"K\x01)" + REDUCE,
        global_("torch", "FloatStorage") + b")" + REDUCE,
        global_("collections", "OrderedDict") + b")" + NEWOBJ,
        COMMAND + b")" + NEWOBJ_EX,
        b"K\x01(K\x02\x90",
        b"K\x01(K\x02e",
        b"N(K\x01K\x02u",
        # A stub is no function of torch's, and no storage.
        global_("torch._tensor", "_rebuild_from_type_v2")
        + b"("
        + global_("builtins", "set")
        + b"N)Nt"
        + REDUCE,
        global_("torch._utils", "_rebuild_tensor_v2") + b"(\x8fK\x00))\x89Nt" + REDUCE,
    ],
)
def test_opcodes_on_the_wrong_thing_are_refused(fragment, tmp_path):
    message = error_of(with_entry(tmp_path / "a.pth", fragment))
    assert message.startswith(f"{tmp_path / 'a.pth'}: ")


AUDIT = """
import os, pathlib, sys
from cct_keras.converter.formats import open_checkpoint
from cct_keras.errors import CheckpointError

def read_all():
    for path in pathlib.Path(sys.argv[1]).iterdir():
        try:
            open_checkpoint(path)
        except CheckpointError:
            pass

events, armed = [], False
def audit(event, arguments):
    if not armed or event in ("builtins.id", "os.listdir", "os.scandir"):
        return
    if event == "open" and arguments[2] & os.O_ACCMODE == os.O_RDONLY:
        return
    events.append((event, arguments))

read_all()
sys.addaudithook(audit)
armed = True
read_all()
armed = False
assert not events, events
"""


def test_the_interpreter_sees_nothing_run():
    """No import, code, process, written file or look-up of a pickled name."""
    subprocess.run([sys.executable, "-c", AUDIT, str(FOLDER)], check=True)


@pytest.mark.parametrize("name", ["timm.pth.tar", "legacy.pth", "lightning.ckpt"])
def test_damaged_pickles_never_raise_anything_else(name, tmp_path):
    content = (FOLDER / name).read_bytes()
    rng = np.random.default_rng(0)
    is_zip = content[:2] == b"PK"
    for _ in range(60):
        target = io.BytesIO()
        if is_zip:
            with (
                zipfile.ZipFile(FOLDER / name) as old,
                zipfile.ZipFile(target, "w") as new,
            ):
                for member in old.namelist():
                    data = old.read(member)
                    if member.endswith("data.pkl"):
                        data = damaged(data, rng)
                    new.writestr(member, data)
        else:
            target.write(damaged(content, rng))
        path = tmp_path / name
        path.write_bytes(target.getvalue())
        try:
            open_checkpoint(path)
        except CheckpointError:
            pass


def damaged(data, rng):
    data = bytearray(data)
    for position in rng.integers(0, len(data), 3):
        data[position] = rng.integers(0, 256)
    return bytes(data)
