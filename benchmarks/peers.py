"""Other implementations of CCT, as tasks for `cct_keras.benchmarking.measuring`.

Each function returns the same tasks as `variant_tasks` of
`cct_keras.benchmarking.benchmark`, in its framework's plain way: an eager loop in
PyTorch, `fit` and `predict_on_batch` in Keras. Attention
dropout and stochastic depth are 0.1 in training, AdamW updates the weights. The
architecture comes as the arguments of this package's constructor.
"""

import importlib.util
import pathlib
import sys


def vit_pytorch(architecture, batch_size, inference_batch_size):
    """`vit_pytorch.cct.CCT`."""
    rates = {"dropout_rate": 0.0, "stochastic_depth_rate": 0.1}
    model = vit_pytorch_class()(**torch_arguments(architecture), **rates)
    return torch_works(model, architecture, batch_size, inference_batch_size)


def vit_pytorch_class():
    """`vit_pytorch.cct.CCT` itself."""
    # The module alone: the package around it imports torchvision.
    folder = importlib.util.find_spec("vit_pytorch").submodule_search_locations[0]
    path = pathlib.Path(folder) / "cct.py"
    spec = importlib.util.spec_from_file_location("vit_pytorch_cct", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CCT


def vit_pytorch_inference(architecture, batch_size, compiled, precision):
    """Inference alone of `vit_pytorch.cct.CCT`, on request by `torch.compile`."""
    import torch

    rates = {"dropout_rate": 0.0, "stochastic_depth_rate": 0.1}
    model = vit_pytorch_class()(**torch_arguments(architecture), **rates).eval()
    if compiled:
        model = torch.compile(model)
    height, width, channels = architecture["input_shape"]
    images = torch.randn(batch_size, channels, height, width)
    half = precision == "bfloat16"

    def run(count, images):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, half):
            for _ in range(count):
                model(images).float().softmax(-1).numpy()

    return {
        "latency": lambda count: run(count, images[:1]),
        "inference": lambda count: run(count, images),
    }


def original(architecture, batch_size, inference_batch_size, checkout):
    """The authors' class, from a checkout of SHI-Labs/Compact-Transformers."""
    sys.path.insert(0, checkout)
    from src.cct import CCT

    rates = {"dropout": 0.0, "stochastic_depth": 0.1}
    model = CCT(**torch_arguments(architecture), **rates)
    return torch_works(model, architecture, batch_size, inference_batch_size)


def torch_arguments(architecture):
    """Arguments of the constructors of both PyTorch classes, from those of ours."""
    names = ("embedding_dim", "num_layers", "num_heads", "mlp_ratio", "num_classes")
    kernel = architecture["kernel_size"]
    return {
        **{name: architecture[name] for name in names},
        "img_size": architecture["input_shape"][0],
        "n_conv_layers": architecture["num_conv_layers"],
        "kernel_size": kernel,
        "stride": max(1, kernel // 2 - 1),
        "padding": max(1, kernel // 2),
        "positional_embedding": architecture["positional_embedding"],
        "attention_dropout": 0.1,
    }


def torch_works(model, architecture, batch_size, inference_batch_size):
    """Eager steps on as many threads as the process has cores."""
    import torch

    torch.manual_seed(0)
    height, width, channels = architecture["input_shape"]
    images = torch.randn(batch_size, channels, height, width)
    labels = torch.arange(batch_size) % architecture["num_classes"]
    more = torch.randn(inference_batch_size, channels, height, width)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.06)
    loss = torch.nn.CrossEntropyLoss()

    def training(count):
        model.train()
        for _ in range(count):
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()

    def inference(count, images=more):
        model.eval()
        with torch.inference_mode():
            for _ in range(count):
                model(images).softmax(-1).numpy()

    def latency(count):
        inference(count, more[:1])

    return {"inference": inference, "latency": latency, "training": training}


def keras_io(architecture, batch_size, inference_batch_size):
    """The architecture in stock Keras layers, as the tutorials of keras.io have it.

    It computes another function: textbook pre-norm, "same" padding.
    """
    import keras
    import numpy as np
    from keras import layers

    from cct_keras.benchmarking.benchmark import keras_tasks

    dim, heads = architecture["embedding_dim"], architecture["num_heads"]
    kernel, stages = architecture["kernel_size"], architecture["num_conv_layers"]

    def build(activation):
        images = keras.Input(architecture["input_shape"])
        x = images
        for stage in range(stages):
            filters = dim if stage == stages - 1 else 64
            stride = max(1, kernel // 2 - 1)
            x = layers.Conv2D(
                filters,
                kernel,
                stride,
                padding="same",
                use_bias=False,
                activation="relu",
            )(x)
            x = layers.MaxPooling2D(3, 2, padding="same")(x)
        x = layers.Reshape((-1, dim))(x)
        positions = keras.ops.arange(x.shape[1])
        x = x + layers.Embedding(x.shape[1], dim)(positions)
        rates = np.linspace(0, 0.1, architecture["num_layers"])
        for rate in map(float, rates):
            branch = layers.LayerNormalization(epsilon=1e-5)(x)
            branch = layers.MultiHeadAttention(heads, dim // heads, dropout=0.1)(
                branch, branch
            )
            x = x + layers.Dropout(rate, noise_shape=(None, 1, 1))(branch)
            branch = layers.LayerNormalization(epsilon=1e-5)(x)
            hidden = dim * architecture["mlp_ratio"]
            branch = layers.Dense(hidden, activation="gelu")(branch)
            branch = layers.Dense(dim)(branch)
            x = x + layers.Dropout(rate, noise_shape=(None, 1, 1))(branch)
        x = layers.LayerNormalization(epsilon=1e-5)(x)
        weights = layers.Softmax(axis=1)(layers.Dense(1)(x))
        x = layers.Flatten()(layers.Dot((1, 1))([weights, x]))
        x = layers.Dense(architecture["num_classes"], activation=activation)(x)
        return keras.Model(images, x)

    student = build(None)
    student.compile(
        keras.optimizers.AdamW(2e-3, weight_decay=0.06),
        keras.losses.CategoricalCrossentropy(from_logits=True),
    )
    ask = build("softmax").predict_on_batch
    return keras_tasks(student, ask, batch_size, inference_batch_size)
