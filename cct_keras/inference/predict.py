"""What a model says about images."""

from cct_keras.inference.open_model import open_model
from cct_keras.inference.views import FlipAveraged
from cct_keras.inference.views import check_views
from cct_keras.runtime.prediction import check_top
from cct_keras.runtime.prediction import classify


def predict(model, sources, *, top: int = 5, tta: str | None = None) -> list[dict]:
    """Classifies images.

    Args:
        model: What `load_classifier` takes: a model that `train` made, its file or
            folder, or `VARIANT.TAG`. Or a file that `export` wrote, which needs no
            Keras.
        sources: Image files, folders of them, arrays `(height, width, channels)` with
            values from 0 to 255, or floats from 0 to 1, or images of Pillow; one of
            these, a list, or a batch.
        top: How many classes to name.
        tta: `"flip"` averages the probabilities over every image and its mirror image.

    Returns:
        For each image `{"image": ..., "classes": [{"name", "probability"}]}`, or
        `{"image": ..., "error": ...}` for a file that cannot be read.

    Example:

    >>> image = np.zeros((8, 8, 1), "uint8")
    >>> [result] = predict("cct_2_3x2_32.digits", image, top=3)
    >>> result["image"], len(result["classes"])
    ('image 0', 3)
    """
    check_top(top)
    check_views(tta)
    engine = open_model(model)
    return classify(FlipAveraged(engine) if tta else engine, sources, top)
