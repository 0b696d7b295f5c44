"""Which part of an image is kept; plain arithmetic that every room may import."""


def central_box(
    height, width, image_size: tuple[int, int], crop: float, smaller=min, larger=max
) -> tuple:
    """Finds the largest centered box of an aspect ratio, or a share of it.

    Args:
        height: Height of the image, an integer or a scalar tensor.
        width: Width of the image, an integer or a scalar tensor.
        image_size: Height and width whose aspect ratio the box has.
        crop: Share of the largest such box that is kept, as `crop_pct` in timm.
        smaller: Function that returns the smaller one of two sides. Tensors need
            another one than `min`.
        larger: Function that returns the larger one of two sides.

    Returns:
        Top, left, bottom and right of the box, in pixels.

    Example:

    >>> central_box(60, 90, (32, 32), crop=1.0)
    (0, 15, 60, 75)
    """
    rows, columns = image_size
    # Whole numbers, so that tensors and Python integers round alike.
    share = round(10_000 * crop)
    box_height = larger(1, smaller(height, width * rows // columns) * share // 10_000)
    box_width = larger(1, smaller(width, height * columns // rows) * share // 10_000)
    top, left = (height - box_height) // 2, (width - box_width) // 2
    return top, left, top + box_height, left + box_width
