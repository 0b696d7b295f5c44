"""What `cct-keras convert` does, step by step."""

import contextlib
import pathlib

import keras

from cct_keras.atomic_file import atomic_file
from cct_keras.converter.conversion import SAFETENSORS
from cct_keras.converter.conversion import TORCH_PICKLES
from cct_keras.converter.conversion import build
from cct_keras.converter.conversion import largest_difference
from cct_keras.converter.conversion import note_lost_layers
from cct_keras.converter.conversion import to_torch
from cct_keras.converter.engine import named_weights
from cct_keras.converter.engine import state_of
from cct_keras.converter.formats import infer
from cct_keras.converter.formats import read_weights
from cct_keras.converter.formats import variant_of
from cct_keras.converter.torch_file import CheckpointError
from cct_keras.models.transfer import NATIVE_SUFFIXES
from cct_keras.notes import collected_notes

SUFFIXES = {"keras": NATIVE_SUFFIXES, "torch": (SAFETENSORS, *TORCH_PICKLES)}
TOLERANCE = 1e-4


def run(
    source: str,
    out: pathlib.Path,
    *,
    to: str,
    force: bool,
    verbose: bool,
    grid,
    entry: str | None,
    **overrides,
) -> None:
    """Reads, recognises, converts, checks itself, and only then writes."""
    _check_target(out, to, force)
    overrides = {k: v for k, v in overrides.items() if v is not None}
    if source.endswith(".keras"):
        if out.suffix == ".keras":
            raise CheckpointError(
                f"{source} is a Keras file already: write a .weights.h5, or --to torch"
            )
        model = _load_keras(source)
        state, told = state_of(model), {}
        with _notes():
            note_lost_layers(model)
        layers = {layer.name: layer for layer in model.layers}
        overrides["num_heads"] = layers["block_0"].num_heads
        if layers["block_0"].pre_norm:
            told["epsilon"] = layers["block_0"].epsilon
        if "position_embedding" in layers:
            grid = layers["position_embedding"].grid
    else:
        state, told = read_weights(source, entry)
    architecture = infer(state, grid, **{**told, **overrides})
    _describe(architecture, state)
    model = _build(architecture, state, overrides)
    if verbose:
        _table(model, state)

    heads = {"num_heads": architecture.arguments["num_heads"]}
    native = model if set(overrides) <= set(heads) else build(architecture, dict(state))
    difference = largest_difference(native, state, architecture)
    print(f"self-check: largest difference of the logits {difference:.1e}")
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"the self-check failed: the logits differ by {difference:.1e}, more than "
            f"{TOLERANCE:.0e}; nothing was written"
        )
    if to == "torch":
        with _notes():
            to_torch(model, out)
    else:
        with atomic_file(out) as temporary:
            save = model.save if out.suffix == ".keras" else model.save_weights
            save(temporary, overwrite=True)
    print(f"wrote {out}")


def _check_target(out, to, force):
    if not out.name.endswith(SUFFIXES[to]):
        raise CheckpointError(
            f"the output must end in {', '.join(SUFFIXES[to])}. Received: {out}"
        )
    if out.is_dir():
        raise CheckpointError(f"{out} is a directory")
    if out.exists() and not force:
        raise CheckpointError(f"{out} exists; --force replaces it")
    if not out.parent.is_dir():
        raise CheckpointError(f"the folder {out.parent} does not exist")


def _load_keras(source):
    try:
        return keras.models.load_model(source, compile=False)
    except Exception as error:
        raise CheckpointError(f"{source} cannot be loaded: {error}") from error


@contextlib.contextmanager
def _notes():
    """Remarks as lines of the answer."""
    with collected_notes() as lines:
        yield
    for line in lines:
        print(f"note: {line}")


def _build(architecture, state, overrides):
    """The model, with a progress bar."""
    bar = keras.utils.Progbar(len(state), unit_name="tensor")

    def progress(done, total):
        bar.update(done + len(state) - total, finalize=done == total)

    with _notes():
        return build(architecture, dict(state), progress=progress, **overrides)


def _describe(architecture, state):
    arguments = architecture.arguments
    height, width, channels = arguments["input_shape"]
    parameters = sum(array.size for array in state.values())
    variant = variant_of(architecture)
    print(f"variant     {variant or f'{architecture.family}, no named variant'}")
    print(f"image       {height} x {width} x {channels}")
    print(f"parameters  {parameters:,} in {len(state)} tensors")
    print(f"classes     {arguments['num_classes']}")
    grid = "" if architecture.grid is None else " {} x {}".format(*architecture.grid)
    print(f"positions   {arguments['positional_embedding'] or 'none'}{grid}")


def _table(model, state):
    weights = named_weights(model)
    width = max(len(name) for name in state)
    for name, array in state.items():
        weight = weights.get(name)
        target = "-" if weight is None else f"{weight.path} {tuple(weight.shape)}"
        print(f"{name:<{width}}  {array.dtype}{list(array.shape)} -> {target}")
