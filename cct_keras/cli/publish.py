"""`cct-keras publish`: a trained model as a repository of the Hugging Face Hub."""

import pathlib

import cct_keras
from cct_keras.cli.options import check_model
from cct_keras.cli.printing import print_notes
from cct_keras.cli.quiet import import_keras_quietly


def add_parser(subparsers) -> None:
    """Adds the command to the parser."""
    parser = subparsers.add_parser(
        "publish",
        help="publish a trained model on the Hugging Face Hub",
        description="Write the repository of a trained model: the model for Keras and "
        "as safetensors, a config, and a model card with its measured accuracy and how "
        "it was trained. The files are loaded back and compared before anything is "
        "uploaded, with the token that `hf auth login` keeps.",
    )
    parser.add_argument(
        "model",
        help="a run folder that `train` wrote, a .keras file, or VARIANT.TAG of known "
        "weights",
    )
    parser.add_argument("repo", metavar="USER/REPO", help="the repository")
    parser.add_argument(
        "--license",
        metavar="ID",
        help="license of the weights, such as apache-2.0 or cc-by-4.0 (default: none, "
        "which the card says)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="write the folder and upload nothing (default: upload)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="FOLDER",
        help="keep the files in this folder (default: hub/USER/REPO with --dry-run, "
        "and else nowhere)",
    )
    parser.add_argument(
        "--force",
        dest="overwrite",
        action="store_true",
        help="replace a folder of an earlier call (default: stop)",
    )
    parser.add_argument(
        "--private",
        action="store_true",
        help="make a new repository private (default: that of the account)",
    )
    parser.set_defaults(run=run)


def run(arguments) -> None:
    """Writes, checks, uploads, and says what there is."""
    check_model(arguments.model)
    import_keras_quietly()
    made = cct_keras.publish(
        arguments.model,
        arguments.repo,
        license=arguments.license,
        out=arguments.out,
        dry_run=arguments.dry_run,
        private=arguments.private,
        overwrite=arguments.overwrite,
    )
    width = max(len(name) for name in made.files)
    for name, size in made.files.items():
        print(f"{name:<{width}}  {size:>13,} bytes")
    print("they load back and compute the same, bit for bit")
    print_notes(made.notes, arguments.speak)
    if made.folder is not None:
        print(f"folder: {made.folder}")
    if made.url is None:
        print("nothing was uploaded (--dry-run)")
    else:
        print(f"published: {made.url}")
        print(f'load it by create_model(weights="hf://{made.repo}")')
