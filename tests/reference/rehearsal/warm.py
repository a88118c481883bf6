#!/usr/bin/env python3
"""Runs scripts in children of a process that has imported torch, transformers and DeepSpeed: seconds less a run.

warm.py serve SOCKET        imports, then waits for runs, one after the other; to be started under `zeroplan rehearse`
warm.py run SOCKET SCRIPT…  runs SCRIPT there with this process's arguments, environment, folder and output

`zeroplan rehearse … -- PYTHON warm.py run SOCKET train.py LINE.json` is for the program what `PYTHON train.py LINE.json`
would be: the child begins before CUDA does, as a rehearsal of its own.
"""
import atexit
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback

_LONGEST = 1 << 20  # bytes of a request


def _import_all():
    """What a training script imports, without asking the GPU: it would be the server's, not the child's."""
    import types

    import torch
    import torch._dynamo.device_interface  # keeps the functions that are replaced below, for inductor

    asked = {name: getattr(torch.cuda, name) for name in ("get_device_properties", "device_count", "is_available")}
    counted = torch._C._cuda_getDeviceCount
    # DeepSpeed's and transformers' tables of what a GPU can do.
    torch.cuda.get_device_properties = lambda device=0: types.SimpleNamespace(major=8, minor=0)
    torch.cuda.device_count = torch._C._cuda_getDeviceCount = lambda: 1
    torch.cuda.is_available = lambda: True
    for module in ("transformers.modeling_utils", "transformers.trainer", "transformers.integrations", "accelerate",
                   "peft", "deepspeed"):
        __import__(module)
    for name, function in asked.items():
        setattr(torch.cuda, name, function)
    torch._C._cuda_getDeviceCount = counted
    assert not torch.cuda.is_initialized()


# --- the server's side


def _be(request, files):
    """The child: ends with the script."""
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
    os.chdir(request["folder"])
    sys.argv = request["arguments"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    import zeroplan_rehearsal

    zeroplan_rehearsal.begin_again(request["environment"])
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    try:
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait(child, connection):
    """The child's exit code; it is killed when who asked for it has gone."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if select.select([connection], [], [], 0.02)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 1


def serve(path):
    _import_all()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    while True:
        connection, _ = server.accept()
        with connection:
            text, files, _, _ = socket.recv_fds(connection, _LONGEST, 2)
            while not text.endswith(b"\n"):
                text += connection.recv(_LONGEST)
            child = os.fork()
            if child == 0:
                server.close()
                _be(json.loads(text), files)
            for file in files:
                os.close(file)
            try:
                connection.sendall(b"%d\n" % _wait(child, connection))
            except OSError:
                pass  # who asked has gone


# --- the side of who asks


def run(path, arguments):
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        text = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(connection, [text], [1, 2])
        connection.sendall(text[sent:])
        code = int(connection.makefile().readline() or 1)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        run(sys.argv[2], sys.argv[3:])
