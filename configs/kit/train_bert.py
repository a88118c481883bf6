#!/usr/bin/env python3
"""Trains a masked language model (BERT) with DeepSpeed alone, as scenario.json says, and records the run."""

from common import mask_tokens, parser
from native import train


def main():
    flags = parser(__doc__)
    flags.add_argument("--mask-token", type=int, default=103, help="103 in BERT's vocabularies")
    arguments = flags.parse_args()
    from transformers import AutoModelForMaskedLM

    def prepare(sample, index, config):
        mask_token = min(arguments.mask_token, config.vocab_size - 1)
        return mask_tokens(sample, config.vocab_size, mask_token, arguments.seed + index)

    train(arguments, AutoModelForMaskedLM, prepare)


if __name__ == "__main__":
    main()
