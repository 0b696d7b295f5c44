"""Adam in one pass over the weights on TensorFlow, where Keras makes a dozen."""

import keras


class FusedUpdate:
    """Mixed into Adam: TensorFlow's own kernel, which computes the same."""

    def update_step(self, gradient, variable, learning_rate):
        if keras.config.backend() != "tensorflow" or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        index = self._get_variable_index(variable)
        step = keras.ops.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(tf.cast(self.beta_1, variable.dtype), step),
            beta2_power=tf.pow(tf.cast(self.beta_2, variable.dtype), step),
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )


@keras.saving.register_keras_serializable(package="cct_keras")
class FusedAdamW(FusedUpdate, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, faster on TensorFlow."""


def find_adamw() -> type[keras.optimizers.AdamW]:
    """The faster AdamW of the backend; that of torch already is."""
    tensorflow = keras.config.backend() == "tensorflow"
    return FusedAdamW if tensorflow else keras.optimizers.AdamW
