#!/usr/bin/env python3
"""Trains a causal language model with DeepSpeed alone, as scenario.json says, and records the run."""

from common import parser
from native import train


def main():
    arguments = parser(__doc__).parse_args()
    from transformers import AutoModelForCausalLM

    train(arguments, AutoModelForCausalLM)


if __name__ == "__main__":
    main()
