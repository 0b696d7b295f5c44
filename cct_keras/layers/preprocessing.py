import keras
from keras import ops

from cct_keras.layers.checks import check_choice


@keras.saving.register_keras_serializable(package="cct_keras")
class Preprocessing(keras.layers.Layer):
    """Raw images of any size to normalised ones of the model's size.

    The centre of the image in the aspect ratio of `image_size` is cut out, resized
    with antialiasing, and normalised per channel. Images of exactly `image_size`
    are taken as cut already, so that a training pipeline pays nothing here. A file
    of a model that begins with this layer answers on raw pixels, and names its
    classes.

    Args:
        image_size: Height and width of the output.
        mean: Mean of each channel, for pixels scaled to 0..1.
        std: Standard deviation of each channel.
        crop: Share of the largest possible cut-out that is kept, as `crop_pct`
            in timm.
        interpolation: `"bicubic"`, `"bilinear"` or `"nearest"`.
        class_names: Names of the classes that the model tells apart; they travel
            in its file.
        trained_on: What the model was trained on: `name` and `fingerprint` of the
            data, and how their splits were `cut` off.

    Input shape:
        `(batch, height, width, channels)`, values from 0 to 255.

    Output shape:
        `(batch, *image_size, channels)`

    Example:

    >>> layer = Preprocessing((32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
    >>> layer(keras.random.uniform((1, 480, 640, 3), 0, 255)).shape
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
        # Half precision cannot tell the pixel values apart.
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
        """The images cut and resized, still with values from 0 to 255."""
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
        # Bicubic interpolation overshoots.
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


def central_box(
    height, width, image_size: tuple[int, int], crop: float, smaller=min, larger=max
) -> tuple:
    """Top, left, bottom and right of the centre that keeps an aspect ratio.

    Args:
        height: Of the image; an integer or a scalar tensor.
        width: Of the image.
        image_size: Height and width whose ratio the centre has.
        crop: Share of the largest such centre that is kept.
        smaller: Function of two sides; another one for tensors.
        larger: The same.
    """
    rows, columns = image_size
    share = round(10_000 * crop)
    box_height = larger(1, smaller(height, width * rows // columns) * share // 10_000)
    box_width = larger(1, smaller(width, height * columns // rows) * share // 10_000)
    top, left = (height - box_height) // 2, (width - box_width) // 2
    return top, left, top + box_height, left + box_width
