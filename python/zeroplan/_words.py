"""Arguments of a call as the words of a command line."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Type, cast

from ._models import Model, model_of
from ._runs import read_run

# Linux takes no word of 128 KiB and more (MAX_ARG_STRLEN); longer documents go through a file.
_LONGEST_WORD = 100_000

# Python's names of flags that are words of the language, or are called so by everybody.
_OTHER_NAMES = {"from_": "from"}


class Words:
    """The words of one call; as a context, the files that some of them name live as long as it."""

    def __init__(self, command: str) -> None:
        self.list: List[str] = [command]
        self._folder: Optional["tempfile.TemporaryDirectory[str]"] = None

    def __enter__(self) -> "Words":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def add_flags(self, flags: Mapping[str, Any]) -> None:
        """Keyword arguments as flags: seq=4096 is --seq 4096. None is not said."""
        for name, value in flags.items():
            if value is None:
                continue
            flag = "--" + _OTHER_NAMES.get(name, name).replace("_", "-")
            if value is True and name in _SWITCHES:
                self.list.append(flag)
            elif value is False and name in _SWITCHES:
                continue
            elif name in _REPEATED:
                for key, one in dict(cast(Any, value)).items():
                    self.list += [flag, f"{key}={_range(one)}"]
            elif name == "clusters" and not isinstance(value, str):
                self.list += [flag, ",".join(cast(Any, value))]
            else:
                self.list += [flag, self._value(name, value)]

    def add_files(self, paths: Any) -> None:
        """One path, or several."""
        several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        # A name that begins with a hyphen is a name.
        self.list += ["--", *(os.fspath(path) for path in several)]

    def _value(self, name: str, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, os.PathLike):
            return str(os.fspath(value))
        if isinstance(value, (dict, list)):
            text = json.dumps(value)
            named = name in _FILES or len(text) >= _LONGEST_WORD
            return self.file(f"{name}.json", text) if named else text
        return str(value)

    def file(self, name: str, text: str) -> str:
        """The path of a file with that text, which lives as long as this context."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="zeroplan-")
        path = Path(self._folder.name) / name
        path.write_text(text, encoding="utf-8")
        return str(path)


# Switches of the commands: said or not said, without a value.
_SWITCHES = frozenset({"all", "brief", "estimate", "force", "no_search", "quick", "require_fit", "together", "time", "strict", "why"})
# {"stage": 3, "micro_batch_size": (1, 8), "offload": ["none", "cpu"]}: said once for each key.
_REPEATED = frozenset({"fix", "search"})
# Flags that name a file: lists go there.
_FILES = frozenset({"lengths"})


def _range(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]}..{value[1]}"
    if isinstance(value, (list, tuple)):
        return ",".join(str(one) for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


# Short names, so that what is said counts over the same of a run.
_LONG_NAMES = {
    "seq": "sequence_length",
    "mbs": "micro_batch_size",
    "gas": "gradient_accumulation_steps",
    "global_batch": "global_batch_size",
    "ckpt": "activation_checkpointing",
}


def question(model: Any, cluster: Any, run: Any, flags: Dict[str, Any]) -> Dict[str, Any]:
    """The flags of a question: what the run says, over it the model's own adapter, over both what was said."""
    said: Dict[str, Any] = {}
    if run is not None:
        said.update(read_run(run))
    if model is not None:
        found: Model = model_of(model)
        said["model"] = found.value
        said.update({name: value for name, value in found.flags.items() if value is not None})
    if cluster is not None:
        said["cluster"] = cluster
    said.update({_LONG_NAMES.get(name, name): value for name, value in flags.items() if value is not None})
    return said
