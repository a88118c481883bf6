"""Images beside the text of each sequence, as many and as large as planned.

Without data the pictures are blank and the text is random. Rows of data are .jsonl: "images", a list of files, and "text" with
the processor's own mark where each of them stands. A row is a sequence: its end is cut or padded.
"""

import inspect
import json

import torch
from common import Sequences, Text


def draw_nothing_of_nothing():
    """Where weights are born partitioned, a layer's first values are drawn while it is whole. Towers of some classes (SigLIP) draw
    those of the layers within once more, which are empty then, and end there."""
    whole = torch.nn.init._calculate_fan_in_and_fan_out
    torch.nn.init._calculate_fan_in_and_fan_out = lambda tensor: whole(tensor) if tensor.numel() > 0 else (1, 1)


class TextWithImages(Text):
    def __init__(self, arguments, scenario, model):
        from transformers import AutoImageProcessor, AutoProcessor

        whole = getattr(model, "get_base_model", lambda: model)()  # without adapters
        self.arguments, self.config = arguments, whole.config
        self.vocabulary, self.length = whole.config.get_text_config().vocab_size, scenario["workload"]["sequence_length"]
        said = scenario["model"]["images"]
        self.count, self.tokens, self.token, self.size = said["count"], said["tokens"], said["token"], (said["width"], said["height"])
        self.takes = set(inspect.signature(whole.forward).parameters)
        self.words = AutoProcessor.from_pretrained(arguments.tokenizer or arguments.model) if arguments.data else None
        self.images = self.words.image_processor if self.words else AutoImageProcessor.from_pretrained(arguments.model)

    def read(self):
        if not self.arguments.data:
            return None
        with open(self.arguments.data, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.strip()]

    def sequences(self, count, seed, rows):
        return ReadRows(self, count, rows) if rows else MadeUpRows(self, count, seed)

    def row(self, ids, pictures):
        """A sample; tokens of images are no labels."""
        rest = (0, self.length - len(ids))
        labels = ids.masked_fill(ids == self.token, -100)
        return {"input_ids": torch.nn.functional.pad(ids, rest), "labels": torch.nn.functional.pad(labels, rest, value=-100),
                "attention_mask": torch.nn.functional.pad(torch.ones_like(ids), rest), "images": pictures}

    def collate(self, rows):
        """The processor sees the images of all rows together: classes stack or join what it makes of them."""
        pictures = [row.pop("images") for row in rows]
        batch = super().collate(rows)
        for name in ("token_type_ids", "mm_token_type_ids"):
            batch[name] = (batch["input_ids"] == self.token).long()
        batch.update(self.images(images=pictures, return_tensors="pt"))
        return {name: value for name, value in batch.items() if name in self.takes}


class MadeUpRows(Sequences):
    def __init__(self, data, count, seed):
        from PIL import Image

        super().__init__(data.length, count, data.vocabulary, seed)
        self.data, self.picture = data, Image.new("RGB", data.size)
        marks = {value for key, value in data.config.to_dict().items() if key.endswith(("token_id", "token_index"))}
        self.marks = torch.tensor([value for value in marks if isinstance(value, int)])

    def __getitem__(self, index):
        data, ids = self.data, super().__getitem__(index)["input_ids"]
        while (found := torch.isin(ids, self.marks)).any():  # tokens that stand for something else than text
            ids[found] += 1
            ids %= self.vocabulary
        for first in range(0, data.count * (data.tokens + 1), data.tokens + 1):  # a token of text behind each image
            ids[first : first + data.tokens] = data.token
        return data.row(ids, [self.picture] * data.count)


class ReadRows(torch.utils.data.Dataset):
    def __init__(self, data, count, rows):
        self.data, self.count, self.rows = data, count, rows

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        from PIL import Image

        data, row = self.data, self.rows[index % len(self.rows)]
        if len(row["images"]) != data.count:
            raise SystemExit(f"a row has {len(row['images'])} images, the plan has {data.count} in each sequence")
        pictures = [Image.open(file).convert("RGB").resize(data.size) for file in row["images"]]
        ids = torch.tensor(data.words(text=[row["text"]], images=[pictures])["input_ids"][0])
        if (ids[data.length :] == data.token).any():
            raise SystemExit(f"a row has images behind its first {data.length} tokens")
        return data.row(ids[: data.length], pictures)
