"""Fine-tunes an official checkpoint on your own images.

    python examples/finetune.py photos/ --weights cct_14_7x2_224_imagenet.pth

The folder holds one folder a class. `--weights` takes a checkpoint of the authors, a
`.keras` or `.weights.h5` file, the folder of a run, or with `--variant` a tag such as
`imagenet`, which is downloaded. The methods, from the cheapest:

    probe       a logistic regression on the features: seconds
    head        only the head learns
    lora        adapters in the blocks, merged in the end
    freeze      the lower half of the blocks stays as it is
    unfreeze    the blocks thaw one by one
    all         everything learns, lower layers more slowly
"""

import argparse
import pathlib
import tempfile

import cct_keras

METHODS = {
    "head": {"freeze": "body"},
    "lora": {"lora_rank": 8, "layer_decay": 1.0},
    "freeze": {"freeze": 1},
    "unfreeze": {"unfreeze_epochs": 3},
    "all": {},
}
parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("data", nargs="?", default="digits")
parser.add_argument("--weights")
parser.add_argument("--variant")
parser.add_argument("--method", choices=["probe", *METHODS], default="all")
parser.add_argument("--epochs", type=int)
parser.add_argument("--out", type=pathlib.Path, default="runs/finetune")
parser.add_argument("--smoke", action="store_true", help="a stand-in, one epoch")
arguments = parser.parse_args()

if arguments.smoke:
    # In the layout of the official files, with random weights.
    model = cct_keras.create_model("cct_2_3x2_32")
    arguments.weights = pathlib.Path(tempfile.mkdtemp()) / "official.safetensors"
    cct_keras.to_torch(model, arguments.weights)
    arguments.epochs = 1
elif arguments.weights is None:
    parser.error("give --weights: a file, the folder of a run, or a tag")

# What a probe reaches in seconds tells whether the features fit the images at all.
probe = cct_keras.linear_probe(
    arguments.data, arguments.variant, weights=arguments.weights
)
print(f"linear probe: {probe.metrics['test']['top1']:.2%}")

if arguments.method == "probe":
    run = probe
    arguments.out.mkdir(parents=True, exist_ok=True)
    run.model.save(arguments.out / "model.keras")
else:
    run = cct_keras.train(
        arguments.data,
        arguments.variant,
        weights=arguments.weights,
        epochs=arguments.epochs,
        out=arguments.out,
        **METHODS[arguments.method],
    )
    print(f"trained {run.metrics['trained_parameters']:,} parameters")
print(f"test accuracy: {run.metrics['test']['top1']:.2%}")
