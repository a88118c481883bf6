"""What is raised: bad input, and everything else that ends a call."""

from __future__ import annotations

from typing import Any, Dict, Optional


class ZeroplanError(Exception):
    """The program ended without an answer: a defect, a machine without memory, a missing program."""


class InputError(ZeroplanError, ValueError):
    """Something that was given cannot be used.

    The fields are those of the command line's errors (docs/contract.md section 3).
    """

    def __init__(self, file: str, pointer: str, expected: str, got: str, hint: Optional[str] = None) -> None:
        self.file = file
        """Where it was given: a path, or "command line" for an argument of the call."""
        self.pointer = pointer
        """What was given: a JSON pointer within the file, or the argument as a flag ("--seq")."""
        self.expected = expected
        """What would have been read."""
        self.got = got
        """What stood there."""
        self.hint = hint
        """What to do about it; None where nobody knows."""
        place = "" if file == "command line" else f"{file}: "
        if pointer:
            place += f"{pointer}: "
        text = f"{place}expected {expected}, got {got}"
        super().__init__(text if not hint else f"{text}\nhint: {hint}")

    def __reduce__(self) -> Any:
        return (InputError, (self.file, self.pointer, self.expected, self.got, self.hint))

    @classmethod
    def from_document(cls, error: Dict[str, Any]) -> "InputError":
        """Of the document {"file", "pointer", "expected", "got", "hint"} that the program prints."""
        return cls(
            str(error.get("file") or ""),
            str(error.get("pointer") or ""),
            str(error.get("expected") or ""),
            str(error.get("got") or ""),
            error.get("hint"),
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came. `result` is the best that a search had found by then, or None."""

    def __init__(self, result: Any = None) -> None:
        super().__init__("interrupted")
        self.result = result
