"""Which line of the program an operation comes from."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_TORCH = None


def program_place():
    """The file and the line, or nothing."""
    global _TORCH
    if _TORCH is None:
        import torch

        _TORCH = os.path.dirname(os.path.abspath(torch.__file__))
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HERE) and not file.startswith(_TORCH):
            return file, frame.f_lineno
        frame = frame.f_back
    return ()
