"""Example inputs for classes of transformers: what a data collator hands to the model."""

import inspect

import torch

from .config_keys import SEE_ALWAYS


def _text(batch, sequence, labels_name="labels"):
    ids = torch.ones(batch, sequence, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), labels_name: torch.ones_like(ids)}


_SECONDS, _FRAMES, _BINS, _SAMPLES = 30, 100, 80, 16000  # of a sound of a class that says no length; in each second, in each frame, in each second


def _audio(config):
    """Sizes of the longest sound that a class takes, to which its feature extractor pads: bins and frames, of which two become one position (Whisper),
    or frames and bins (Speech2Text, FastConformer)."""
    encoder = getattr(config, "encoder_config", None)
    if hasattr(config, "input_feat_per_channel"):
        return config.max_source_positions, config.input_feat_per_channel * config.input_channels
    if hasattr(config, "feature_projection_input_dim"):  # so many bins stand beside each other as there are frames in a row
        return _SECONDS * _FRAMES * _BINS // config.feature_projection_input_dim, config.feature_projection_input_dim
    if hasattr(encoder, "num_mel_bins"):
        return _SECONDS * _FRAMES, encoder.num_mel_bins
    return config.num_mel_bins, 2 * config.max_source_positions


_OF_A_VIDEO = 4  # images, as InstructBLIP's classes take them
_PATCHES = 2048  # of Pix2Struct


def _seen(config, takes, ids):
    """What a class that reads an image with every text is given beside it: one of its tower's size, whose tokens come first."""
    batch, sequence = ids.shape
    side, shape = config.vision_config.image_size, (batch,)
    tokens = getattr(config, "num_query_tokens", 0) or getattr(config, "latent_query_num", 0)
    marks = torch.zeros(batch, sequence, dtype=torch.int64)
    if config.model_type.endswith("video"):
        shape, tokens = (batch, _OF_A_VIDEO), _OF_A_VIDEO * tokens
    if "image_attention_mask" in takes:  # of each token to each image
        shape = (batch, 1)
    marks[:, :tokens] = 1
    for name in ("image_token_index", "video_token_index"):
        if hasattr(config, name):
            ids[marks == 1] = getattr(config, name)
    beside = {"qformer_input_ids": torch.ones_like(ids), "qformer_attention_mask": torch.ones_like(ids), "image_embeds_position_mask": marks,
              "image_attention_mask": torch.ones(batch, sequence, 1, dtype=torch.int64)}
    pixels = torch.empty(*shape, getattr(config.vision_config, "num_channels", 3), side, side, dtype=torch.bfloat16, device="meta")
    return {"pixel_values": pixels, **{name: value for name, value in beside.items() if name in takes}}


def inputs_for(model, config, images=None):
    name = type(model).__name__
    token = 2 if getattr(config, "pad_token_id", None) == 1 else 1
    takes = set(inspect.signature(model.forward).parameters)

    def labels(batch, sequence):
        of_each = torch.zeros(batch, dtype=torch.int64)
        if any(head in name for head in ("ForSequenceClassification", "ForImageClassification", "ForNextSentencePrediction")):
            return {"labels": of_each}
        if "ForQuestionAnswering" in name:
            return {"start_positions": of_each, "end_positions": of_each.clone()}
        words = {"labels": torch.full((batch, sequence), token)}
        return {**words, "next_sentence_label": of_each} if "next_sentence_label" in takes else words

    def of(batch, sequence):
        inputs = {}
        if "input_ids" in takes:
            inputs["input_ids"] = torch.full((batch, sequence), token)
            if "attention_mask" in takes:
                inputs["attention_mask"] = torch.ones(batch, sequence, dtype=torch.int64)
            if getattr(config, "vision_config", None) is not None:  # which tokens are of images
                marks = torch.zeros(batch, sequence, dtype=torch.int64) if images is None else images.marks(batch, sequence)
                inputs.update({name: marks.clone() for name in ("token_type_ids", "mm_token_type_ids") if name in takes})
            if images is None and config.model_type in SEE_ALWAYS:
                inputs.update(_seen(config, takes, inputs["input_ids"]))
            if images is not None:
                inputs["input_ids"][marks == 1] = images.token
                inputs.update(images.inputs(batch))
        elif "input_features" in takes:
            inputs["input_features"] = torch.empty(batch, *_audio(config), dtype=torch.bfloat16, device="meta")
        elif "input_values" in takes:
            inputs["input_values"] = torch.empty(batch, _SECONDS * _SAMPLES, dtype=torch.bfloat16, device="meta")
        elif "flattened_patches" in takes:  # each with its row and column; as many as the processor makes at most
            patches = torch.empty(batch, _PATCHES, 2 + config.vision_config.patch_embed_hidden_size, dtype=torch.bfloat16, device="meta")
            inputs.update(flattened_patches=patches, attention_mask=torch.ones(batch, _PATCHES))
        elif "pixel_values" in takes:
            size = getattr(config, "image_size", 224)
            sides = size if isinstance(size, (list, tuple)) else (size, size)
            inputs["pixel_values"] = torch.empty(batch, getattr(config, "num_channels", 3), *sides, dtype=torch.bfloat16, device="meta")
        inputs.update(labels(batch, sequence))
        return inputs

    return of
