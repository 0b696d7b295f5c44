"""Adam in one pass over the weights on TensorFlow, where Keras makes a dozen."""

import keras


def apply_adam(
    variable, momentum, velocity, gradient, *, step, rate, beta_1, beta_2, epsilon
) -> None:
    """Updates a variable and its moments by one operation of TensorFlow.

    `ResourceApplyAdam` exists for every device and computes what Keras computes.

    Args:
        variable: A `tf.Variable`.
        momentum: Keras variable, the mean of the gradients.
        velocity: Keras variable, the mean of their squares.
        gradient: The gradient.
        step: Number of this update, from 1.
        rate: Learning rate.
        beta_1: Decay of the momentum.
        beta_2: Decay of the velocity.
        epsilon: Added to the root of the velocity.
    """
    import tensorflow as tf

    step = keras.ops.cast(step, variable.dtype)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        beta1_power=tf.pow(tf.cast(beta_1, variable.dtype), step),
        beta2_power=tf.pow(tf.cast(beta_2, variable.dtype), step),
        lr=tf.cast(rate, variable.dtype),
        beta1=beta_1,
        beta2=beta_2,
        epsilon=epsilon,
        grad=tf.cast(gradient, variable.dtype),
    )


class FusedUpdate:
    """Mixed into Adam or AdamW: on TensorFlow an update is one operation."""

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable and its moments in place."""
        if keras.config.backend() != "tensorflow" or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        apply_adam(
            variable,
            self._momentums[index],
            self._velocities[index],
            gradient,
            step=self.iterations + 1,
            rate=learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
        )
