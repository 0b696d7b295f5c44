import numbers

import keras
from keras import ops

from cct_keras.layers.checks import check_positive
from cct_keras.layers.linear import Linear

PROJECTIONS = ("qkv", "proj", "linear1", "linear2")


@keras.saving.register_keras_serializable(package="cct_keras")
class LoRADense(keras.layers.Layer):
    """A frozen linear layer with a trainable update of low rank.

        x @ kernel + bias + alpha / rank * (x @ lora_a) @ lora_b

    `keras.layers.Dense.enable_lora` merges whenever it saves and loads its adapter
    as two matrices of zeros, whose gradients are zero too; here the adapter stays
    what it is in a file.

    Args:
        units: Width of the output.
        rank: Rank of the update.
        alpha: The update is scaled by `alpha / rank`. Defaults to `rank`.
        use_bias: Whether there is a bias, frozen as the kernel.

    Input shape:
        `(batch, ..., dim)`

    Output shape:
        `(batch, ..., units)`

    Example:

    >>> tokens = keras.random.normal((2, 64, 128))
    >>> layer = LoRADense(384, rank=4)
    >>> layer(tokens).shape, len(layer.trainable_variables)
    ((2, 64, 384), 2)
    """

    def __init__(
        self,
        units: int,
        *,
        rank: int,
        alpha: float | None = None,
        use_bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive("LoRADense", units=units, rank=rank)
        self.units = units
        self.rank = rank
        self.alpha = float(rank if alpha is None else alpha)
        self.use_bias = use_bias

    def build(self, input_shape):
        dim = input_shape[-1]
        self.kernel = self.add_weight(
            shape=(dim, self.units),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            trainable=False,
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.units,), initializer="zeros", trainable=False, name="bias"
            )
        self.lora_a = self.add_weight(
            shape=(dim, self.rank), initializer="he_uniform", name="lora_a"
        )
        # Zeros: at first nothing changes.
        self.lora_b = self.add_weight(
            shape=(self.rank, self.units), initializer="zeros", name="lora_b"
        )

    def call(self, x):
        update = ops.matmul(ops.matmul(x, self.lora_a), self.lora_b)
        x = ops.matmul(x, self.kernel) + update * (self.alpha / self.rank)
        return x if self.bias is None else x + self.bias

    def merged_kernel(self):
        """The kernel of the `Dense` layer that computes the same, as an array."""
        kernel, a, b = (
            ops.convert_to_numpy(ops.cast(weight, "float32"))
            for weight in (self.kernel, self.lora_a, self.lora_b)
        )
        return kernel + (a @ b) * (self.alpha / self.rank)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "units": self.units,
                "rank": self.rank,
                "alpha": self.alpha,
                "use_bias": self.use_bias,
            }
        )
        return config


def check_lora(owner: str, lora: dict | None) -> dict | None:
    """The adapters of a layer: `None`, or `rank`, `alpha` and `targets`."""
    if lora is None:
        return None
    if set(lora) != {"rank", "alpha", "targets"}:
        raise ValueError(
            f"{owner}: `lora` must have rank, alpha and targets. Received: lora={lora}"
        )
    check_positive(owner, rank=lora["rank"])
    if not isinstance(lora["alpha"], numbers.Real) or lora["alpha"] <= 0:
        raise ValueError(
            f"{owner}: `alpha` must be a number above 0. Received: {lora['alpha']!r}"
        )
    unknown = [name for name in lora["targets"] if name not in PROJECTIONS]
    if unknown:
        raise ValueError(
            f"{owner}: the targets of `lora` must be among {list(PROJECTIONS)}. "
            f"Received: {unknown}"
        )
    return {**lora, "targets": list(lora["targets"])}


def projection(
    name: str, units: int, *, lora: dict | None, dtype, use_bias: bool = True
) -> keras.layers.Layer:
    """A linear layer of a block; with adapters in the block, a frozen one."""
    if lora is not None and name in lora["targets"]:
        return LoRADense(
            units,
            rank=lora["rank"],
            alpha=lora["alpha"],
            use_bias=use_bias,
            dtype=dtype,
            name=name,
        )
    dense = Linear if keras.config.backend() == "torch" else keras.layers.Dense
    return dense(
        units,
        use_bias=use_bias,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        trainable=lora is None,
        dtype=dtype,
        name=name,
    )
