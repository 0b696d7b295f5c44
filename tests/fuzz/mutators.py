"""Ways to damage a file, by chance or with intent.

A mutator takes a `random.Random` and makes bytes: of a file, of the pickle or header in
it, or of a state dict by way of a writer. `make_case` chooses among them, always the
same for one seed and number.
"""

import copy
import io
import json
import math
import pickle
import pickletools
import random
import struct
import zipfile

import file_writers as files
import numpy as np
import seed_files

# What would run, write or read if a reader called it.
DANGEROUS = (
    ("os", "system"),
    ("posix", "system"),
    ("nt", "system"),
    ("subprocess", "Popen"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("builtins", "__import__"),
    ("builtins", "getattr"),
    ("builtins", "open"),
    ("__builtin__", "eval"),
    ("functools", "partial"),
    ("functools", "reduce"),
    ("operator", "attrgetter"),
    ("operator", "methodcaller"),
    ("importlib", "import_module"),
    ("runpy", "run_path"),
    ("types", "FunctionType"),
    ("marshal", "loads"),
    ("pickle", "loads"),
    ("torch", "load"),
    ("torch.storage", "_load_from_bytes"),
    ("torch.hub", "load"),
    ("torch.nn.modules.linear", "Linear"),
    ("numpy", "load"),
    ("numpy.dtypes", "os.system"),
    ("collections", "OrderedDict.__class__"),
    ("torch._utils", "_rebuild_tensor_v2.__globals__"),
    ("argparse", "_sys.modules"),
    ("pathlib", "os.system"),
    ("__main__", "Model"),
    ("", ""),
    ("..", "x" * 300),
    ("os\x1b[2J", "sys\x07tem"),
)
ALLOWED = (
    ("collections", "OrderedDict"),
    ("torch", "Size"),
    ("torch._utils", "_rebuild_tensor"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_parameter_with_state"),
    ("torch._tensor", "_rebuild_from_type_v2"),
    ("torch", "FloatStorage"),
    ("torch", "ComplexFloatStorage"),
    ("torch", "float32"),
    ("torch", "bfloat16"),
    ("torch.nn.parameter", "Parameter"),
    ("argparse", "Namespace"),
    ("builtins", "set"),
    ("collections", "defaultdict"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
)
COMMANDS = ("touch CANARY", "open('CANARY', 'w')", "import os; os.mkdir('CANARY')")
# MARK, the empty containers, tuples, calls, states, items, references, memo, the stack.
OPCODES = [bytes([x]) for x in b"(]})\x8f\x85\x86\x87tR\x81\x92bsuae\x90\x91Q02\x941.N"]
OLD_OPCODES = (
    b"I1\n",
    b"L1L\n",
    b"S'a'\n",
    b"Va\n",
    b"F1\n",
    b"P0\n",
    b"g0\n",
    b"p0\n",
)
NUMBERS = (
    *(-1, 0, 1, 2, 3, 7, 255, 256, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32),
    *(2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**18, 10**30, -(2**63)),
)
NAMES = (
    *(
        "",
        ".",
        "/",
        "..",
        "0",
        "weight",
        "\n",
        "\x1b[2J",
        "\u202egpj",
        "é" * 50,
        "\ud800",
    ),
    *("a" * 5000, "blocks.", "blocks.٣.norm1.weight", "blocks." + "9" * 5000),
    *(
        "__metadata__",
        "cct_keras",
        "__proto__",
        "constructor",
        "%s%n",
        "{0}",
        "\\",
        "(",
    ),
    "cct.embedder.embedding_layers.99999999999999999999.weight",
    "classifier.blocks.-1.norm1.weight",
    "Transformer/encoderblock_00/LayerNorm_0/scale",
    "blocks.0.1.2.3.norm1.weight",
)
PREFIXES = (
    *("module.", "model.", "_orig_mod.", "net.", "student.", "teacher.", "visual."),
    *("visual.trunk.", "backbone.", "vit.", "deit.", "vision_model.", "text.", "cct."),
)
TYPES = (
    *("float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    "complex64",
)


# === Bytes ===


def damage_bytes(rng: random.Random, content: bytes) -> bytes:
    """What disks, networks and editors do."""
    data = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        place, length = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 64, 1024))
        kind = rng.randrange(9)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            del data[place : place + length]
        elif kind == 4:
            source = rng.randrange(len(data))
            data[place:place] = data[source : source + length]
        elif kind == 5:
            data[place : place + length] = rng.randbytes(length)
        elif kind == 6:
            size = rng.choice((2, 4, 8))
            value = rng.choice(NUMBERS) % 256**size
            data[place : place + size] = value.to_bytes(size, "little")
        elif kind == 7:
            # The first and last bytes tell what a file is.
            data[rng.randrange(min(64, len(data)))] = rng.randrange(256)
        else:
            data[-rng.randrange(1, min(64, len(data)) + 1)] = rng.randrange(256)
        if not data:
            return b""
    return bytes(data)


def splice(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """The start of one file and the end of another."""
    place = rng.randrange(len(content) + 1)
    return content[:place] + other[rng.randrange(len(other) + 1) :]


# === Pickles ===


def _value(rng, depth=0):
    """The opcodes of any value."""
    kind = rng.randrange(13)
    if kind == 0:
        return files.number(rng.choice(NUMBERS))
    if kind == 1:
        return files.text(rng.choice(NAMES))
    if kind == 2:
        return rng.choice((b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f"))
    if kind == 3:
        return files.global_(*rng.choice(ALLOWED))
    if kind == 4:
        key, shape = str(rng.randrange(4)), _shape(rng)
        count = rng.choice((0, 1, 6, 100, *NUMBERS))
        kinds = (
            *files.STORAGES.values(),
            "UntypedStorage",
            "BFloat16Storage",
            "Tensor",
        )
        steps = _shape(rng) if rng.random() < 0.5 else [0] * len(shape)
        return files.tensor(key, rng.choice(kinds), count, shape, steps)
    if kind == 5:
        return files.storage(rng.choice(NAMES), "FloatStorage", rng.choice(NUMBERS))
    if kind == 6:
        return b"G" + struct.pack(">d", rng.choice((0.0, 1e308, math.nan, math.inf)))
    if kind == 7 or depth > 3:
        return b"h" + bytes([rng.randrange(256)])
    if kind == 8:
        values = b"".join(_value(rng, depth + 1) for _ in range(rng.randrange(4)))
        return b"(" + values + rng.choice((b"t", b"l", b"d"))
    if kind == 9:
        values = (_value(rng, depth + 1) for _ in range(rng.randrange(4)))
        return b"](" + b"".join(values) + b"e"
    if kind == 10:
        pairs = {rng.choice(NAMES): _value(rng, depth + 1) for _ in range(2)}
        return files.mapping(pairs)
    if kind == 11:
        return call(rng, rng.choice(ALLOWED), depth)
    return rng.choice((b"C\x03abc", b"U\x03abc", b"B\x02\0\0\0ab", b"\x8c\x02ab"))


def _shape(rng):
    return [rng.choice((0, 1, 2, 3, 8, *NUMBERS)) for _ in range(rng.randrange(10))]


def call(rng: random.Random, function: tuple[str, str], depth: int = 0) -> bytes:
    """A call of a function by one of the ways there are, with some arguments."""
    module, name = function
    if rng.random() < 0.5:
        arguments = files.text(rng.choice(COMMANDS))
    else:
        arguments = b"".join(_value(rng, depth + 1) for _ in range(rng.randrange(4)))
    found = files.global_(module, name)
    if rng.random() < 0.3:
        found = files.text(module) + files.text(name) + b"\x93"
    kind = rng.randrange(6)
    if kind == 0:
        return found + b"(" + arguments + b"t\x81"
    if kind == 1:
        return found + b"(" + arguments + b"t}\x92"
    if kind == 2:
        return b"(" + found + arguments + b"o"
    if kind == 3:
        return b"(" + arguments + b"i" + found[1:] if found[:1] == b"c" else found
    if kind == 4:
        state = files.text("__setstate__") + found + b"s"
        return found + b")\x81}" + state + b"b"
    return found + b"(" + arguments + b"tR"


def _bomb(rng):
    """Opcodes that make far more of themselves than they are."""
    size = 2 ** rng.randrange(4, 15)
    kind = rng.randrange(11)
    if kind == 0:
        return b"}" * size
    if kind == 1:
        return b"N" + b"\x94" * size
    if kind == 2:
        return b"(" * size
    if kind == 3:
        return b")" + b"\x85" * size
    if kind == 4:
        return b"]" + b"\x942" * rng.randrange(20) + b"(" + b"h\0" * size + b"e"
    if kind == 5:
        shared = b"".join(
            b"h%c" % i + b"h%c" % i + b"\x86q%c" % (i + 1) for i in range(60)
        )
        return b")q\0" + shared
    if kind == 6:
        length = rng.choice((2**20, 2**31 - 1, 2**31, 2**32 - 1))
        return rng.choice((b"X", b"T", b"B")) + struct.pack("<I", length) + b"abc"
    if kind == 7:
        length = rng.choice((2**20, 2**32, 2**40, 2**62, 2**63, 2**64 - 1))
        return rng.choice((b"\x8d", b"\x8e", b"\x95")) + struct.pack("<Q", length)
    if kind == 8:
        return b"Nr" + struct.pack("<I", rng.choice((2**20, 2**31, 2**32 - 1)))
    if kind == 9:
        # Numbers that all have the same hash, as keys.
        prime = 2**61 - 1
        pairs = (files.number(prime * k) + b"N" for k in range(1, min(size, 2000)))
        return b"}(" + b"".join(pairs) + b"u"
    pairs = b"](" + b"K\x01K\x02\x86" * min(size, 1000) + b"eq\1"
    repeated = (files.global_("collections", "OrderedDict") + b"h\1\x85R") * 8
    return pairs + repeated


def damage_pickle(rng: random.Random, content: bytes) -> bytes:
    """A pickle whose opcodes are left out, doubled, moved, replaced or added."""
    try:
        places = [place for _, _, place in pickletools.genops(content)]
    except Exception:
        return damage_bytes(rng, content)
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        index = rng.randrange(len(places))
        place = min(places[index], len(data))
        after = places[index + 1] if index + 1 < len(places) else len(data)
        kind = rng.randrange(10)
        if kind == 0:
            del data[place:after]
        elif kind == 1:
            data[place:place] = data[place:after]
        elif kind == 2:
            source = rng.randrange(len(places) - 1) if len(places) > 1 else 0
            last = min(len(places) - 1, source + rng.randrange(1, 20))
            data[place:place] = data[places[source] : places[last]]
        elif kind == 3:
            data[place:after] = _value(rng)
        elif kind == 4:
            data[place:place] = _value(rng)
        elif kind == 5:
            data[place:place] = rng.choice((*OPCODES, *OLD_OPCODES))
        elif kind in (6, 7):
            data[place:place] = call(rng, rng.choice(DANGEROUS))
        elif kind == 8:
            data[place:place] = _bomb(rng)
        else:
            data[place:after] = rng.choice(OPCODES)
    return bytes(data)


def fresh_pickle(rng: random.Random) -> bytes:
    """A mapping of strange names to strange values."""
    items = {rng.choice(NAMES): _value(rng) for _ in range(rng.randrange(1, 5))}
    if rng.random() < 0.2:
        items["weight"] = call(rng, rng.choice(DANGEROUS))
    if rng.random() < 0.3:
        items["bomb"] = _bomb(rng)
    body = files.mapping(items)
    if rng.random() < 0.3:
        body = files.mapping({"state_dict": body, "epoch": _value(rng)})
    return files.pickled(body)


def in_training_file(rng: random.Random, content: bytes, edit) -> bytes:
    """A file of torch, of either format, with another pickle."""
    if content[:2] == b"PK":
        return edit_members(
            content, lambda name, data: edit(data) if name.endswith(".pkl") else data
        )
    stream = io.BytesIO(content)
    parts = []
    try:
        for _ in range(5):
            start = stream.tell()
            for _ in pickletools.genops(stream):
                pass
            parts.append(content[start : stream.tell()])
    except Exception:
        return edit(content)
    number = rng.choice((0, 1, 2, 3, 3, 3, 3, 4)) % len(parts)
    parts[number] = edit(parts[number])
    return b"".join(parts) + content[stream.tell() :]


# === Zip files ===


def members_of(content: bytes) -> list[tuple[str, bytes]]:
    """The members of a zip file that is not broken."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = []
        for info in archive.infolist():
            # Some of torch's own have no checksum.
            info.CRC = None
            with archive.open(info) as member:
                member._expected_crc = None
                found.append((info.filename, member.read()))
        return found


def edit_members(content: bytes, edit) -> bytes:
    """A zip file whose members went through a function of their names and contents."""
    members = members_of(content)
    return files.zip_of([(name, edit(name, data)) for name, data in members])


def damage_zip(rng: random.Random, content: bytes) -> bytes:
    """Other names, sizes, orders and methods; members missing, doubled or nested."""
    members = members_of(content)
    for _ in range(rng.choice((1, 1, 2))):
        index = rng.randrange(len(members))
        name, data = members[index]
        kind = rng.randrange(11)
        if kind == 0:
            del members[index]
        elif kind == 1:
            members.append((name, rng.choice((data, b"", data[: len(data) // 2]))))
        elif kind == 2:
            members[index] = rng.choice(NAMES).replace("\ud800", "") or "x", data
        elif kind == 3:
            members[index] = name + "/", data
        elif kind == 4:
            wrong = (b"big", b"", b"little\n", b"\xff" * 9000, rng.randbytes(20))
            members.append((name.split("/")[0] + "/byteorder", rng.choice(wrong)))
        elif kind == 5:
            members.append((name.split("/")[0] + "/version", rng.randbytes(4)))
        elif kind == 6:
            members[index] = name, damage_bytes(rng, data)
        elif kind == 7:
            members = [(rng.choice(("a.pth", "a.zip", "data.pkl", "a.npy")), content)]
        elif kind == 8:
            members.append((f"a/b{rng.randrange(9)}/data.pkl", data))
        elif kind == 9:
            members.append(("__MACOSX/" + name, data))
        else:
            members.append((rng.choice(NAMES[:6]) + "/constants.pkl", b""))
        if not members:
            return files.zip_of([])
    methods = (zipfile.ZIP_STORED,) * 3 + (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
    whole = bytearray(files.zip_of(members, rng.choice(methods)))
    if rng.random() < 0.5:
        _damage_records(rng, whole)
    return bytes(whole)


def _damage_records(rng, whole):
    """The fields of a header, of the directory or of its end."""
    signature = rng.choice((b"PK\1\2", b"PK\1\2", b"PK\3\4", b"PK\5\6"))
    places = []
    place = whole.find(signature)
    while place >= 0:
        places.append(place)
        place = whole.find(signature, place + 1)
    place = rng.choice(places or [0]) + rng.choice((*range(4, 46, 2), 20, 24, 24, 42))
    size = rng.choice((1, 2, 4))
    value = rng.choice((rng.randrange(256), *NUMBERS)) % 256**size
    whole[place : place + size] = value.to_bytes(size, "little")


# === safetensors ===


def damage_safetensors(rng: random.Random, state: dict) -> bytes:
    """Other types, shapes, offsets, metadata and depths in the header."""
    data = b"".join(array.tobytes() for array in state.values())
    header = files.safetensors_header(state)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(header))
        row = header[name] if isinstance(header[name], dict) else {}
        kind = rng.randrange(13)
        if kind == 0:
            row["dtype"] = rng.choice(
                ("F64", "BF16", "BOOL", "F8_E4M3", "", "x" * 9999, None, 3, [], {})
            )
        elif kind == 1:
            row["shape"] = _shape(rng)
        elif kind == 2:
            row["shape"] = rng.choice(("x", None, {}, [[2]], [2.5], [True], ["2"], 3))
        elif kind == 3:
            row["data_offsets"] = [rng.choice(NUMBERS), rng.choice(NUMBERS)]
        elif kind == 4:
            row["data_offsets"] = rng.choice(
                ([], [0], [0, 1, 2], None, "ab", {}, [[], []], [0.0, 4.0], [None, 1])
            )
        elif kind == 5:
            header["__metadata__"] = rng.choice(
                (None, [], "x", 3, {"a": 1}, {"a": {}}, [["a", 1]], {"": ""}, [[]], {})
            )
        elif kind == 6:
            row["shape"] = [int("9" * rng.choice((10, 100, 4000)))] * rng.choice(
                (1, 30)
            )
        elif kind == 7:
            deep = rng.choice((100, 900, 30_000))
            return files.safetensors(b'{"a":' + b"[" * deep + b"]" * deep + b"}", data)
        elif kind == 8:
            header[rng.choice(NAMES)] = header.pop(name)
        elif kind == 9:
            del header[name]
        elif kind == 10:
            header[rng.choice(NAMES)] = copy.deepcopy(row)
        elif kind == 11:
            header[name] = rng.choice((None, [], "x", 3, {}))
        else:
            shape = row.get("shape")
            if isinstance(shape, list):
                row["shape"] = [*shape[::-1], *[1] * rng.randrange(10)]
        if not header:
            break
    text = json.dumps(header).encode()
    if rng.random() < 0.1:
        text = damage_bytes(rng, text)
    content = bytearray(files.safetensors(text, data))
    if rng.random() < 0.1:
        content[:8] = struct.pack("<Q", rng.choice(NUMBERS) % 2**64)
    return bytes(content)


def damage_record(rng: random.Random, state: dict) -> bytes:
    """A file of our own whose record of its architecture is hostile."""
    record = copy.deepcopy(seed_files.RECORD)
    arguments = record["arguments"]
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind = rng.randrange(6)
        if kind == 0:
            record["family"] = rng.choice(
                ("CVT", "ViTLite", "ViT", "DeiT", "x", None, [])
            )
        elif kind == 1:
            record["grid"] = rng.choice(
                (
                    None,
                    [],
                    [4],
                    [4, 4, 4],
                    [16, 1],
                    [-4, -4],
                    [0, 0],
                    ["4", "4"],
                    "ab",
                    16,
                )
            )
        elif kind == 2:
            arguments.pop(rng.choice(list(arguments)), None)
        elif kind == 3:
            wrong = (None, "x", [], {}, 1.5, True, "gelu", [2, 2], *NUMBERS, 10**400)
            arguments[rng.choice(list(arguments))] = rng.choice(wrong)
        elif kind == 4:
            name = rng.choice(
                (
                    "activation",
                    "epsilon",
                    "top_pooling",
                    "final_norm",
                    "layer_scale",
                    "num_registers",
                    "class_token",
                    "distilled",
                    "position_interpolation",
                    "weights",
                    "name",
                    "include_top",
                    "x",
                    "representation_size",
                )
            )
            arguments[name] = rng.choice(
                (
                    None,
                    "relu",
                    "swiglu",
                    "map",
                    "x",
                    1,
                    -1,
                    1e-3,
                    True,
                    [],
                    {},
                    "bicubic",
                )
            )
        else:
            sides = (1, 8, 9, 16, None, 0, -8, 10**9, 10**30, "8", 1.5)
            arguments["input_shape"] = [rng.choice(sides) for _ in range(3)]
    text = json.dumps(record)
    if rng.random() < 0.05:
        text = rng.choice(("", "[]", "null", "[" * 50_000, '{"a":', "9" * 5000, "{}"))
    return files.as_safetensors(state, {"cct_keras": text})


# === npz ===


def damage_npz(rng: random.Random, state: dict) -> bytes:
    """Other shapes, types and orders in the header of an array."""
    members = [[f"{name}.npy", files.as_npy(array)] for name, array in state.items()]
    for _ in range(rng.choice((1, 1, 2))):
        index = rng.randrange(len(members))
        array = list(state.values())[index]
        parts = {"descr": repr(array.dtype.str), "shape": repr(array.shape)}
        version, data = b"\1\0", array.tobytes()
        kind = rng.randrange(8)
        if kind == 0:
            parts["descr"] = rng.choice(
                (
                    "'|O'",
                    "'O'",
                    "[('a', '<f4'), ('b', '|O')]",
                    "('<f4', (2, 2))",
                    "'f4,f4'",
                    "'<V4'",
                    "'|S4'",
                    "'<U1'",
                    "'<c8'",
                    "'>f4'",
                    "'<f16'",
                    "'<M8[ns]'",
                    "''",
                    "'<f4'*9",
                    "'x'",
                    "3",
                    "None",
                    "[]",
                    "{}",
                    "'(99999,99999)f4'",
                    "'|V2147483647'",
                    "'|S0'",
                    "'V0'",
                    "'<f2'",
                    "'|b1'",
                    "'|i1'",
                )
            )
        elif kind == 1:
            parts["shape"] = repr(tuple(_shape(rng)))
        elif kind == 2:
            parts["shape"] = rng.choice(
                (
                    "3",
                    "None",
                    "[2]",
                    "(2.5,)",
                    "('2',)",
                    "(True,)",
                    "()",
                    "((2,),)",
                    "(" + "9" * 5000 + ",)",
                    "(" + "1, " * 3000 + ")",
                    "(0, 10**18)",
                    "(-1,)",
                )
            )
        elif kind == 3:
            parts["fortran"] = rng.choice(("True", "1", "None", "'x'", "[]"))
        elif kind == 4:
            version = rng.choice((b"\2\0", b"\3\0", b"\4\0", b"\0\0", b"\xff\xff"))
        elif kind == 5:
            header = rng.choice(
                (
                    "",
                    "{}",
                    "(" * 9000,
                    "-" * 9000 + "1",
                    "{'descr'",
                    "[" * 200 + "]" * 200,
                    "{'descr': '<f4'}",
                    "__import__('os').system('touch CANARY')",
                    "1+1j",
                    "{**{}}",
                    "'" + "\\N{DIGIT ONE}" * 500 + "'",
                    "0" * 9000,
                )
            )
            members[index][1] = files.npy(header, data)
            continue
        elif kind == 6:
            members[index][1] = pickle.dumps({"a": 1}, 2)
            continue
        else:
            data = data[: rng.randrange(len(data) + 1)]
        header = files.npy_header(**parts)
        members[index][1] = files.npy(header, data, version)
    if rng.random() < 0.2:
        index = rng.randrange(len(members))
        members[index][1] = damage_bytes(rng, members[index][1])
    if rng.random() < 0.1:
        members[rng.randrange(len(members))][0] = rng.choice(
            (".npy", "a/.npy", "x.npy/")
        )
    return files.zip_of(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


# === State dicts ===


@np.errstate(all="ignore")
def damage_state(rng: random.Random, state: dict) -> dict:
    """Tensors missing, added, renamed, reshaped, of other types, values and numbers."""
    state = dict(state)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not state:
            break
        name = rng.choice(list(state))
        array = state[name]
        kind = rng.randrange(19)
        if kind == 0:
            del state[name]
        elif kind == 1:
            state[rng.choice(NAMES)] = array
        elif kind == 2:
            state[rng.choice(seed_files.names())] = array
        elif kind == 3:
            state[rng.choice((*NAMES, *seed_files.names()))] = state.pop(name)
        elif kind == 4:
            state[name] = array[..., None] if rng.random() < 0.5 else array[None]
        elif kind == 5:
            state[name] = array.reshape(-1)
        elif kind == 6:
            state[name] = array.T.copy()
        elif kind == 7:
            state[name] = array[:0] if array.ndim else array
        elif kind == 8:
            state[name] = np.float32(rng.random()).reshape(())
        elif kind == 9:
            state[name] = np.full_like(array, rng.choice((np.nan, np.inf, 3e38, 0)))
        elif kind == 10:
            state[name] = array.astype(rng.choice(TYPES))
        elif kind == 11:
            kind = rng.choice(TYPES)
            state = {key: value.astype(kind) for key, value in state.items()}
        elif kind == 12:
            state[name] = np.concatenate([array, array]) if array.ndim else array
        elif kind == 13:
            state[name] = array[: len(array) // 2] if array.ndim else array
        elif kind == 14:
            shape = [rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randrange(8))]
            state[name] = np.zeros(shape, "float32")
        elif kind == 15:
            prefix = rng.choice(PREFIXES)
            some = rng.random() < 0.3
            state = {
                key if some and rng.random() < 0.5 else prefix + key: value
                for key, value in state.items()
            }
        elif kind == 16:
            state |= seed_files.state_of(rng.choice(list(seed_files.shapes())))
        elif kind == 17:
            # All of one name part, another.
            old, new = name.split(".")[0], rng.choice(seed_files.names()).split(".")[0]
            state = {key.replace(old, new): value for key, value in state.items()}
        else:
            count = rng.choice((10, 300, 3000))
            many = np.zeros(1, "float32")
            pattern = rng.choice(("x{}", "blocks.{}.mlp.fc1.weight", "{}"))
            state |= {pattern.format(i): many for i in range(count)}
    return state


# === Cases ===


def _any_file(rng):
    """A file that is read, of any kind."""
    if rng.random() < 0.5:
        return rng.choice(list(seed_files.stored_files().items()))
    name = rng.choice(list(seed_files.shapes()))
    writer = rng.choice(seed_files.WRITERS)
    return f"{name} {writer.__name__}", writer(seed_files.state_of(name))


def _training_file(rng):
    """One with a pickle; small ones come first."""
    while True:
        name, content = _any_file(rng)
        if not name.endswith(("npz", "safetensors", ".zip")):
            return name, content


def _state(rng):
    name = rng.choice(list(seed_files.shapes()))
    return name, seed_files.state_of(name)


def _bytes(rng):
    name, content = _any_file(rng)
    return name, damage_bytes(rng, content)


def _splice(rng):
    (name, content), (other, second) = _any_file(rng), _any_file(rng)
    return f"{name} + {other}", splice(rng, content, second)


def _pickle(rng):
    name, content = _training_file(rng)

    def edit(data):
        return damage_pickle(rng, data)

    return name, in_training_file(rng, content, edit)


def _fresh_pickle(rng):
    storages = {str(key): rng.randbytes(24) for key in range(3)}
    content = files.torch_zip(b"", storages)
    return "fresh", in_training_file(rng, content, lambda data: fresh_pickle(rng))


def _zip(rng):
    while True:
        name, content = _any_file(rng)
        if content[:2] == b"PK":
            return name, damage_zip(rng, content)


def _safetensors(rng):
    name, state = _state(rng)
    return name, damage_safetensors(rng, state)


def _record(rng):
    return "cct", damage_record(rng, seed_files.state_of("cct"))


def _npz(rng):
    name, state = _state(rng)
    return name, damage_npz(rng, state)


def _state_dict(rng):
    name, state = _state(rng)
    writer = rng.choice((*seed_files.WRITERS, files.as_safetensors))
    return name, writer(damage_state(rng, state))


# How many of a hundred cases each is.
KINDS = {
    _bytes: 14,
    _splice: 4,
    _pickle: 20,
    _fresh_pickle: 6,
    _zip: 12,
    _safetensors: 10,
    _record: 4,
    _npz: 8,
    _state_dict: 22,
}


def make_case(seed: int, number: int) -> tuple[str, bytes]:
    """What a case is called, and its bytes.

    Args:
        seed: Seed of the campaign.
        number: Number of the case in it.
    """
    rng = random.Random(f"{seed}-{number}")
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    name, content = kind(rng)
    if rng.random() < 0.05:
        content = files.zip_of([("a.pth", content)], zipfile.ZIP_DEFLATED)
    if rng.random() < 0.05:
        content = damage_bytes(rng, content)
    return f"{kind.__name__[1:]} of {name}", content
