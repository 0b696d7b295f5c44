"""What a fuzzing campaign found, one test each; `tests/fuzz` looks for more.

A file of n bytes may take 64 MiB and 12 n of memory, and is refused in one line.
"""

import json
import logging
import tracemalloc
import zipfile

import bombs
import file_writers as files
import numpy as np
import pytest
import seed_files

import cct_keras
from cct_keras.converter.formats import open_checkpoint
from cct_keras.converter.infer import infer
from cct_keras.errors import CheckpointError

CCT = seed_files.state_of("cct")


def refused(path, content):
    """The message, which is one printable line of at most 500 characters."""
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        infer(open_checkpoint(path), None, {"num_heads": 2})
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) <= 500
    return message


# === Memory ===


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (bombs.memo_entries, "its pickle declares far more than the file can hold"),
        (bombs.deep_tuples, "its pickle declares far more than the file can hold"),
        (bombs.long_frame, "its pickle declares far more than the file can hold"),
        (bombs.storages_like_folders, "/ declares far more than the file can hold"),
        (bombs.one_member_often, "declares far more than the file can hold"),
        (bombs.views_of_one_storage, "declares far more than the file can hold"),
        (bombs.storages_in_one_place, "declares far more than the file can hold"),
        (bombs.expanded, "shape (32768, 32768) declares far more"),
        (bombs.packed_array, "these are not the weights"),
        (bombs.many_positions, "another"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_memory_is_counted_before_it_is_taken(bomb, message, tmp_path):
    content = bomb()
    tracemalloc.start()
    try:
        if bomb is bombs.many_positions:
            path = tmp_path / "a.safetensors"
            path.write_bytes(content)
            infer(open_checkpoint(path), None, {"num_heads": 2})
        else:
            assert message in refused(tmp_path / "a.pth", content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20 + 12 * len(content)


def test_a_zip_in_a_zip_is_allowed_no_more_than_one(tmp_path):
    """Both layers together may declare what one alone may."""
    array = {"x": files.tensor("0", "ByteStorage", 9, (9,), (1,))}
    pickled = files.pickled(files.mapping(array))
    members = [("a/data.pkl", pickled), ("a/data/0", bytes(20 * 2**20))]
    one = files.zip_of(members, zipfile.ZIP_DEFLATED)
    path = tmp_path / "one.pth"
    path.write_bytes(one)
    assert open_checkpoint(path).tensors["x"].shape == (9,)
    two = files.zip_of([("a.pth", files.zip_of(members))], zipfile.ZIP_DEFLATED)
    assert "a/data/0 declares far more" in refused(tmp_path / "two.pth", two)


@pytest.mark.parametrize(
    "opcode",
    [
        b"X\xff\xff\xff\x7f",
        b"\x8d" + b"\xff" * 7 + b"\x7f",
        b"\x95\0\0\0\0\1" + b"\0" * 2,
    ],
)
def test_lengths_in_a_pickle_are_compared_with_the_file(opcode, tmp_path):
    for content in (files.torch_zip(opcode, {}), files.legacy(opcode, [])):
        assert "its pickle is truncated" in refused(tmp_path / "a.pth", content)


def test_storages_of_older_files_are_compared_with_the_file(tmp_path):
    body = files.mapping({"x": files.tensor("0", "FloatStorage", 2**40, (2,), (1,))})
    content = files.legacy(body, [("0", 2, bytes(8))])
    assert "truncated: storage 0" in refused(tmp_path / "a.pth", content)


def test_a_storage_may_not_be_longer_for_its_second_tensor(tmp_path):
    first = files.tensor("0", "FloatStorage", 2, (2,), (1,))
    second = files.tensor("0", "FloatStorage", 200, (200,), (1,))
    body = files.mapping({"x": first, "y": second})
    content = files.torch_zip(body, {"0": bytes(8)})
    assert "shorter than declared" in refused(tmp_path / "a.pth", content)


# === Time ===


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (bombs.many_dimensions, "a has an impossible shape"),
        (bombs.keys_of_one_hash, "holds no weights"),
        (bombs.one_list_of_pairs_often, "far too much"),
        (bombs.one_mapping_of_pairs_often, "a mapping is made of what is no list"),
        (bombs.pairs_by_way_of_a_type, "rebuilt by something else than torch"),
        (bombs.many_arguments_by_way_of_a_type, "something else than torch"),
        (bombs.calls_in_calls, "rebuilt by something else than torch"),
        (bombs.header_of_rows, "holds 12857 tensors or other values"),
        (bombs.many_stages, "images of 2305843009213693952 x"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_work_is_bounded(bomb, message, tmp_path):
    assert message in refused(tmp_path / "a.pth", bomb())


# === Messages ===


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (bombs.shared_tuples_as_storages, "storage without a name has no tensor"),
        (bombs.long_byte_order, r"byte order b'\xff\xff"),
        (bombs.long_function_name, "names " + "a" * 50),
        (bombs.long_names, "a.pth: " + "a" * 50),
        (bombs.long_numbers_in_names, "has the impossible shape (1,)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_messages_are_short(bomb, message, tmp_path):
    text = refused(tmp_path / "a.pth", bomb())
    assert message in text or " ... " in text


@pytest.mark.parametrize(
    "name", ["\x1b[2J", "a\nb", "\u202egpj", "\ud800", "x" * 60_000]
)
@pytest.mark.parametrize("writer", seed_files.WRITERS)
def test_names_out_of_a_file_are_shown_safely(name, writer, tmp_path):
    array = np.zeros(2, "float32")
    assert "left over" in refused(tmp_path / "a.pth", writer({**CCT, name: array}))
    assert "some names are" in refused(tmp_path / "a.pth", writer({name: array}))


def test_notes_show_names_safely(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="cct_keras")
    path, name = tmp_path / "a.safetensors", "decoder." + "x" * 10**5 + "\x1b[2J"
    state = seed_files.state_of("bodies/vit_body")
    path.write_bytes(files.as_safetensors({**state, name: np.zeros(1, "float32")}))
    open_checkpoint(path)
    notes = [record.getMessage() for record in caplog.records]
    assert any(note.startswith("not needed: ") for note in notes)
    for note in notes:
        assert note.isprintable()
        assert len(note) < 500


# === safetensors ===


def header_of(**changes):
    row = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return {"a": {name: value for name, value in row.items() if value is not ...}}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": 1}, "a: the safetensors header has no such row"),
        ({"__metadata__": 3, **header_of()}, "the metadata of the safetensors header"),
        ({"__metadata__": [["a", 1]], **header_of()}, "metadata"),
        (header_of(dtype=[]), "tensors of type that is no text"),
        (header_of(dtype="F8_E4M3"), "tensors of type F8_E4M3 are not supported"),
        (header_of(shape=...), "a has an impossible shape"),
        (header_of(shape=[True, 2]), "a has an impossible shape"),
        (header_of(shape=[2.0]), "a has an impossible shape"),
        (header_of(shape=[1] * 8 + [2]), "a has an impossible shape"),
        (header_of(shape=[0, 2**60], data_offsets=[0, 0]), "an impossible shape"),
        (header_of(shape=[0, *[2**40] * 2], data_offsets=[0, 0]), "impossible shape"),
        (header_of(data_offsets=[0]), "a has impossible offsets"),
        (header_of(data_offsets=[0, 8, 8]), "a has impossible offsets"),
        (header_of(data_offsets=[0.0, 8.0]), "a has impossible offsets"),
        (header_of(data_offsets={"0": 8}), "a has impossible offsets"),
    ],
)
def test_rows_of_a_safetensors_header(header, message, tmp_path):
    path = tmp_path / "a.safetensors"
    assert message in refused(path, files.safetensors(header, bytes(8)))


# === npz ===


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"descr": "'|O'"}, "refused: x.npy is a pickle; nothing was run"),
        ({"descr": "[('a', '<f4'), ('b', '|O')]"}, "no array of plain numbers"),
        ({"descr": "('<f4', (2,))"}, "no array of plain numbers"),
        ({"descr": "'|S0'"}, "no array of plain numbers"),
        ({"descr": "'<q9'"}, "x.npy is no array of NumPy"),
        ({"descr": "'|V214748364'"}, "truncated: x.npy"),
        ({"shape": "(-2,)"}, "x.npy has an impossible shape"),
        ({"shape": "(True,)"}, "x.npy has an impossible shape"),
        ({"shape": "(" + "1, " * 9 + ")"}, "x.npy has an impossible shape"),
        ({"shape": "(" + "9" * 5000 + ",)"}, "x.npy has an impossible shape"),
        ({"shape": "(0, 99999999, 99999999)"}, "x.npy has an impossible shape"),
        ({"fortran": "1"}, "no array of plain numbers"),
    ],
)
def test_headers_of_arrays(parts, message, tmp_path):
    content = files.npy(files.npy_header(**parts), bytes(8))
    assert message in refused(tmp_path / "a.npz", files.zip_of([("x.npy", content)]))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
        "{'shape': (2L, 3L), 'fortran_order': False, 'descr': '<f4'}",
        "{'descr':'<f4','fortran_order':False,'shape':(2,3)}" + " " * 30,
    ],
)
@pytest.mark.parametrize("version", [b"\1\0", b"\2\0", b"\3\0"])
def test_headers_as_others_write_them(header, version, tmp_path):
    array = np.arange(6, dtype="float32").reshape(2, 3)
    content = files.npy(header, array.tobytes(), version)
    path = tmp_path / "a.npz"
    path.write_bytes(files.zip_of([("x.npy", content)]))
    assert np.array_equal(open_checkpoint(path).tensors["x"], array)


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.ones((2, 3), ">f2")), np.ones(())]
)
def test_arrays_as_numpy_writes_them(array, tmp_path):
    np.savez(tmp_path / "a.npz", x=array, y=np.arange(6.0))
    found = open_checkpoint(tmp_path / "a.npz").tensors["x"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


# === Records ===


def with_record(path, **changes):
    record = {**seed_files.RECORD}
    for name, value in changes.items():
        whole = record if name in record else record["arguments"]
        if whole is not record:
            record["arguments"] = {**whole, name: value}
        else:
            record[name] = value
    path.write_bytes(files.as_safetensors(CCT, {"cct_keras": json.dumps(record)}))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"stride": "x"},
        {"stride": 10**30},
        {"stride": True},
        {"pooling_stride": None},
        {"pooling_padding": -1},
        {"num_heads": 2.0},
        {"activation": "x"},
        {"activation": []},
        {"top_pooling": {}},
        {"epsilon": 0},
        {"input_shape": [-8, 8, 3]},
        {"input_shape": ["8", 8, 3]},
        {"grid": ["4", "4"]},
        {"grid": [16]},
        {"grid": "ab"},
        {"family": []},
    ],
)
def test_where_a_record_is_broken_the_tensors_decide(changes, tmp_path):
    """As if there were none, also of an unknown family."""
    checkpoint = open_checkpoint(with_record(tmp_path / "a.safetensors", **changes))
    assert checkpoint.record is None
    architecture = infer(checkpoint, None, {"num_heads": 2})
    assert architecture.arguments["input_shape"] == (8, 8, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "num_heads=3, which do not divide embedding_dim=8"),
        ({"input_shape": [80, 8, 3]}, "the file records images of 80 x 8 pixels"),
        ({"stride": 2}, "the file records images of 8 x 8 pixels"),
    ],
)
def test_a_record_that_no_model_has_is_refused(changes, message, tmp_path):
    path = with_record(tmp_path / "a.safetensors", **changes)
    with pytest.raises(CheckpointError, match=message):
        cct_keras.convert(path)


def test_a_record_is_read(tmp_path):
    path = with_record(tmp_path / "a.safetensors", activation="relu")
    assert open_checkpoint(path).record.activation == "relu"


# === Tables of names ===


def test_parts_of_attention_that_are_single_numbers(tmp_path):
    state = seed_files.state_of("plain_vits/dinov2")
    name = next(name for name in state if "k_proj.bias" in name)
    state[name] = np.float32(1).reshape(())
    message = refused(tmp_path / "a.safetensors", files.as_safetensors(state))
    assert "blocks.0.attn.qkv.bias is made of (32,), (), (32,)" in message


def test_kernels_of_google_without_elements(tmp_path):
    state = seed_files.state_of("google")
    name = next(name for name in state if name.endswith("query/kernel"))
    state[name] = state[name][:0]
    message = refused(tmp_path / "a.npz", files.as_npz(state))
    assert f"{name} has the impossible shape (0, 2, 8)" in message


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_positions_that_are_no_numbers_need_no_warning(kind, value, tmp_path):
    """Warnings are errors in tests."""
    name = "classifier.positional_emb"
    with np.errstate(all="ignore"):
        state = {**CCT, name: np.full_like(CCT[name], value, dtype=kind)}
    # A number that signals when it is computed with.
    state[name].view("u1")[..., :8] = np.frombuffer(b"\1\0\xa0\x7f\1\0\xf0\x7f", "u1")
    path = tmp_path / "a.safetensors"
    path.write_bytes(files.as_safetensors(state))
    architecture = infer(open_checkpoint(path), None, {"num_heads": 2})
    assert architecture.arguments["positional_embedding"] == "learnable"


# === Zip files ===


@pytest.mark.parametrize("cut", [1, 20, 1000])
def test_archives_whose_start_is_gone(cut, tmp_path):
    content = files.as_torch_zip(CCT)
    content = content[:4] + content[4 + cut :]
    refused(tmp_path / "a.pth", content)


def test_members_outside_of_the_archive(tmp_path):
    content = bytearray(files.as_torch_zip(CCT))
    place = content.index(b"PK\1\2") + 42
    content[place : place + 4] = b"\xff\xff\xff\x7f"
    assert "broken" in refused(tmp_path / "a.pth", bytes(content))
