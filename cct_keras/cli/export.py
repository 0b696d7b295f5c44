"""`cct-keras export`: a trained model as a file for another runtime."""

import json
import pathlib

import cct_keras
from cct_keras.cli.options import DATA_HELP
from cct_keras.cli.options import add_data_dir
from cct_keras.cli.options import add_json
from cct_keras.cli.options import check_model
from cct_keras.cli.printing import print_notes
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.quiet import silent_stderr


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "export",
        help="write a trained model for ONNX, LiteRT, OpenVINO, TensorFlow or the web",
        description="Write a trained model for another runtime: raw pixels in, "
        "probabilities out, class names inside. The file is opened in its runtime and "
        "compared with the Keras model before it is written.",
    )
    parser.add_argument(
        "model",
        help="a .keras file or a run folder that `train` wrote, VARIANT.TAG of known "
        "weights, such as cct_2_3x2_32.cifar10_jpeg, or a checkpoint that `convert` "
        "takes",
    )
    parser.add_argument(
        "path",
        metavar="out",
        type=pathlib.Path,
        help="a file that ends in .onnx, .tflite or .xml, or a folder",
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="onnx, litert, openvino, saved_model or web (default: by the suffix of "
        "the file)",
    )
    parser.add_argument(
        "--precision",
        default="float32",
        metavar="NAME",
        help="float32, float16 or int8; int8 needs --data (default: float32)",
    )
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="images to compare on, and to calibrate int8 by: " + DATA_HELP + " "
        "(default: photographs that scikit-learn brings along)",
    )
    parser.add_argument(
        "--batch",
        type=_batch,
        metavar="N",
        help="images in a batch, or `dynamic` for any number (default: dynamic)",
    )
    parser.add_argument(
        "--input",
        dest="input_dtype",
        default="float32",
        metavar="TYPE",
        help="type of the pixels, float32 or uint8; from 0 to 255 in both (default: "
        "float32)",
    )
    parser.add_argument(
        "--layout",
        default="nhwc",
        metavar="NAME",
        help="order of the input's axes, nhwc or nchw (default: nhwc)",
    )
    parser.add_argument(
        "--opset",
        type=int,
        metavar="N",
        help="version of the ONNX operations (default: 17)",
    )
    parser.add_argument(
        "--logits",
        action="store_true",
        help="return logits in place of probabilities (default: probabilities)",
    )
    parser.add_argument(
        "--maps",
        action="store_true",
        help="add an output `maps`: the weight that SeqPool gives to each token "
        "(default: only in a web page)",
    )
    parser.add_argument(
        "--mean",
        type=float,
        nargs="+",
        metavar="X",
        help="mean of each channel, for pixels from 0 to 1 (default: the model's)",
    )
    parser.add_argument(
        "--std",
        type=float,
        nargs="+",
        metavar="X",
        help="standard deviation of each channel (default: the model's)",
    )
    parser.add_argument(
        "--class-names",
        type=pathlib.Path,
        metavar="FILE",
        help="text file with the name of a class in each line (default: the model's)",
    )
    parser.add_argument(
        "--license",
        metavar="TEXT",
        help="license of the weights, for the metadata (default: none)",
    )
    parser.add_argument(
        "--script",
        action="store_true",
        help="also write predict.py beside the model, one file that runs it with "
        "NumPy, Pillow and the runtime alone (default: not)",
    )
    parser.add_argument(
        "--ort",
        metavar="FOLDER",
        help="local copy of onnxruntime-web for a page that loads nothing from "
        "elsewhere (default: its public address)",
    )
    add_data_dir(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Exports, and prints how the file compares with the model."""
    from cct_keras.exporting.settings import DEFAULT_OPSET
    from cct_keras.exporting.settings import ExportSettings
    from cct_keras.exporting.settings import check_packages
    from cct_keras.exporting.settings import find_format

    check_model(arguments.model)
    opset = DEFAULT_OPSET if arguments.opset is None else arguments.opset
    choices = {
        "precision": arguments.precision,
        "batch": arguments.batch,
        "input_dtype": arguments.input_dtype,
        "layout": arguments.layout,
        "opset": opset,
        "logits": arguments.logits,
    }
    # All of this is refused before Keras is imported.
    settings = ExportSettings(
        find_format(arguments.path, arguments.format), **choices, maps=arguments.maps
    )
    check_packages(settings)
    names = arguments.class_names and _read_names(arguments.class_names)
    import_keras_quietly(with_tensorflow=True)
    with silent_stderr(keep_on_error=False):
        exported = cct_keras.export(
            arguments.model,
            arguments.path,
            format=settings.format,
            **choices,
            maps=arguments.maps or None,
            data=arguments.data,
            data_dir=arguments.data_dir,
            mean=arguments.mean,
            std=arguments.std,
            class_names=names,
            license=arguments.license,
            script=arguments.script,
            ort=arguments.ort,
        )
    if arguments.json:
        record = {**exported.parity, "files": [str(file) for file in exported.files]}
        print(json.dumps(record, indent=2))
    else:
        print_notes(exported.notes, arguments.speak)
        print_parity(exported)
        for file in exported.files:
            print(f"wrote {file}")


def print_parity(exported) -> None:
    """Prints how an exported file compares with its Keras model."""
    record, metadata = exported.parity, exported.metadata
    height, width = metadata.image_size
    speed = record["speed"]
    print(
        f"{metadata.name}: {metadata.num_classes} classes, images of {height} x "
        f"{width} x {metadata.channels}"
    )
    print(f"compared on {record['images']:,} images: {record['origin']}")
    rows = [
        ("", "Keras", f"{record['format']} {record['precision']}"),
        ("size", "", f"{record['bytes'] / 1e6:.2f} MB"),
    ]
    if speed["keras"]["one_image_ms"] is not None:
        rows.append(
            (
                "one image",
                *(f"{speed[x]['one_image_ms']:.2f} ms" for x in ("keras", "exported")),
            )
        )
    rows.append(
        (
            f"batch of {speed['keras']['batch']}",
            *(f"{speed[x]['images_per_second']:,.0f}/s" for x in ("keras", "exported")),
        )
    )
    accuracy = record.get("accuracy")
    if accuracy is not None:
        rows.append(
            ("top-1", f"{accuracy['before']:.2%}", f"{accuracy['after']:.2%}"),
        )
    for name, keras_value, exported_value in rows:
        print(f"{name:<14}{keras_value:>12}{exported_value:>21}")
    allowed = record["tolerance"]
    limit = "" if allowed is None else f" (at most {allowed:.0e})"
    print(
        "largest difference of a probability: "
        f"{record['largest_difference']:.1e}{limit}"
    )
    print(f"same first class: {record['same_top1']:,} of {record['images']:,}")
    if accuracy is not None and allowed is None:
        low, high = accuracy["loss_ci95"]
        print(
            f"accuracy lost: {100 * accuracy['loss']:.2f} points (95 % interval "
            f"{100 * low:.2f} to {100 * high:.2f})"
        )


def _batch(text):
    return None if text == "dynamic" else int(text)


def _read_names(file):
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--class-names {file} cannot be read: {error}") from error
    return tuple(line for line in lines if line.strip())
