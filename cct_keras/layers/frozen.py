import keras


def stay_frozen(layer: keras.layers.Layer) -> None:
    """Freezes what a frozen layer has built inside.

    From a file Keras restores `trainable` of a layer, but not of those in it.
    """
    if not layer.trainable:
        # Setting what is set already reaches nothing.
        layer.trainable = True
        layer.trainable = False
