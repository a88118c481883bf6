"""Images beside the text: what the class's own image processor makes of so many of one size in each sequence, and where their tokens stand."""

import inspect
import os
import tempfile

import torch

from .config_keys import IMAGE_TOKENS
from .passes import watched
from .problem import Problem
from .recorder import Recorder


def _processor(config, folder):
    """The processor of the checkpoint where its folder is there, and that of its class with what the config says of it elsewhere."""
    import transformers
    from transformers.models.auto import image_processing_auto as auto

    if folder and os.path.isfile(os.path.join(folder, "preprocessor_config.json")):
        return auto.AutoImageProcessor.from_pretrained(folder)
    names = auto.IMAGE_PROCESSOR_MAPPING_NAMES.get(config.model_type)
    names = [names.get("torchvision"), names.get("pil")] if isinstance(names, dict) else reversed([names] if isinstance(names, str) else names or [])
    name = next((name for name in names if name), None)
    if name is None:
        raise Problem("a class with an image processor in transformers", config.model_type, "")
    kind = getattr(transformers, name)
    with tempfile.TemporaryDirectory() as place:  # read as programs read it, which decides which library makes images of it
        kind(**_said(kind(), config.vision_config)).save_pretrained(place)
        return auto.AutoImageProcessor.from_pretrained(place)


def _said(usual, vision):
    """What the config of the tower says of its images, as a processor calls it."""
    said = {}
    side, patch = _side(getattr(vision, "image_size", None)), _side(getattr(vision, "patch_size", None))
    for key in ("size", "crop_size"):
        old = getattr(usual, key, None)
        kept = [name for name in ("height", "width", "shortest_edge", "longest_edge") if old is not None and getattr(old, name, None)]
        if side and kept and (kept != ["longest_edge"] and kept != ["shortest_edge", "longest_edge"]):
            said[key] = {name: side for name in kept}
    tile = (getattr(usual, "max_image_size", None) or {}).get("longest_edge")
    if side and tile:  # images are cut into tiles of the tower's size; how many at most stays
        said["max_image_size"] = {"longest_edge": side}
        said["size"] = {"longest_edge": usual.size.longest_edge * side // tile}
    if patch and hasattr(usual, "patch_size"):
        said["patch_size"] = patch if isinstance(usual.patch_size, int) else {"height": patch, "width": patch}
    for key, name in (("merge_size", "spatial_merge_size"), ("temporal_patch_size", "temporal_patch_size")):
        if hasattr(usual, key) and getattr(vision, name, None):
            said[key] = getattr(vision, name)
    return said


def _image(size):
    try:
        from PIL import Image
    except ImportError as error:
        raise Problem("Pillow in the Python that traces", str(error), "pip install pillow torchvision: transformers' image processors need them")
    return Image.new("RGB", size)


def _side(value):
    value = value[0] if isinstance(value, (list, tuple)) and value else value
    return value if isinstance(value, int) else None


class Images:
    """`count` of `size` (width, height) in each sequence; `tokens`: that each takes of it."""

    def __init__(self, model, config, folder, count, size):
        self.model, self.count, self.size = model, count, size
        self.token = next((value for key in IMAGE_TOKENS if isinstance(value := getattr(config, key, None), int)), None)
        if self.token is None or getattr(config, "vision_config", None) is None:
            raise Problem("a class that takes images", type(model).__name__, "")
        self.processor = _processor(config, folder)
        self.takes = set(inspect.signature(model.forward).parameters)
        self.tokens = self._features(self.inputs(1)) // count

    @property
    def length(self):
        """Of the part of a sequence that holds them: each has a token of the text behind it."""
        return self.count * (self.tokens + 1)

    def inputs(self, batch):
        """What the processor hands to the model for so many sequences; a pixel has its value: some classes look for images that are padding."""
        image = _image(self.size)
        made = self.processor(images=[[image] * self.count] * batch, return_tensors="pt")
        return {name: value for name, value in made.items() if name in self.takes and isinstance(value, torch.Tensor)}

    def _features(self, inputs):
        """How many the class makes of the images of one sequence, each of which takes the place of a token."""
        function = getattr(self.model, "get_image_features", None)
        if function is None:
            raise Problem("a class that says what it makes of images (get_image_features)", type(self.model).__name__, "")
        takes = inspect.signature(function).parameters
        wide = any(one.kind is one.VAR_KEYWORD for one in takes.values())
        with torch.no_grad(), watched(Recorder(), self.model):
            made = function(**{name: value for name, value in inputs.items() if wide or name in takes})
        made = getattr(made, "pooler_output", made)
        return sum(one.numel() // one.shape[-1] for one in (made if isinstance(made, (list, tuple)) else [made]))

    def marks(self, batch, sequence):
        """1 where a token is of an image."""
        marks = torch.zeros(batch, sequence, dtype=torch.int64)
        for first in range(0, self.length, self.tokens + 1):
            marks[:, first:first + self.tokens] = 1
        return marks
