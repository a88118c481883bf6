"""Weights of single modules: read from a model's folder, drawn at random, written stage by stage."""

import json
import shutil
import zlib
from pathlib import Path

import torch

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE = ("model.safetensors", "pytorch_model.bin")


class Weights:
    """Fills modules that were built without weights. Files are opened for the tensors that are asked for."""

    def __init__(self, folder, model, base, seed):
        self.folder, self.model, self.base, self.seed = Path(folder), model, base, seed
        self.files = self.files_by_name()
        self.last = None  # the file that was read last, and its tensors

    def files_by_name(self):
        """Name of every tensor: its file. Empty where the folder has no weights."""
        for index in INDEXES:
            if (self.folder / index).is_file():
                return json.loads((self.folder / index).read_text(encoding="utf-8"))["weight_map"]
        for name in SINGLE:
            if (self.folder / name).is_file():
                return dict.fromkeys(self.tensors_of(name).keys(), name)
        if any(self.folder.glob("*.safetensors")) or any(self.folder.glob("pytorch_model*.bin")):
            raise SystemExit(f"{self.folder} has weights in pieces and no index of them ({' or '.join(INDEXES)})")
        return {}

    def tensors_of(self, name):
        path = self.folder / name
        if name.endswith(".safetensors"):
            from safetensors import safe_open

            return safe_open(path, "pt")
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)

    def read(self, name):
        # Some are published without the name of the model that has no head.
        known = next((each for each in (name, name.removeprefix(f"{self.base}.")) if each in self.files), None)
        if known is None:
            raise SystemExit(f"{self.folder} has weights and no {name} among them")
        file = self.files[known]
        if self.last is None or self.last[0] != file:
            self.last = (file, self.tensors_of(file))
        tensors = self.last[1]
        return tensors[known] if isinstance(tensors, dict) else tensors.get_tensor(known)

    def fill(self, name, module):
        """`module` with weights in its memory; `name` is the whole model's for it."""
        for part in module.modules():
            for key, parameter in part._parameters.items():
                if parameter is not None:
                    part._parameters[key] = torch.nn.Parameter(torch.empty_like(parameter, device="cpu"))
        with torch.no_grad():
            if not self.files:
                self.draw(name, module)
            else:
                for key, parameter in module.named_parameters():
                    self.copy(self.read(f"{name}.{key}"), f"{name}.{key}", parameter)
        return module

    @staticmethod
    def copy(read, name, parameter):
        if read.shape != parameter.shape:
            raise SystemExit(f"{name} is {tuple(read.shape)} in the model's folder, not {tuple(parameter.shape)}")
        parameter.copy_(read)

    def draw(self, name, module):
        """By the model's own rules; as most do where it has none. The same on any number of stages."""
        torch.manual_seed(self.seed + zlib.crc32(name.encode()))
        for key, parameter in module.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.02)
            else:
                parameter.fill_(0.0 if key.endswith("bias") else 1.0)
        for part in module.modules():
            self.model._init_weights(part)


def save(pipeline, model, folder):
    """The whole model in its own names, a file a stage, with what else from_pretrained() reads of the folder
    `model`. All ranks call it."""
    from safetensors.torch import save_file

    grid = pipeline._grid
    stages, stage = grid.pipe_parallel_size, grid.get_stage_id()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = f"model-{stage + 1:05d}-of-{stages:05d}.safetensors"
    tensors = {}
    if grid.get_data_parallel_id() == 0:
        for layer in pipeline.modules():
            if hasattr(layer, "named_weights") and not (stage > 0 and type(layer).__name__ == "EmbeddingLayer"):
                tensors.update({name: weight.detach().cpu().contiguous() for name, weight in layer.named_weights()})
        save_file(tensors, folder / file, metadata={"format": "pt"})
    held = [None] * torch.distributed.get_world_size()
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    torch.distributed.all_gather_object(held, (file, list(tensors), size))
    if torch.distributed.get_rank() == 0:
        index = {
            "metadata": {"total_size": sum(size for _, _, size in held)},
            "weight_map": {name: file for file, names, _ in held for name in names},
        }
        for path in [Path(model) / "config.json", *Path(model).glob("*.py")]:
            shutil.copy(path, folder)
        (folder / INDEXES[0]).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
