#!/bin/sh
# A Python that has transformers, as far as `fit` asks it: its releases, and the document of a class.
case "$1" in
  -c) printf 'transformers 5.17.0, torch 2.11.0' ;;
  -m)
    output=$(sed -n 's/.*"output":[ ]*"\([^"]*\)".*/\1/p' "$3")
    cp ../fuzz/seeds/trace/llama-none.json "$output"
    ;;
esac
