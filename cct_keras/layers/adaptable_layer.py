import keras

from cct_keras.layers.linear import Linear
from cct_keras.layers.projection_policies import ProjectionPolicies


class AdaptableLayer(keras.layers.Layer):
    """A layer whose linear layers can be replaced or quantized.

    A subclass overrides `make_projection`, and nothing else has to know: this is how
    `cct_keras.finetuning` puts adapters into a block. What `Model.quantize` does to
    them is written into the `dtype` of the configuration, and made again from there.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._projection_policies = None
        if isinstance(self.dtype_policy, ProjectionPolicies):
            self._projection_policies = self.dtype_policy
            # What is not quantized has the policy that the whole layer had before.
            self.dtype_policy = self.dtype_policy.default_policy

    def make_projection(
        self, name: str, units: int, use_bias: bool = True
    ) -> keras.layers.Layer:
        """Makes one of the linear layers, not built yet.

        Args:
            name: Name of the linear layer: `"qkv"`, `"proj"`, `"linear1"` or
                `"linear2"`; `"attention"` in `SeqPool`.
            units: Width of its output.
            use_bias: Whether it has a bias.
        """
        policies = self._projection_policies
        return Linear(
            units,
            use_bias=use_bias,
            trainable=self.trainable,
            dtype=self.dtype_policy if policies is None else policies[name],
            quantization_config=None if policies is None else policies.config_of(name),
            name=name,
        )

    def get_config(self):
        config = super().get_config()
        policies = ProjectionPolicies.of(self) or self._projection_policies
        if policies:
            config["dtype"] = keras.dtype_policies.serialize(policies)
        return config

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
