"""The emulated GPU's own numbers (rehearsal/libraries/gpu/record.cpp)."""
import ctypes
import os

_gpu = ctypes.CDLL(None)
_gpu.zeroplan_gpu_number.restype = ctypes.c_size_t
_gpu.zeroplan_gpu_number.argtypes = [ctypes.c_char_p]
_gpu.zeroplan_gpu_unknown.restype = ctypes.c_size_t


def is_real():
    """The GPU is there: what runs on it is true, and of CUDA only NCCL is emulated (rehearsal/real_gpu)."""
    return os.environ.get("ZEROPLAN_GPU_EVENTS") == "real"


def number(name):
    return _gpu.zeroplan_gpu_number(name.encode())


def unknown_functions():
    """Functions of CUDA's libraries that were called and that nobody emulates."""
    size = _gpu.zeroplan_gpu_unknown(None, ctypes.c_size_t(0))
    text = ctypes.create_string_buffer(size + 1)
    _gpu.zeroplan_gpu_unknown(text, ctypes.c_size_t(size + 1))
    return text.value.decode().split()


def writes():
    """Whether what is put on the streams is written down (rehearsal/libraries/gpu/record.hpp)."""
    return bool(_gpu.zeroplan_gpu_writes())


def note(kind, text):
    _gpu.zeroplan_gpu_note(kind.encode(), text.encode())


def mark(phase):
    note("mark", phase)


def leave_out(nanoseconds):
    """Of this thread's time until its next line: what the rehearsal took, not the program."""
    _gpu.zeroplan_gpu_leave_out(ctypes.c_uint64(max(0, nanoseconds)))


def lock(count):
    """Bytes of the host's memory that stay where they are, by mlock: CUDA does not know of them."""
    _gpu.zeroplan_gpu_lock(ctypes.c_size_t(count))


def unlock(count):
    _gpu.zeroplan_gpu_unlock(ctypes.c_size_t(count))


def read_settings():
    """The GPU is what the environment says now. Before its first use only."""
    _gpu.zeroplan_gpu_read_settings()
