"""ViT and DeiT by timm's names, which the authors of DeiT use too."""

from cct_keras.converter.name_table import NameTable

TABLE = NameTable(
    layers=(
        ("tokenizer/conv_0", "patch_embed.proj"),
        ("block_{i}/norm1", "blocks.{i}.norm1"),
        ("block_{i}/attention/qkv", "blocks.{i}.attn.qkv"),
        ("block_{i}/attention/proj", "blocks.{i}.attn.proj"),
        ("block_{i}/norm2", "blocks.{i}.norm2"),
        ("block_{i}/feed_forward/linear1", "blocks.{i}.mlp.fc1"),
        ("block_{i}/feed_forward/linear2", "blocks.{i}.mlp.fc2"),
        ("norm", "norm"),
        ("head", "head"),
        ("head_dist", "head_dist"),
    ),
    tensors={
        "position_embedding/embeddings": "pos_embed",
        "class_token/token": "cls_token",
        "distillation_token/token": "dist_token",
    },
    block_order="pre_norm",
    description="a vision transformer",
)
