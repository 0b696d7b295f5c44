"""Imports every class that Keras has to know to load a file of this package."""

import cct_keras.distillation.convnet
import cct_keras.distillation.losses
import cct_keras.finetuning.layerwise
import cct_keras.finetuning.lora_dense
import cct_keras.finetuning.lora_layers
import cct_keras.layers
import cct_keras.training.optimizers
import cct_keras.training.schedule  # noqa: F401
