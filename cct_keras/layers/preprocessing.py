import keras
from keras import ops

from cct_keras.checks import check_choice
from cct_keras.geometry import central_box


@keras.saving.register_keras_serializable(package="cct_keras")
class Preprocessing(keras.layers.Layer):
    """Turns raw images of any size into normalized images of the model's size.

    The center of an image, in the aspect ratio of `image_size`, is cut out, resized
    with antialiasing, and normalized per channel. Images of exactly `image_size`
    are taken as they are, so that a training pipeline pays nothing here. A model that
    begins with this layer accepts raw pixels, and its file knows the names of its
    classes.

    Args:
        image_size: Height and width of the output.
        mean: Mean of each channel, for pixel values from 0 to 1.
        std: Standard deviation of each channel.
        crop: Share of each side of the largest possible center that is kept; timm
            calls it `crop_pct`.
        interpolation: `"bicubic"`, `"bilinear"` or `"nearest"`.
        class_names: Names of the classes that the model tells apart. The file of the
            model keeps them.
        trained_on: What the model was trained on: `name` and `fingerprint` of the
            data, and how they were `cut` into splits.

    Input shape:
        `(batch, height, width, channels)`, values from 0 to 255.

    Output shape:
        `(batch, *image_size, channels)`

    Example:

    >>> layer = Preprocessing((32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
    >>> keras.ops.shape(layer(keras.random.uniform((1, 480, 640, 3), 0, 255)))
    (1, 32, 32, 3)
    """

    def __init__(
        self,
        image_size: tuple[int, int],
        *,
        mean: tuple,
        std: tuple,
        crop: float = 1.0,
        interpolation: str = "bicubic",
        class_names: tuple | None = None,
        trained_on: dict | None = None,
        **kwargs,
    ):
        # Half precision does not distinguish all pixel values.
        super().__init__(autocast=False, **kwargs)
        check_choice(
            "Preprocessing",
            ("bicubic", "bilinear", "nearest"),
            interpolation=interpolation,
        )
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise ValueError(
                "Preprocessing: `mean` and `std` must have one value a channel, "
                f"`std` above 0. Received: mean={mean}, std={std}"
            )
        if not 0 < crop <= 1:
            raise ValueError(
                f"Preprocessing: `crop` must be in (0, 1]. Received: crop={crop}"
            )
        self.image_size = tuple(image_size)
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.crop = crop
        self.interpolation = interpolation
        self.class_names = None if class_names is None else tuple(class_names)
        self.trained_on = None if trained_on is None else dict(trained_on)

    def call(self, images):
        images = self.fit_size(ops.cast(images, "float32"))
        mean = ops.convert_to_tensor([255.0 * value for value in self.mean])
        scale = ops.convert_to_tensor([1.0 / (255.0 * value) for value in self.std])
        return ops.cast((images - mean) * scale, self.compute_dtype)

    def fit_size(self, images):
        """Cuts and resizes images; their values stay from 0 to 255."""
        if tuple(images.shape[1:3]) == self.image_size:
            return images
        height, width = ops.shape(images)[1:3]
        known = isinstance(height, int) and isinstance(width, int)
        extrema = (min, max) if known else (ops.minimum, ops.maximum)
        top, left, bottom, right = central_box(
            height, width, self.image_size, self.crop, *extrema
        )
        images = ops.image.resize(
            images[:, top:bottom, left:right],
            self.image_size,
            interpolation=self.interpolation,
            antialias=self.interpolation != "nearest",
            data_format="channels_last",
        )
        # Bicubic interpolation can leave the range of the pixel values.
        return ops.clip(images, 0.0, 255.0)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.image_size, input_shape[-1])

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "image_size": self.image_size,
                "mean": self.mean,
                "std": self.std,
                "crop": self.crop,
                "interpolation": self.interpolation,
                "class_names": self.class_names,
                "trained_on": self.trained_on,
            }
        )
        return config
