"""Which linear layers inside a layer are quantized, as its configuration says it."""

import keras
from keras.dtype_policies import QuantizedDTypePolicy


@keras.saving.register_keras_serializable(package="cct_keras")
class ProjectionPolicies(keras.dtype_policies.DTypePolicyMap):
    """The dtype of a layer that has quantized linear layers.

    `Model.quantize` changes the linear layers inside a layer, and Keras leaves it to
    that layer to write down which. A `DTypePolicyMap` is its vehicle for that; this one
    also keeps how each of them quantizes its input, without which a file would compute
    something else than the model that was saved.

    Args:
        default_policy: Name of the policy of everything else in the layer.
        policy_map: `{name of the linear layer: its policy}`
        quantization_configs: `{name of the linear layer: its serialized quantization
            config}`

    Example:

    >>> policies = ProjectionPolicies("float32", {"qkv": "int8_from_float32"})
    >>> policies["qkv"].quantization_mode, policies["proj"].quantization_mode
    ('int8', None)
    """

    def __init__(
        self,
        default_policy: str | None = None,
        policy_map: dict | None = None,
        quantization_configs: dict | None = None,
    ):
        policies = {
            name: keras.dtype_policies.get(policy)
            for name, policy in (policy_map or {}).items()
        }
        super().__init__(default_policy, policies)
        self.quantization_configs = dict(quantization_configs or {})

    @classmethod
    def of(cls, layer: keras.layers.Layer) -> "ProjectionPolicies":
        """The policies of a layer as it is; it is empty if nothing is quantized."""
        quantized = {
            sublayer.name: sublayer
            for sublayer in layer._flatten_layers(include_self=False)
            if isinstance(sublayer.dtype_policy, QuantizedDTypePolicy)
        }
        configs = {
            name: keras.saving.serialize_keras_object(sublayer.quantization_config)
            for name, sublayer in quantized.items()
        }
        policies = {name: sublayer.dtype_policy for name, sublayer in quantized.items()}
        return cls(layer.dtype_policy.name, policies, configs)

    def config_of(self, name: str):
        """The quantization config of a linear layer; `None` if it has none."""
        config = self.quantization_configs.get(name)
        return keras.saving.deserialize_keras_object(config)

    def get_config(self):
        config = super().get_config()
        return {**config, "quantization_configs": self.quantization_configs}
