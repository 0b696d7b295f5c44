"""The layers of the compact transformers, one in a file, usable in any model."""

# First of all, so that registering the layers never meets a half-imported module.
import keras  # noqa: F401

from cct_keras.layers.attention_pool import AttentionPool
from cct_keras.layers.class_token import ClassToken
from cct_keras.layers.conv_tokenizer import ConvTokenizer
from cct_keras.layers.drop_path import DropPath
from cct_keras.layers.encoder_block import EncoderBlock
from cct_keras.layers.feed_forward import FeedForward
from cct_keras.layers.layer_normalization import LayerNormalization
from cct_keras.layers.layer_scale import LayerScale
from cct_keras.layers.multi_head_self_attention import MultiHeadSelfAttention
from cct_keras.layers.position_embedding import PositionEmbedding
from cct_keras.layers.preprocessing import Preprocessing
from cct_keras.layers.register_tokens import RegisterTokens
from cct_keras.layers.seq_pool import SeqPool
from cct_keras.layers.token_pool import TokenPool

__all__ = [
    "AttentionPool",
    "ClassToken",
    "ConvTokenizer",
    "DropPath",
    "EncoderBlock",
    "FeedForward",
    "LayerNormalization",
    "LayerScale",
    "MultiHeadSelfAttention",
    "PositionEmbedding",
    "Preprocessing",
    "RegisterTokens",
    "SeqPool",
    "TokenPool",
]
