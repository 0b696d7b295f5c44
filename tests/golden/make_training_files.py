"""Writes tiny files of training scripts as torch and its wrappers do; see README."""

import argparse
import collections
import pathlib
import sys

import numpy as np
import torch
from lightning_fabric.utilities.data import AttributeDict
from omegaconf import OmegaConf

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import reference  # noqa: E402

# One block on 8x8 images, by timm's names.
TINY_VIT = {
    "tokens": 4,
    "num_classes": 3,
    "num_layers": 1,
    "embedding_dim": 8,
    "mlp_ratio": 1,
    "patch_size": 4,
}


class Net(torch.nn.Module):
    """A model by the names of a state dict, and no more of it."""

    def __init__(self, state):
        super().__init__()
        for name, value in state.items():
            *path, leaf = name.split(".")
            place = self
            for part in path:
                if not hasattr(place, part):
                    place.add_module(part, torch.nn.Module())
                place = place.get_submodule(part)
            place.register_parameter(leaf, torch.nn.Parameter(value.clone()))

    def forward(self, x):
        return x


def tensors(state, plus=0):
    return {name: torch.from_numpy(array + plus) for name, array in state.items()}


def training_parts():
    """Optimizer, scheduler and scaler after a step, by their own state dicts."""
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = torch.optim.AdamW([weight], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    return optimizer.state_dict(), scheduler.state_dict(), scaler.state_dict()


def options():
    return argparse.Namespace(
        lr=0.1,
        output=pathlib.Path("runs"),
        device=torch.device("cpu"),
        mean=(0.5, 0.5, 0.5),
        milestones={30, 60},
        frozen=frozenset({"tokenizer"}),
        counts=collections.Counter("aab"),
        groups=collections.defaultdict(list, {"a": [1]}),
        last=collections.deque([1.0], maxlen=5),
        named=collections.OrderedDict(a=1),
        classes=np.arange(3),
        dtype=np.dtype("float32"),
        best=np.float32(0.5),
    )


def main():
    folder = FOLDER / "training_files"
    cct = reference.random_state(**reference.TINY)
    vit = reference.random_vit_state(**TINY_VIT)
    optimizer, scheduler, scaler = training_parts()

    def save(content, name, **how):
        torch.save(content, folder / name, **how)

    timm = {
        "epoch": 3,
        "arch": "cct_2_3x2_32",
        "state_dict": tensors(cct),
        "optimizer": optimizer,
        "version": 2,
        "args": argparse.Namespace(lr=0.1, mean=(0.5, 0.5, 0.5), output=None),
        "amp_scaler": scaler,
        "state_dict_ema": tensors(cct, plus=1),
        "metric": np.float64(0.5),
    }
    save(timm, "timm.pth.tar")
    plain = {name: value for name, value in timm.items() if name != "state_dict_ema"}
    plain["args"] = options()
    save(plain, "legacy.pth", _use_new_zipfile_serialization=False)
    save(plain, "protocol4.pth", pickle_protocol=4)

    deit = {
        "model": tensors(vit),
        "optimizer": optimizer,
        "lr_scheduler": scheduler,
        "epoch": 1,
        "scaler": scaler,
        "args": options(),
    }
    save(deit, "deit.pth")
    lightning = {
        "epoch": 1,
        "global_step": 10,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {f"model.{name}": x for name, x in tensors(cct).items()},
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {}}}},
        "callbacks": {
            "ModelCheckpoint{'monitor': 'loss'}": {
                "best_model_score": torch.tensor(0.5),
                "best_k_models": {"a.ckpt": torch.tensor(0.5)},
            }
        },
        "optimizer_states": [optimizer],
        "lr_schedulers": [scheduler],
        "hparams_name": "kwargs",
        "hyper_parameters": AttributeDict(lr=0.1, args=options()),
    }
    save(lightning, "lightning.ckpt")
    config = OmegaConf.create({"lr": 0.1, "name": "a", "sizes": [1, 2.5, True, None]})
    save({"state_dict": tensors(cct), "hyper_parameters": config}, "omegaconf.ckpt")
    save(
        {"model": tensors(cct, plus=1), "model_ema": tensors(cct), "args": options()},
        "model_ema.pth",
    )
    save({"backbone": tensors(cct), "args": options()}, "one_unknown_entry.pth")
    save({"a": {"x": torch.ones(2)}, "b": {"x": torch.zeros(2)}}, "two_unknown.pth")

    compiled = torch.compile(Net(tensors(cct)))
    save(compiled.state_dict(), "compiled.pth")
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    parallel = torch.nn.parallel.DistributedDataParallel(compiled)
    save({"state_dict": parallel.state_dict()}, "ddp_compiled.pth")
    torch.distributed.destroy_process_group()
    averaged = torch.optim.swa_utils.AveragedModel(Net(tensors(cct)))
    averaged.update_parameters(Net(tensors(cct)))
    save(averaged.state_dict(), "averaged_model.pth")

    for name, state, head in (
        ("headless_cct.pth", cct, "classifier.fc."),
        ("headless_without_pool.pth", cct, ("classifier.fc.", "classifier.att")),
        ("headless_vit.pth", vit, "head."),
    ):
        body = {k: x for k, x in tensors(state).items() if not k.startswith(head)}
        save(body, name)

    mixed = {**tensors(cct), "args": argparse.Namespace(lr=0.1), "mean": np.ones(3)}
    save({"state_dict": mixed}, "options_among_weights.pth")
    save(torch.nn.Sequential(torch.nn.Linear(2, 2)), "whole_model.pth")
    save({"model": Net({"weight": torch.ones(2)}), "epoch": 1}, "whole_model_own.pth")
    script = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
    torch.jit.save(script, folder / "torchscript.pt")


if __name__ == "__main__":
    main()
