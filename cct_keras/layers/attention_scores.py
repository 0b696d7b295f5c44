import keras


def spec_with_scores(layer: keras.layers.Layer, tokens, return_attention_scores: bool):
    """The symbolic output of a layer that returns its attention weights on request.

    Keras passes only shapes to `compute_output_shape`, so without this function the
    request would be lost on the way.

    Args:
        layer: The layer.
        tokens: Its symbolic input.
        return_attention_scores: Whether the weights are requested.
    """
    shape = layer.compute_output_shape(tokens.shape, return_attention_scores)
    if not return_attention_scores:
        return keras.KerasTensor(shape, dtype=layer.compute_dtype)
    return tuple(keras.KerasTensor(one, dtype=layer.compute_dtype) for one in shape)
