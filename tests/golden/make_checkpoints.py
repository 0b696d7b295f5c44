"""Writes a tiny checkpoint in each of torch's formats; see README.md."""

import pathlib
import sys
import zipfile

import torch

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import reference  # noqa: E402


def main():
    folder = FOLDER / "checkpoints"
    state = {
        name: torch.from_numpy(array)
        for name, array in reference.random_state(**reference.TINY).items()
    }
    torch.save(state, folder / "zip.pth")
    torch.save(state, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save(state, folder / "protocol4.pth", pickle_protocol=4)
    torch.save({k: v.half() for k, v in state.items()}, folder / "half.pth")
    torch.save({k: v.bfloat16() for k, v in state.items()}, folder / "bfloat16.pth")
    torch.save({k: v.double() for k, v in state.items()}, folder / "double.pth")
    parameters = {k: torch.nn.Parameter(v) for k, v in state.items()}
    torch.save(parameters, folder / "parameters.pth")

    strided = {
        k: v.t().contiguous().t() if v.ndim == 2 else v for k, v in state.items()
    }
    torch.save(strided, folder / "strided.pth")
    flat = torch.cat([v.flatten() for v in state.values()])
    shared, start = {}, 0
    for name, value in state.items():
        shared[name] = flat[start : start + value.numel()].view(value.shape)
        start += value.numel()
    torch.save(shared, folder / "shared.pth")
    torch.save(
        shared, folder / "shared_legacy.pth", _use_new_zipfile_serialization=False
    )
    for key in ("state_dict", "state_dict_ema", "model", "model_state_dict"):
        torch.save({"epoch": 3, key: state}, folder / f"in_{key}.pth")
    torch.save({f"module.{k}": v for k, v in state.items()}, folder / "module.pth")
    torch.serialization.set_crc32_options(False)
    torch.save(state, folder / "no_crc.pth")
    with zipfile.ZipFile(folder / "one.pth.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "zip.pth", "one.pth")
        archive.writestr("__MACOSX/._one.pth", b"finder")


if __name__ == "__main__":
    main()
