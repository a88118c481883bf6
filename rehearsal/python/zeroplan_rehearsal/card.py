"""The emulated card's own numbers (rehearsal/libraries/card/record.cpp)."""
import ctypes

_card = ctypes.CDLL(None)
_card.zeroplan_card_number.restype = ctypes.c_size_t
_card.zeroplan_card_number.argtypes = [ctypes.c_char_p]
_card.zeroplan_card_unknown.restype = ctypes.c_size_t


def number(name):
    return _card.zeroplan_card_number(name.encode())


def unknown_functions():
    """Functions of CUDA's libraries that were called and that nobody emulates."""
    size = _card.zeroplan_card_unknown(None, ctypes.c_size_t(0))
    text = ctypes.create_string_buffer(size + 1)
    _card.zeroplan_card_unknown(text, ctypes.c_size_t(size + 1))
    return text.value.decode().split()


def writes():
    """Whether what is put on the streams is written down (rehearsal/libraries/card/record.hpp)."""
    return bool(_card.zeroplan_card_writes())


def note(kind, text):
    _card.zeroplan_card_note(kind.encode(), text.encode())


def mark(phase):
    note("mark", phase)


def leave_out(nanoseconds):
    """Of this thread's time until its next line: what the rehearsal took, not the program."""
    _card.zeroplan_card_leave_out(ctypes.c_uint64(max(0, nanoseconds)))


def lock(count):
    """Bytes of the host's memory that stay where they are, by mlock: CUDA does not know of them."""
    _card.zeroplan_card_lock(ctypes.c_size_t(count))


def unlock(count):
    _card.zeroplan_card_unlock(ctypes.c_size_t(count))


def read_settings():
    """The card is what the environment says now. Before its first use only."""
    _card.zeroplan_card_read_settings()
