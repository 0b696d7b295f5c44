import inspect
import math

import keras
from keras import ops

from cct_keras.checks import check_choice
from cct_keras.checks import check_non_negative
from cct_keras.checks import check_positive
from cct_keras.checks import check_rank
from cct_keras.kernels.max_pool import max_pool
from cct_keras.kernels.observation import observed
from cct_keras.layers.settings import check_settings
from cct_keras.layers.settings import save_settings


@keras.saving.register_keras_serializable(package="cct_keras")
class ConvTokenizer(keras.layers.Layer):
    """Turns an image into a sequence of tokens by convolution.

    Each stage is a convolution, an activation and a max-pooling. All padding is
    symmetric: Keras' `padding="same"` would give the same shapes, but other values
    whenever a stride is larger than 1.

    With `stride=kernel_size`, `padding=0`, `activation=None`, `use_bias=True`
    and `pooling_kernel_size=None` this is the patch embedding of CVT, ViT-Lite
    and ViT.

    Args:
        embedding_dim: Width of a token, the filters of the last stage.
        num_conv_layers: Number of stages.
        kernel_size: Side of the convolution kernels.
        stride: Stride of the convolutions. Defaults to
            `max(1, kernel_size // 2 - 1)`.
        padding: Zeros added to each side before a convolution. Defaults to
            `max(1, kernel_size // 2)`.
        activation: Activation between convolution and pooling, or `None`.
        use_bias: Whether the convolutions have a bias.
        pooling_kernel_size: Side of the pooling window; `None` for no pooling.
        pooling_stride: Stride of the pooling.
        pooling_padding: Padding on each side before the pooling.
        hidden_dim: Filters of every stage but the last.
        data_format: `"channels_last"` or `"channels_first"`, the layout of the
            input. Defaults to `keras.config.image_data_format()`.

    Input shape:
        `(batch, height, width, channels)`, or `(batch, channels, height, width)`
        with `data_format="channels_first"`.

    Output shape:
        `(batch, tokens, embedding_dim)`, the tokens in row-major order.

    Example:

    >>> images = keras.random.normal((2, 32, 32, 3))
    >>> keras.ops.shape(ConvTokenizer(128, num_conv_layers=2)(images))
    (2, 64, 128)
    """

    def __init__(
        self,
        embedding_dim: int,
        *,
        num_conv_layers: int = 1,
        kernel_size: int = 3,
        stride: int | None = None,
        padding: int | None = None,
        activation="relu",
        use_bias: bool = False,
        pooling_kernel_size: int | None = 3,
        pooling_stride: int = 2,
        pooling_padding: int = 1,
        hidden_dim: int = 64,
        data_format: str | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive(
            "ConvTokenizer",
            embedding_dim=embedding_dim,
            num_conv_layers=num_conv_layers,
            kernel_size=kernel_size,
            pooling_stride=pooling_stride,
            hidden_dim=hidden_dim,
        )
        if stride is None:
            stride = max(1, kernel_size // 2 - 1)
        if padding is None:
            padding = max(1, kernel_size // 2)
        check_positive("ConvTokenizer", stride=stride)
        check_non_negative(
            "ConvTokenizer", padding=padding, pooling_padding=pooling_padding
        )
        if pooling_kernel_size is not None:
            check_positive("ConvTokenizer", pooling_kernel_size=pooling_kernel_size)
            if pooling_padding > pooling_kernel_size // 2:
                raise ValueError(
                    "ConvTokenizer: `pooling_padding` must be at most half of "
                    "`pooling_kernel_size`. Received: "
                    f"pooling_padding={pooling_padding}, "
                    f"pooling_kernel_size={pooling_kernel_size}"
                )
        # Keras accepts no NumPy integers for filters and kernels.
        self.embedding_dim = int(embedding_dim)
        self.num_conv_layers = num_conv_layers
        self.kernel_size = int(kernel_size)
        self.stride = int(stride)
        self.padding = padding
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.pooling_kernel_size = pooling_kernel_size
        self.pooling_stride = pooling_stride
        self.pooling_padding = pooling_padding
        self.hidden_dim = hidden_dim
        self.data_format = standardize_data_format("ConvTokenizer", data_format)

    def build(self, input_shape):
        _, _, channels = self._image_size(input_shape)
        if channels is None:
            raise ValueError(
                "ConvTokenizer: the channels of the input must be known. "
                f"Received: input shape {tuple(input_shape)}"
            )
        self.compute_grid(input_shape)
        self.convs = []
        for i in range(self.num_conv_layers):
            last = i == self.num_conv_layers - 1
            filters = self.embedding_dim if last else self.hidden_dim
            # The bound of torch's initial bias.
            bound = 1 / math.sqrt(channels * self.kernel_size**2)
            conv = keras.layers.Conv2D(
                filters,
                self.kernel_size,
                strides=self.stride,
                padding="same" if self._same_padding() else "valid",
                data_format="channels_last",
                use_bias=self.use_bias,
                kernel_initializer=keras.initializers.VarianceScaling(
                    scale=2.0, mode="fan_in", distribution="untruncated_normal"
                ),
                bias_initializer=keras.initializers.RandomUniform(-bound, bound),
                trainable=self.trainable,
                dtype=self.dtype_policy,
                name=f"conv_{i}",
            )
            conv.build((None, None, None, channels))
            self.convs.append(conv)
            channels = filters

    def call(self, images, training=None):
        x = images
        if self.data_format == "channels_first":
            x = ops.transpose(x, (0, 2, 3, 1))
        for conv in self.convs:
            x = self.activation(conv(self._pad(x)))
            x = self._pool(x, training)
        _, height, width, _ = ops.shape(x)
        tokens = ops.reshape(x, (-1, height * width, self.embedding_dim))
        return observed("tokens", tokens)

    def _same_padding(self):
        """Whether the convolutions can pad by themselves, which saves a copy.

        Without a stride `padding="same"` is symmetric.
        """
        return self.stride == 1 and self.kernel_size == 2 * self.padding + 1

    def _pad(self, x):
        if self.padding == 0 or self._same_padding():
            return x
        sides = [self.padding, self.padding]
        return ops.pad(x, [[0, 0], sides, sides, [0, 0]])

    def _pool(self, x, training):
        if self.pooling_kernel_size is None:
            return x
        return max_pool(
            x,
            self.pooling_kernel_size,
            self.pooling_stride,
            self.pooling_padding,
            never_negative=self.activation is keras.activations.relu,
            training=training,
        )

    def compute_grid(self, input_shape) -> tuple[int | None, int | None]:
        """Rows and columns of the token grid for a batch of images.

        Args:
            input_shape: Shape of the input with the batch axis.

        Returns:
            `(rows, columns)`; `None` where the input size is unknown.
        """
        height, width, _ = self._image_size(input_shape)
        grid = self._tokens_along(height), self._tokens_along(width)
        if any(side is not None and side < 1 for side in grid):
            raise ValueError(
                "ConvTokenizer: the image is too small, it leaves no token after "
                f"{self.num_conv_layers} stage(s) with kernel_size="
                f"{self.kernel_size}, stride={self.stride}, padding={self.padding}. "
                f"Received: input shape {tuple(input_shape)}"
            )
        return grid

    def _tokens_along(self, size):
        if size is None:
            return None
        for _ in range(self.num_conv_layers):
            size = (size + 2 * self.padding - self.kernel_size) // self.stride + 1
            if self.pooling_kernel_size is not None:
                size += 2 * self.pooling_padding - self.pooling_kernel_size
                size = size // self.pooling_stride + 1
            if size < 1:
                return 0
        return size

    def _image_size(self, input_shape):
        if self.data_format == "channels_first":
            axes = "batch", "channels", "height", "width"
            check_rank("ConvTokenizer", input_shape, axes)
            return input_shape[2], input_shape[3], input_shape[1]
        check_rank(
            "ConvTokenizer", input_shape, ("batch", "height", "width", "channels")
        )
        return tuple(input_shape[1:])

    def compute_output_shape(self, input_shape):
        height, width = self.compute_grid(input_shape)
        tokens = None if height is None or width is None else height * width
        return input_shape[0], tokens, self.embedding_dim

    def save_own_variables(self, store):
        save_settings(store, self._settings())

    def load_own_variables(self, store):
        settings = self._settings()
        # These change nothing in such a tokenizer.
        if self.pooling_kernel_size is None:
            del settings["pooling_stride"], settings["pooling_padding"]
        if self.num_conv_layers == 1:
            del settings["hidden_dim"]
        if not isinstance(settings["activation"], str):
            # The configuration of an object holds names that vary.
            del settings["activation"]
        check_settings(self, store, settings)

    def _settings(self):
        """What changes the function of the layer besides its weights."""
        return {
            "num_conv_layers": int(self.num_conv_layers),
            "kernel_size": int(self.kernel_size),
            "stride": int(self.stride),
            "padding": int(self.padding),
            "activation": self._serialized_activation(),
            "use_bias": bool(self.use_bias),
            "pooling_kernel_size": (
                None
                if self.pooling_kernel_size is None
                else int(self.pooling_kernel_size)
            ),
            "pooling_stride": int(self.pooling_stride),
            "pooling_padding": int(self.pooling_padding),
            "hidden_dim": int(self.hidden_dim),
        }

    def _serialized_activation(self):
        if inspect.isfunction(self.activation):
            # Its name is enough to find it again, and Keras warns of serialized
            # lambda functions.
            name = self.activation.__name__
            if getattr(keras.activations, name, None) is self.activation:
                return name
            return keras.saving.get_registered_name(self.activation)
        return keras.activations.serialize(self.activation)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "embedding_dim": self.embedding_dim,
                "num_conv_layers": self.num_conv_layers,
                "kernel_size": self.kernel_size,
                "stride": self.stride,
                "padding": self.padding,
                "activation": keras.activations.serialize(self.activation),
                "use_bias": self.use_bias,
                "pooling_kernel_size": self.pooling_kernel_size,
                "pooling_stride": self.pooling_stride,
                "pooling_padding": self.pooling_padding,
                "hidden_dim": self.hidden_dim,
                "data_format": self.data_format,
            }
        )
        return config


def standardize_data_format(owner: str, data_format: str | None) -> str:
    """Checks `data_format`; `None` gives the default of the Keras configuration.

    Args:
        owner: Who asks, for the error message.
        data_format: `"channels_last"`, `"channels_first"` or `None`.
    """
    if data_format is None:
        return keras.config.image_data_format()
    check_choice(owner, ("channels_last", "channels_first"), data_format=data_format)
    return data_format
