"""`cct-keras convert`: a PyTorch checkpoint into a Keras file, or the reverse."""

import contextlib
import pathlib

from cct_keras.atomic_file import atomic_file
from cct_keras.checks import ACTIVATIONS
from cct_keras.cli.printing import print_notes
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.errors import CheckpointError
from cct_keras.hub import is_hub
from cct_keras.notes import collected_notes

# Largest difference of the logits that the self-check accepts.
TOLERANCE = 1e-4


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "convert",
        help="convert a PyTorch checkpoint into a Keras file, or the reverse",
        description="Convert a checkpoint. The result is compared with a computation "
        "in NumPy before anything is written.",
    )
    parser.add_argument(
        "source",
        help="a .pth, .pt, .bin, .ckpt, .pth.zip, .safetensors, .npz or .keras file, "
        "a URL, or hf://user/repo on the Hugging Face Hub",
    )
    parser.add_argument(
        "out",
        type=pathlib.Path,
        help="a .keras or .weights.h5 file (of a .keras file only the latter); with "
        "--to torch a .safetensors, .pth, .pt or .bin file",
    )
    parser.add_argument(
        "--to",
        choices=("keras", "torch"),
        default="keras",
        help="what to write (default: keras)",
    )
    parser.add_argument(
        "--num-classes",
        type=int,
        metavar="N",
        help="number of classes; the head starts fresh if it is another (default: "
        "that of the file)",
    )
    parser.add_argument(
        "--input-shape",
        type=int,
        nargs=3,
        metavar=("HEIGHT", "WIDTH", "CHANNELS"),
        help="shape of the images; positions are resized and the first convolution is "
        "adapted (default: that of the file)",
    )
    parser.add_argument(
        "--num-heads",
        type=int,
        metavar="N",
        help="attention heads, which a PyTorch file does not record (default: those "
        "of the named variant)",
    )
    parser.add_argument(
        "--activation",
        choices=ACTIVATIONS,
        help="activation of the feed-forward layers, which a PyTorch file does not "
        "record (default: gelu)",
    )
    parser.add_argument(
        "--grid",
        type=int,
        nargs=2,
        metavar=("ROWS", "COLUMNS"),
        help="grid of the positions in the file (default: a square)",
    )
    parser.add_argument(
        "--entry",
        metavar="NAME",
        help="entry of the file that holds the weights, such as state_dict (default: "
        "the one that looks like weights)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace an existing file (default: stop)"
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print a table of all tensors (default: a summary)",
    )
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Reads, recognizes, converts, checks the result, and only then writes."""
    out = arguments.out
    _check_folder(out, arguments.force)
    import_keras_quietly()
    from cct_keras.converter.conversion import to_torch

    _check_suffix(out, arguments.to)
    overrides = {
        name: getattr(arguments, name)
        for name in ("num_classes", "input_shape", "num_heads", "activation")
        if getattr(arguments, name) is not None
    }
    checkpoint, architecture = _read(arguments, overrides)
    _print_architecture(architecture, checkpoint, overrides)
    model = _build(checkpoint, architecture, overrides, arguments.speak)
    if arguments.verbose:
        _print_tensors(architecture, checkpoint)
    _check_logits(model, checkpoint, architecture, overrides)
    if arguments.to == "torch":
        with _printed_notes(arguments.speak):
            to_torch(model, out)
    else:
        with atomic_file(out) as temporary:
            save = model.save if out.suffix == ".keras" else model.save_weights
            save(temporary, overwrite=True)
    print(f"wrote {out}")


# === Work, with the functions of the converter ===


def _check_folder(out, force):
    if out.is_dir():
        raise CheckpointError(f"{out} is a directory")
    if out.exists() and not force:
        raise CheckpointError(f"{out} exists; --force replaces it")
    if not out.parent.is_dir():
        raise CheckpointError(f"the folder {out.parent} does not exist")


def _check_suffix(out, to):
    from cct_keras.converter.conversion import SAFETENSORS
    from cct_keras.converter.conversion import TORCH_PICKLES
    from cct_keras.pretrained.keras_file import SUFFIXES

    suffixes = SUFFIXES if to == "keras" else (SAFETENSORS, *TORCH_PICKLES)
    if not out.name.endswith(suffixes):
        raise CheckpointError(
            f"the output must end in {', '.join(suffixes)}. Received: {out}"
        )


def _read(arguments, overrides):
    """The checkpoint that the source is, or would be, and its architecture."""
    from cct_keras.converter.conversion import build_keras_model
    from cct_keras.converter.conversion import known_arguments
    from cct_keras.converter.formats import open_checkpoint
    from cct_keras.converter.hub_model import open_hub_model
    from cct_keras.converter.infer import check_complete
    from cct_keras.converter.infer import infer

    source = arguments.source
    with _printed_notes(arguments.speak):
        if is_hub(source):
            source = open_hub_model(source)
            if source.is_keras:
                return _read_keras(arguments, lambda: build_keras_model(source))
        elif source.endswith(".keras"):
            return _read_keras(arguments, lambda: _load_keras(source))
        checkpoint = open_checkpoint(source, arguments.entry)
    architecture = infer(checkpoint, arguments.grid, known_arguments(overrides))
    check_complete(architecture)
    return checkpoint, architecture


def _load_keras(source):
    import keras

    try:
        return keras.models.load_model(source, compile=False)
    except Exception as error:
        raise CheckpointError(f"{source} cannot be loaded: {error}") from error


def _read_keras(arguments, load):
    from cct_keras.converter.conversion import to_checkpoint
    from cct_keras.converter.conversion import warn_of_lost_layers
    from cct_keras.converter.infer import check_complete

    if arguments.out.suffix == ".keras":
        raise CheckpointError(
            f"{arguments.source} is a Keras file already: write a .weights.h5 file, or "
            "use --to torch"
        )
    model = load()
    checkpoint, architecture = to_checkpoint(model)
    if not architecture.num_classes:
        raise CheckpointError(
            f"{arguments.source} has no top; the original classes need one"
        )
    check_complete(architecture)
    warn_of_lost_layers(model)
    return checkpoint, architecture


def _build(checkpoint, architecture, overrides, speak):
    """The model, with a progress bar."""
    import keras

    from cct_keras.converter.conversion import build_model

    count = len(checkpoint.tensors)
    bar = keras.utils.Progbar(count, unit_name="tensor")

    def progress(done, total):
        bar.update(done + count - total, finalize=done == total)

    with _printed_notes(speak):
        return build_model(checkpoint, architecture, progress=progress, **overrides)


def _check_logits(model, checkpoint, architecture, overrides):
    """Compares the logits with those that NumPy computes from the tensors."""
    from cct_keras.converter.conversion import build_model
    from cct_keras.converter.conversion import largest_difference

    if set(overrides) - {"num_heads", "activation"}:
        # A model of another shape computes something else.
        model = build_model(checkpoint, architecture)
    difference = largest_difference(model, checkpoint, architecture)
    print(f"self-check: largest difference of the logits {difference:.1e}")
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"the self-check failed: the logits differ by {difference:.1e}, more than "
            f"{TOLERANCE:.0e}; nothing was written"
        )


# === Printing ===


@contextlib.contextmanager
def _printed_notes(speak):
    """Prints what the converter remarks."""
    with collected_notes() as notes:
        yield
    print_notes(notes, speak)


def _print_architecture(architecture, checkpoint, overrides):
    arguments, tensors = architecture.arguments, checkpoint.tensors
    height, width, channels = arguments["input_shape"]
    parameters = sum(array.size for array in tensors.values())
    variant = architecture.variant or f"{architecture.family}, no named variant"
    print(f"variant     {variant}")
    print(f"image       {height} x {width} x {channels}")
    print(f"parameters  {parameters:,} in {len(tensors)} tensors")
    print(f"classes     {arguments['num_classes']}")
    print(f"heads       {arguments['num_heads']}", end="")
    told = {**checkpoint.arguments, **overrides}
    if checkpoint.record is None and told.get("num_heads") is None:
        print(", as published at this width; --num-heads N says others", end="")
    print()
    grid = "" if architecture.grid is None else " {} x {}".format(*architecture.grid)
    print(f"positions   {arguments['positional_embedding'] or 'none'}{grid}")
    if architecture.activation != "gelu":
        print(f"activation  {architecture.activation}")


def _print_tensors(architecture, checkpoint):
    """A line for each tensor of the file, and the weight that it becomes."""
    tensors, name_of = checkpoint.tensors, checkpoint.table.name_of
    width = max(len(name) for name in tensors)
    for path, shape in architecture.weight_shapes().items():
        name = name_of(path)
        array = tensors[name]
        source = f"{name:<{width}}  {array.dtype}{list(array.shape)}"
        print(f"{source} -> {path} {shape}")
