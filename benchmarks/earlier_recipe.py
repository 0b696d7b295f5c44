"""`small` as it was before Muon, with which most of these benchmarks were measured."""

from cct_keras.recipes.recipe import Recipe

SMALL_BEFORE = Recipe(
    about="`small` before Muon.",
    epochs=50,
    batch_size=64,
    optimizer="adamw",
    lr=2e-3,
    min_lr=1e-5,
    schedule="cosine",
    per_step=True,
    warmup_epochs=3,
    warmup_lr=1e-6,
    weight_decay=0.05,
    decay_exempt="positions",
    clip_norm=1.0,
    label_smoothing=0.1,
    crop="auto",
    crop_padding=0.125,
    flip="auto",
    augment="auto-color",
    attention_dropout=0.0,
    stochastic_depth=0.0,
)
