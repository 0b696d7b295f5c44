"""How far the resizing of each runtime is from that of training.

    python benchmarks/resize.py

Two photographs that scikit-learn brings along are resized by Pillow in floats, as
training, `predict` and exported models do, and by the operations that runtimes have
for it. Prints the largest and the mean difference of a pixel from 0 to 255.
"""

import numpy as np
from sklearn.datasets import load_sample_images

from cct_keras.runtime.resize import resize

SIDES = (32, 224, 600)


def main():
    """Prints a table: a row for each operation, a column for each size."""
    photos = [photo.astype("float32") for photo in load_sample_images().images]
    print(f"| operation | {' | '.join(f'to {side} pixels' for side in SIDES)} |")
    print(f"|---|{'---|' * len(SIDES)}")
    for name, operation in OPERATIONS.items():
        cells = []
        for side in SIDES:
            differences = [
                np.abs(operation(photo, side) - resize(photo, (side, side)))
                for photo in photos
            ]
            largest = max(difference.max() for difference in differences)
            cells.append(f"{largest:.3f}, mean {np.mean(differences):.4f}")
        print(f"| {name} | {' | '.join(cells)} |")


def tensorflow(image, side, antialias=True, method="bicubic"):
    """What `Preprocessing` does inside a Keras model and a SavedModel."""
    import tensorflow as tf

    resized = tf.image.resize(image, (side, side), method, antialias=antialias)
    return np.clip(resized.numpy(), 0, 255)


def onnxruntime(image, side, antialias=1, coefficient=-0.5):
    """The operation `Resize` of ONNX, opset 18."""
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto
    from onnx import helper

    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode="cubic",
        cubic_coeff_a=coefficient,
        antialias=antialias,
        exclude_outside=1,
        coordinate_transformation_mode="half_pixel",
    )
    sizes = onnx.numpy_helper.from_array(np.array([1, 3, side, side]), "sizes")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4)
        for name in ("x", "y")
    ]
    graph = helper.make_graph([node], "resize", ends[:1], ends[1:], [sizes])
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    session = ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (output,) = session.run(None, {"x": image.transpose(2, 0, 1)[None]})
    return np.clip(output[0].transpose(1, 2, 0), 0, 255)


def litert(image, side):
    """`RESIZE_BILINEAR`, the nearest to it that LiteRT has."""
    return tensorflow(image, side, antialias=False, method="bilinear")


OPERATIONS = {
    "TensorFlow, bicubic with antialias (the SavedModel)": tensorflow,
    "onnxruntime, cubic with antialias": onnxruntime,
    "onnxruntime, cubic without antialias": lambda image, side: onnxruntime(
        image, side, antialias=0
    ),
    "LiteRT, bilinear without antialias": litert,
}


if __name__ == "__main__":
    main()
