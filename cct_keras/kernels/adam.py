"""Adam in one pass over the weights on TensorFlow, where Keras makes a dozen."""

import keras


class FusedUpdate:
    """Mixed into Adam or AdamW: on TensorFlow an update is one operation.

    TensorFlow's `ResourceApplyAdam` exists for every device and computes what Keras
    computes.
    """

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable and its moments in place."""
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
