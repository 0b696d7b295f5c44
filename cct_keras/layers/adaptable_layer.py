import keras

from cct_keras.layers.linear import Linear


class AdaptableLayer(keras.layers.Layer):
    """A layer whose linear layers a subclass can replace.

    A subclass overrides `make_projection`, and nothing else has to know: this is how
    `cct_keras.finetuning` puts adapters into a block.
    """

    def make_projection(
        self, name: str, units: int, use_bias: bool = True
    ) -> keras.layers.Layer:
        """Makes one of the linear layers, not built yet.

        Args:
            name: Name of the linear layer: `"qkv"`, `"proj"`, `"linear1"` or
                `"linear2"`.
            units: Width of its output.
            use_bias: Whether it has a bias.
        """
        return Linear(
            units,
            use_bias=use_bias,
            trainable=self.trainable,
            dtype=self.dtype_policy,
            name=name,
        )

    @classmethod
    def from_config(cls, config):
        """Creates the layer; also from a configuration that version 0.1 wrote.

        There all layers of this kind had an argument `lora`, which was `None` or
        described adapters. Today a layer with adapters is a class of its own, found by
        its registered name.
        """
        config = dict(config)
        layer_class = cls
        if config.get("lora") is None:
            config.pop("lora", None)
        else:
            name = f"cct_keras>LoRA{cls.__name__}"
            layer_class = keras.saving.get_registered_object(name)
        return super(AdaptableLayer, layer_class).from_config(config)
