import keras


class Linear(keras.layers.Dense):
    """`keras.layers.Dense` on torch, faster for matrices on the CPU.

    There the library of the convolutions multiplies up to 1.3 times as fast as that of
    the matrix products, adds the bias on the way and does both also backwards.
    """

    def call(self, x, training=None):
        if self.lora_enabled or not _suits(x):
            return super().call(x, training=training)
        import torch

        # Each row is a pixel, each column a channel.
        pixels = x[None, None].permute(0, 3, 1, 2)
        kernel = self.kernel.value.t()[..., None, None]
        bias = None if self.bias is None else self.bias.value
        x = torch.nn.functional.conv2d(pixels, kernel, bias)
        return x.permute(0, 2, 3, 1).reshape(-1, self.units)

    def quantize(self, mode=None, type_check=True, **options):
        # Keras refuses subclasses, as their `call` could be anything.
        return super().quantize(mode, type_check=False, **options)


def _suits(x):
    import torch

    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.dim() == 2
        and len(x) > 0
        and torch.backends.mkldnn.is_available()
        and not torch.compiler.is_exporting()
    )
