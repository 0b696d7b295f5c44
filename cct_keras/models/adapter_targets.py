"""Which projections of a model can have an adapter."""

from collections.abc import Sequence

PROJECTIONS = ("qkv", "proj", "linear1", "linear2")


def adapter_places(
    targets: str | Sequence[str], blocks: Sequence[str]
) -> dict[str, list[str]]:
    """`{block: projections}` that are to get an adapter.

    Args:
        targets: See `add_lora`; also one text with commas or spaces between.
        blocks: Names of the blocks.
    """
    if isinstance(targets, str):
        targets = targets.replace(",", " ").split()
    known = {*PROJECTIONS, *(f"{b}/{name}" for b in blocks for name in PROJECTIONS)}
    unknown = [name for name in targets if name not in known]
    if unknown or not targets or not blocks:
        places = f"{blocks[0]} to {blocks[-1]}" if blocks else "there are no blocks"
        raise ValueError(
            f"no layer for an adapter: {', '.join(unknown) or targets}. Expected: "
            f"{', '.join(PROJECTIONS)}, or in one block as block_0/qkv ({places})"
        )
    return {
        block: [x for x in PROJECTIONS if {x, f"{block}/{x}"} & set(targets)]
        for block in blocks
    }
