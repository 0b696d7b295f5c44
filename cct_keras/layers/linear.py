import keras


class Linear(keras.layers.Dense):
    """`keras.layers.Dense` for a matrix, faster on the CPU with torch.

    There the library of the convolutions multiplies up to 1.3 times as fast as that of
    the matrix products, adds the bias on the way and does both also backwards.
    """

    def call(self, x, training=None):
        if keras.config.backend() != "torch":
            return super().call(x, training=training)
        import torch

        kernel = self.kernel.value
        if x.device.type != "cpu" or x.dtype != torch.float32 or self.quantization_mode:
            return super().call(x, training=training)
        # Each row is a pixel, each column a channel.
        pixels = x[None, None].permute(0, 3, 1, 2)
        bias = None if self.bias is None else self.bias.value
        x = torch.nn.functional.conv2d(pixels, kernel.t()[..., None, None], bias)
        return x.permute(0, 2, 3, 1).reshape(-1, self.units)
