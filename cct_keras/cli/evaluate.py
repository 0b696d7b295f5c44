"""`cct-keras evaluate`: how good a trained model is."""

import json

import cct_keras
from cct_keras.cli.options import DATA_HELP
from cct_keras.cli.options import MODEL_HELP
from cct_keras.cli.options import add_data_dir
from cct_keras.cli.options import add_json
from cct_keras.cli.options import add_tta
from cct_keras.cli.options import check_model
from cct_keras.cli.printing import accuracy_text
from cct_keras.cli.printing import print_notes
from cct_keras.cli.quiet import import_keras_quietly
from cct_keras.cli.quiet import import_tensorflow_quietly
from cct_keras.cli.quiet import open_quietly
from cct_keras.model_files import exported_format


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "evaluate",
        help="measure how good a trained model is",
        description="Measure a trained model on a data set: accuracy, loss, "
        "calibration (ECE) and the accuracy of each class.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("data", help=DATA_HELP)
    parser.add_argument(
        "--split",
        choices=("test", "validation", "train"),
        default="test",
        help="images to measure on (default: test)",
    )
    add_tta(
        parser,
        "also measure answers that are averaged over every image and its mirror image",
    )
    add_data_dir(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Measures and prints."""
    model = _open(arguments)
    metrics = cct_keras.evaluate(
        model,
        arguments.data,
        split=arguments.split,
        data_dir=arguments.data_dir,
        tta=arguments.tta,
    )
    if arguments.json:
        print(json.dumps(metrics, indent=2))
        return
    print_notes(metrics["notes"], arguments.speak)
    _print_metrics(metrics)


def _open(arguments):
    """The model, with everything that would talk when it is first imported."""
    if exported_format(arguments.model) is None:
        check_model(arguments.model)
        import_keras_quietly(with_tensorflow=True)
        return arguments.model
    engine = open_quietly(arguments.model)
    from cct_keras.data.readers.table import find_reader

    reader = find_reader(arguments.data)
    if reader is not None and reader.takes_data_dir:
        import_tensorflow_quietly()
    return engine


def _print_metrics(metrics):
    print(f"images  {metrics['count']:,}")
    print(f"top-1   {accuracy_text(metrics)}")
    if "tta" in metrics:
        print(f"  {metrics['tta']['name']}  {accuracy_text(metrics['tta'])}")
    if metrics["top5"] is not None:
        print(f"top-5   {metrics['top5']:.2%}")
    print(f"loss    {metrics['loss']:.4f}")
    print(f"ECE     {metrics['ece']:.4f}")
    width = max(len(row["name"]) for row in metrics["per_class"])
    print(f"\n{'class':<{width}}  images  accuracy")
    for row in metrics["per_class"]:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        print(f"{row['name']:<{width}}  {row['count']:>6}  {accuracy:>8}")
