"""Example inputs for classes of transformers: what a data collator hands to the model."""

import inspect

import torch


def _text(batch, sequence, labels_name="labels"):
    ids = torch.ones(batch, sequence, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), labels_name: torch.ones_like(ids)}


_SECONDS, _FRAMES, _SAMPLES = 30, 100, 16000  # of a sound of a class that says no length; in each second


def _audio(config):
    """Sizes of the longest sound that a class takes, to which its feature extractor pads: bins and frames, of which two become one position (Whisper),
    or frames and bins (Speech2Text, FastConformer)."""
    encoder = getattr(config, "encoder_config", None)
    if hasattr(config, "input_feat_per_channel"):
        return config.max_source_positions, config.input_feat_per_channel * config.input_channels
    if hasattr(encoder, "num_mel_bins"):
        return _SECONDS * _FRAMES, encoder.num_mel_bins
    return config.num_mel_bins, 2 * config.max_source_positions


def inputs_for(model, config, images=None):
    name = type(model).__name__
    token = 2 if getattr(config, "pad_token_id", None) == 1 else 1
    takes = set(inspect.signature(model.forward).parameters)

    def labels(batch, sequence):
        if "ForSequenceClassification" in name or "ForImageClassification" in name:
            return {"labels": torch.zeros(batch, dtype=torch.int64)}
        if "ForQuestionAnswering" in name:
            return {"start_positions": torch.zeros(batch, dtype=torch.int64), "end_positions": torch.zeros(batch, dtype=torch.int64)}
        return {"labels": torch.full((batch, sequence), token)}

    def of(batch, sequence):
        inputs = {}
        if "input_ids" in takes:
            inputs["input_ids"] = torch.full((batch, sequence), token)
            if "attention_mask" in takes:
                inputs["attention_mask"] = torch.ones(batch, sequence, dtype=torch.int64)
            if getattr(config, "vision_config", None) is not None:  # which tokens are of images
                marks = torch.zeros(batch, sequence, dtype=torch.int64) if images is None else images.marks(batch, sequence)
                inputs.update({name: marks.clone() for name in ("token_type_ids", "mm_token_type_ids") if name in takes})
            if images is not None:
                inputs["input_ids"][marks == 1] = images.token
                inputs.update(images.inputs(batch))
        elif "input_features" in takes:
            inputs["input_features"] = torch.empty(batch, *_audio(config), dtype=torch.bfloat16, device="meta")
        elif "input_values" in takes:
            inputs["input_values"] = torch.empty(batch, _SECONDS * _SAMPLES, dtype=torch.bfloat16, device="meta")
        elif "pixel_values" in takes:
            size = getattr(config, "image_size", 224)
            sides = size if isinstance(size, (list, tuple)) else (size, size)
            inputs["pixel_values"] = torch.empty(batch, getattr(config, "num_channels", 3), *sides, dtype=torch.bfloat16, device="meta")
        inputs.update(labels(batch, sequence))
        return inputs

    return of
