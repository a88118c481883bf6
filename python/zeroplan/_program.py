"""Finds the program, runs it, and turns how it ends into a document or an exception.

The program is a process of its own: an answer is the command line's answer, a crash is an exception and no dead
kernel, other Python threads go on meanwhile, and the package needs no ABI of Python's.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._errors import InputError, Interrupted, ZeroplanError

DONE, ANSWER_IS_NO, SOME_BAD_LINES = 0, 3, 4
BAD_INPUT = 2
INTERRUPTED = 128 + signal.SIGINT
_SECONDS_TO_END = 20.0  # how long a search may take to say its best so far after Ctrl-C


class Ended(NamedTuple):
    """How a run of the program ended."""

    code: int
    out: str
    log: str


def program() -> str:
    """The path of the program: of $ZEROPLAN_PROGRAM, of this installation, of this clone, or of the PATH."""
    said = os.environ.get("ZEROPLAN_PROGRAM")
    if said:
        return said
    for path in (_installed(), _of_clone()):
        if path is not None:
            return path
    found = shutil.which("zeroplan")
    if found is None:
        raise ZeroplanError(
            "the program zeroplan was not found beside this package, nor on the PATH; "
            "install the package with pip, or name the program in ZEROPLAN_PROGRAM"
        )
    return found


def _installed() -> Optional[str]:
    """What pip wrote down where it put the program."""
    from importlib import metadata

    try:
        files = metadata.files("zeroplan") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "zeroplan" and file.parent.name in ("bin", "Scripts"):
            path = Path(str(file.locate())).resolve()
            if os.access(path, os.X_OK):
                return str(path)
    return None


def _of_clone() -> Optional[str]:
    """The repository's own script, which builds the program where that is needed."""
    root = Path(__file__).resolve().parent.parent.parent
    script = root / "zeroplan"
    return str(script) if (root / "CMakeLists.txt").is_file() and os.access(script, os.X_OK) else None


def _environment() -> Dict[str, str]:
    """The class of a model that the program does not know is asked in this Python, unless another is named."""
    return {"ZEROPLAN_PYTHON": sys.executable or "python3", **os.environ}


def run(
    words: Sequence[str], *, progress: Optional[bool] = None, text_in: Optional[str] = None, keep_log: bool = True
) -> Ended:
    """Runs the program with `words` and returns what it printed.

    progress: True shows its progress bar on sys.stderr, None where sys.stderr is a terminal. keep_log: False hands
    its standard error through to sys.stderr line by line (a rehearsed program's output).
    Raises ZeroplanError where it cannot be started, Interrupted on Ctrl-C.
    """
    shown = _is_terminal(sys.stderr) if progress is None else progress
    reader, log_to = _log_ends(shown)
    try:
        child = subprocess.Popen(
            [program(), *words],
            stdin=subprocess.PIPE if text_in is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_to,
            env=_environment(),
        )
    except OSError as error:
        os.close(reader)
        raise ZeroplanError(f"{program()} could not be started: {error.strerror}") from error
    finally:
        os.close(log_to)
    log = _LogReader(reader, echo=shown or not keep_log)
    log.start()
    try:
        out, _ = child.communicate(None if text_in is None else text_in.encode())
    except KeyboardInterrupt:
        out = _end(child)
        log.join()
        raise _Stopped(Ended(INTERRUPTED, out.decode("utf-8", "replace"), log.text())) from None
    log.join()
    return Ended(child.returncode, out.decode("utf-8", "replace"), log.text())


class _Stopped(KeyboardInterrupt):
    """Ctrl-C while the program ran, with what it had printed by its end."""

    def __init__(self, ended: Ended) -> None:
        super().__init__("interrupted")
        self.ended = ended


def document(words: Sequence[str], *, progress: Optional[bool] = None, keep_log: bool = True) -> Tuple[Dict[str, Any], int]:
    """The JSON document that a command prints, and its exit code.

    Raises InputError for bad input, ZeroplanError for everything else that gives no document.
    """
    try:
        ended = run([*words[:1], "--json", *words[1:]], progress=progress, keep_log=keep_log)
    except _Stopped as stopped:
        best = _parsed(stopped.ended.out)
        raise Interrupted(best) from None
    _tell(ended.log)
    found = _parsed(ended.out)
    if ended.code == BAD_INPUT and found is not None and "error" in found and isinstance(found["error"], dict):
        raise InputError.from_document(found["error"])
    if found is None or ended.code not in (DONE, 1, ANSWER_IS_NO, SOME_BAD_LINES):
        raise ZeroplanError(_why(words[0], ended))
    return found, ended.code


def _tell(log: str) -> None:
    """What the program said beside its answer, as records: what it read of another tool's file, what it assumed."""
    for line in log.splitlines():
        if line.strip() and "\x1b" not in line:  # no bar of a terminal
            logging.getLogger("zeroplan").info("%s", line)


def _parsed(text: str) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _why(command: str, ended: Ended) -> str:
    how = f"signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    return f"zeroplan {command} ended with {how}:\n{ended.log.strip()[-2000:]}"


def _end(child: "subprocess.Popen[bytes]") -> bytes:
    """Lets a search say its best so far; a second Ctrl-C, or too long a wait, ends the program at once."""
    try:
        # The terminal tells the whole group, a notebook's kernel only itself. Told twice is told once.
        child.send_signal(signal.SIGINT)
        return child.communicate(timeout=_SECONDS_TO_END)[0]
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        child.kill()
        return child.communicate()[0]


# --- standard error


def _is_terminal(stream: Union[IO[str], None]) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _log_ends(terminal: bool) -> Tuple[int, int]:
    """Where the program's standard error is read and written: a terminal where its progress bar shall show."""
    if terminal:
        try:
            import pty

            return pty.openpty()
        except (ImportError, OSError):
            pass  # no terminal to be had: no bar
    return os.pipe()


class _LogReader(threading.Thread):
    """Reads standard error to its end; writes it to sys.stderr where it is to be seen."""

    def __init__(self, descriptor: int, echo: bool) -> None:
        super().__init__(daemon=True)
        self._descriptor = descriptor
        self._echo = echo
        self._parts: List[bytes] = []

    def run(self) -> None:
        while True:
            try:
                part = os.read(self._descriptor, 65536)
            except OSError:  # EIO: the terminal's other end is closed
                break
            if not part:
                break
            self._parts.append(part)
            if self._echo:
                self._show(part)
        os.close(self._descriptor)

    def _show(self, part: bytes) -> None:
        try:
            sys.stderr.write(part.decode("utf-8", "replace").replace("\r\n", "\n"))
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            self._echo = False  # nobody looks any more

    def text(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace").replace("\r\n", "\n")


def main() -> None:
    """`python -m zeroplan`: the program itself, in this process's place."""
    path = program()
    os.execve(path, [path, *sys.argv[1:]], _environment())
