"""Small files that ask for much: memory, time, or a long message.

Each is a function without arguments that makes the bytes of a file. Those of the first
kind are packed, so that a few kilobytes become many megabytes; the others are as large
as they are, and every byte of them is meant to cost as much as it can.
"""

import io
import json
import struct
import zipfile

import file_writers as files
import numpy as np
import seed_files

LARGE = 2**22
# As much as readers take: of a header of JSON, of a directory, of what was packed.
HEADER, DIRECTORY, PACKED = 900_000, 3_000_000, 10 * 2**20
PRIME = 2**61 - 1
DEFLATED = zipfile.ZIP_DEFLATED
CALL_ORDERED_DICT = files.global_("collections", "OrderedDict")


def packed_pickle(body: bytes) -> bytes:
    """A file of torch with these opcodes, compressed."""
    return files.zip_of([("a/data.pkl", files.pickled(body))], DEFLATED)


def packed(content: bytes, name: str = "a.pth") -> bytes:
    """A zip file with a file inside."""
    return files.zip_of([(name, content)], DEFLATED)


# === Packed ===


def empty_dictionaries():
    return packed_pickle(b"}" * (2**26 - 1000))


def memo_entries():
    return packed_pickle(b"}" + b"\x94" * PACKED)


def marks():
    return packed_pickle(b"(" * PACKED)


def deep_tuples():
    return packed_pickle(b")" + b"\x85" * PACKED)


def long_strings():
    # One letter that needs four bytes makes all others need them.
    text = files.text("\U0001f600" + "a" * (PACKED // 10))
    return packed_pickle(b"}" + (text + b"Ns") * 4)


def long_frame():
    return packed_pickle(
        b"\x95" + struct.pack("<Q", PACKED // 3) + b"}" * (PACKED // 3)
    )


def strings_in_a_packed_legacy_file():
    return packed(files.legacy(b"}" + files.text("é" * 2**21) + b"Ns", []))


def zip_in_zip():
    """Each layer declares as much as it may."""
    zeros = bytes(PACKED)
    body = files.mapping({"x": files.tensor("0", "ByteStorage", 9, (9,), (1,))})
    inner = [("a/data.pkl", files.pickled(body)), ("a/data/0", zeros)]
    return packed(files.zip_of(inner))


def storages_like_folders():
    """Their sizes were not part of the declared sum."""
    body, members = {}, []
    for key in range(4):
        body[f"x{key}"] = files.tensor(f"{key}/", "ByteStorage", 9, (9,), (1,))
        members.append((f"a/data/{key}/", bytes(2**24)))
    pickled = files.pickled(files.mapping(body))
    return files.zip_of([("a/data.pkl", pickled), *members], DEFLATED)


def packed_array():
    return files.as_npz({"x": np.zeros(7 * 2**20, "float32")}, DEFLATED)


def packed_arrays_that_are_joined():
    """As much as is allowed, then copied by a table of names."""
    state = seed_files.state_of("plain_vits/dinov2")
    wide = np.zeros((1400, 1400), "float32")
    parts = [name for name in state if "q_proj.weight" in name][:1]
    for part in parts:
        for letter in "qkv":
            state[part.replace("q_proj", f"{letter}_proj")] = wide
    return files.as_npz(state, DEFLATED)


def packed_bfloat16():
    size = 2**21
    header = {"x": {"dtype": "BF16", "shape": [size], "data_offsets": [0, 2 * size]}}
    return packed(files.safetensors(header, bytes(2 * size)))


def packed_directory():
    return packed(many_members(DIRECTORY // 100))


# === As large as they are ===


def many_dictionaries():
    return files.legacy(b"}" * LARGE, [])


def many_memo_entries():
    return files.legacy(b"}" + b"\x94" * LARGE, [])


def many_members(count=DIRECTORY // 47):
    """The directory alone; its members lie all in one place."""
    fixed = struct.pack("<4B4H3L5H2L", *[20, 0] * 2, *[0] * 7, 1, *[0] * 6)
    entries = (b"PK\1\2" + fixed + b"a") * count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *[count % 65536] * 2, 0, 4, 0)
    end = end[:12] + struct.pack("<2LH", len(entries), 4, 0)
    return b"PK\3\4" + entries + end


def long_extra_fields():
    """Each is a list of fields without content, which are cut off one by one."""
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as archive:
            for number in range(LARGE // 2**16):
                info = zipfile.ZipInfo(f"{number}.npy", (2020, 1, 1, 0, 0, 0))
                info.extra = b"\xff\xff\0\0" * (2**14 - 100)
                archive.writestr(info, b"")
        return buffer.getvalue()


def header_of_lists():
    return files.safetensors(b'{"a":[' + b"[]," * (HEADER // 3) + b"0]}")


def header_of_mappings():
    return files.safetensors(b'{"a":[' + b'{"":0},' * (HEADER // 7) + b"0]}")


def header_of_rows():
    row = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return files.safetensors({f"x{i}": row for i in range(HEADER // 70)})


def deep_header():
    return files.safetensors(b'{"a":' + b"[" * HEADER)


def many_dimensions():
    """A product of 200 numbers of 4,000 digits."""
    shape = ",".join(["9" * 4000] * 200)
    row = '{"dtype":"F32","shape":[' + shape + '],"data_offsets":[0,4]}'
    return files.safetensors(('{"a":' + row + "}").encode(), bytes(4))


def deep_record():
    return files.as_safetensors(
        seed_files.state_of("cct"), {"cct_keras": "[" * (HEADER // 2)}
    )


def record_of_long_numbers():
    record = json.dumps(seed_files.RECORD)
    record = record.replace('"stride": 1', '"stride": ' + "9" * 4000)
    return files.as_safetensors(seed_files.state_of("cct"), {"cct_keras": record})


def keys_of_one_hash():
    pairs = b"".join(files.number(PRIME * k) + b"N" for k in range(1, LARGE // 40))
    return files.legacy(b"}(" + pairs + b"u", [])


def one_list_of_pairs_often():
    pairs = b"](" + b"".join(files.text(chr(i)) + b"N\x86" for i in range(300, 20_300))
    again = b"(" + (CALL_ORDERED_DICT + b"h\1\x85R") * 5000 + b"t"
    return files.torch_zip(pairs + b"eq\1" + again, {})


def one_mapping_of_pairs_often():
    names = b"".join(files.text(f"{chr(i)}{chr(i)}") + b"N" for i in range(300, 20_300))
    again = b"(" + (CALL_ORDERED_DICT + b"h\1\x85R") * 5000 + b"t"
    return files.torch_zip(b"}(" + names + b"uq\1" + again, {})


def pairs_by_way_of_a_type():
    pairs = b"](" + b"".join(files.text(chr(i)) + b"N\x86" for i in range(300, 20_300))
    rebuild = files.global_("torch._tensor", "_rebuild_from_type_v2")
    one = rebuild + b"(" + CALL_ORDERED_DICT + b"Nh\1\x85NtR"
    return files.torch_zip(pairs + b"eq\1" + b"(" + one * 3000 + b"t", {})


def many_arguments_by_way_of_a_type():
    arguments = b"](" + b"N" * 100_000 + b"eq\1"
    rebuild = files.global_("torch._tensor", "_rebuild_from_type_v2")
    parameter = files.global_("torch._utils", "_rebuild_parameter")
    one = rebuild + b"(" + parameter + b"Nh\1NtR"
    return files.torch_zip(arguments + b"(" + one * 10_000 + b"t", {})


def calls_in_calls():
    """A call whose argument is a call, and so on, 300 deep and a thousand times."""
    rebuild = files.global_("torch._tensor", "_rebuild_from_type_v2") + b"q\2"
    start = b"(" + CALL_ORDERED_DICT + b"N)Ntq\1"
    deeper = b"(h\2Nh\1Ntq\1" * 300
    return files.torch_zip(rebuild + start + deeper + b"(" + b"h\2h\1R" * 20_000, {})


def shared_tuples_as_storages():
    """Shown, they would be 2**60 characters."""
    shared = b"".join(b"0h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))
    start = files.legacy(b"}", [])
    keys = files.pickled(b"](" + b")q\0" + shared + b"e")
    return start[: -len(files.pickled(b"](e"))] + keys


def long_names():
    """Of everything that messages name."""
    return files.safetensors({"a" * HEADER: {"dtype": "F32", "shape": [1]}})


def long_function_name():
    return files.torch_zip(files.global_("a" * LARGE, "b" * LARGE), {})


def long_byte_order():
    members = [("a/data.pkl", files.pickled(b"}")), ("a/byteorder", b"\xff" * LARGE)]
    return files.zip_of(members)


def storages_in_one_place():
    """Each is read from its start on, as far as its first tensor says.

    The last tensor that is looked at tells where the next storage starts.
    """
    keys, half = [str(key) for key in range(60)], LARGE // 2
    long = {key: files.tensor(key, "ByteStorage", half, (1,), (1,)) for key in keys}
    short = {key: files.tensor(key, "ByteStorage", 1, (1,), (1,)) for key in keys}
    entries = {"a": files.mapping(long) + b"q\5", **short, "b": b"h\5"}
    storages = [(key, 1, b"0") for key in keys]
    return files.legacy(files.mapping(entries), storages) + bytes(LARGE)


def one_member_often():
    """Entries of the directory that all lie in one place."""
    content = files.zip_of([("a/data/0000", bytes(LARGE))])
    start, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
    entry, count = content[start:end], 60
    tensors = {
        f"x{i}": files.tensor(f"{i:04}", "ByteStorage", LARGE, (LARGE,), (1,))
        for i in range(count)
    }
    pickled = files.zip_of([("a/data.pkl", files.pickled(files.mapping(tensors)))])
    first, last = pickled.index(b"PK\1\2"), pickled.index(b"PK\5\6")
    own = bytearray(pickled[first:last])
    own[42:46] = struct.pack("<L", start)
    entries = bytes(own) + b"".join(
        entry.replace(b"0000", b"%04d" % i) for i in range(count)
    )
    place = start + first
    sizes = struct.pack("<2LH", len(entries), place, 0)
    finish = b"PK\5\6" + struct.pack("<4H", 0, 0, count + 1, count + 1) + sizes
    return content[:start] + pickled[:first] + entries + finish


def views_of_one_storage():
    """Each is the whole; a table of names copies them."""
    side = 1024
    body = {
        f"embeddings.x{i}": files.tensor(
            "0", "ByteStorage", LARGE, (side, side), (side, 1), offset=i
        )
        for i in range(2000)
    }
    return files.torch_zip(files.mapping(body), {"0": bytes(LARGE)})


def expanded():
    """One number, said to be many."""
    body = files.mapping(
        {"x": files.tensor("0", "FloatStorage", 1, (2**15, 2**15), (0, 0))}
    )
    return files.torch_zip(body, {"0": bytes(4)})


def many_blocks():
    """As many names as are looked for, of blocks that are nearly complete."""
    block = {k: x for k, x in seed_files.state_of("deit").items() if "blocks.0." in k}
    state = {k: x for k, x in seed_files.state_of("deit").items() if "block" not in k}
    for index in range(9900 // len(block)):
        state |= {
            k.replace("blocks.0.", f"blocks.{index}."): x for k, x in block.items()
        }
    return files.as_safetensors(state)


def many_stages():
    """Images of 2**60 pixels a side."""
    state, name = seed_files.state_of("cct"), "tokenizer.conv_layers.{}.0.weight"
    state[name.format(0)] = np.zeros((64, 3, 1, 1), "float32")
    for stage in range(1, 58):
        state[name.format(stage)] = np.zeros((64, 64, 1, 1), "float32")
    state[name.format(58)] = np.zeros((8, 64, 1, 1), "float32")
    return files.as_safetensors(state)


def many_names_of_transformers():
    """Each is compared with every name that there is."""
    many = np.zeros(1, "float32")
    names = [f"vit.encoder.layer.{i}.x" for i in range(9990)]
    state = {"vit.embeddings.x": many} | dict.fromkeys(names, many)
    return files.as_torch_zip(state)


def long_numbers_in_names():
    array = files.tensor("0", "FloatStorage", 1, (1,), (1,))
    digits = "9" * (LARGE // 4)
    names = (f"vit.encoder.layer.{digits}.x", f"blocks.{digits}.norm1.weight")
    needed = [f"vit.embeddings.{x}" for x in ("cls_token", "position_embeddings")]
    body = files.mapping(dict.fromkeys((*names, *needed), array))
    return files.torch_zip(body, {"0": bytes(4)})


def many_positions():
    """In the smallest type, and the sinusoid, so that all of them are compared."""
    state = {k: x for k, x in seed_files.state_of("cct").items() if "emb" not in k}
    sine = np.zeros((1, 2**19, 8), "int8")
    sine[..., 1::2] = 1
    return files.as_safetensors({**state, "classifier.positional_emb": sine})


BOMBS = (
    empty_dictionaries,
    memo_entries,
    marks,
    deep_tuples,
    long_strings,
    long_frame,
    strings_in_a_packed_legacy_file,
    zip_in_zip,
    storages_like_folders,
    packed_array,
    packed_arrays_that_are_joined,
    packed_bfloat16,
    packed_directory,
    many_dictionaries,
    many_memo_entries,
    many_members,
    long_extra_fields,
    header_of_lists,
    header_of_mappings,
    header_of_rows,
    deep_header,
    many_dimensions,
    deep_record,
    record_of_long_numbers,
    keys_of_one_hash,
    one_list_of_pairs_often,
    one_mapping_of_pairs_often,
    pairs_by_way_of_a_type,
    many_arguments_by_way_of_a_type,
    calls_in_calls,
    shared_tuples_as_storages,
    long_names,
    long_function_name,
    long_byte_order,
    storages_in_one_place,
    one_member_often,
    views_of_one_storage,
    expanded,
    many_blocks,
    many_stages,
    many_names_of_transformers,
    long_numbers_in_names,
    many_positions,
)
