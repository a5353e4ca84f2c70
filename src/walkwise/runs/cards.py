"""Graphics cards in a run: where workers compute, which workers share a card, and cards that have failed."""

from __future__ import annotations

import copy
import os

import torch
from torch import nn

from walkwise.errors import InputError, WalkwiseError

#: How many workers share a card unless the caller says otherwise: most of their time is Python, not arithmetic.
PER_CARD = 8

#: What a process takes of a card's memory besides its tensors, at most, in bytes.
_CONTEXT = 1 << 30


class CardLostError(WalkwiseError):
    """The card has failed, as after an index out of bounds: this process can compute nothing more on it."""


def as_place(device: str | torch.device | None, model: nn.Module) -> str:
    """Where workers compute: the given device, or where the model is.

    Args:
        device: as the caller gives it.
        model: the model.
    """
    try:
        place = torch.device(device) if device is not None else _where(model)
    except (RuntimeError, TypeError) as error:
        raise InputError(argument="device", expected='a device such as "cpu" or "cuda"', got=device) from error
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(
            argument="device",
            expected=f"one of the {count} CUDA devices of this machine" if count else "a device that this machine has",
            got=str(place),
            remedy=None if count else "Leave device out to compute on the CPU.",
        )
    return str(place)


def on_processor(model: nn.Module) -> nn.Module:
    """The model in main memory, to send to workers: itself, or a copy if it is elsewhere."""
    tensors = [*model.parameters(), *model.buffers()]
    return model if all(t.device.type == "cpu" for t in tensors) else copy.deepcopy(model).to("cpu")


def workers_by_default(place: str) -> int:
    """The default number of workers: one per core, and on cards no more than are of use."""
    cores, device = os.cpu_count() or 1, torch.device(place)
    if device.type == "cpu":
        return cores
    cards = torch.cuda.device_count() if device.type == "cuda" and device.index is None else 1
    return min(cores, PER_CARD * cards)


def seat(place: str, number: int, crew: int) -> torch.device:
    """The device of one of several workers, which take the cards in turn; workers on one card share its memory.

    Args:
        place: where workers compute; "cuda" for all cards.
        number: which worker this is, from 0.
        crew: how many there are.
    """
    device = torch.device(place)
    if device.type != "cuda":
        return device
    cards = torch.cuda.device_count() if device.index is None else 1
    device = torch.device("cuda", number % cards if device.index is None else device.index)
    total, sharing = torch.cuda.get_device_properties(device).total_memory, -(-crew // cards)
    torch.cuda.set_per_process_memory_fraction(max(0.01, 1 / sharing - _CONTEXT / total), device)
    return device


def check_card(device: str | torch.device) -> None:
    """After an error on a card: free its memory if it can still be used, otherwise raise :class:`CardLostError`.

    Args:
        device: where the error was.
    """
    if torch.device(device).type != "cuda":
        return
    try:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    except RuntimeError as error:
        raise CardLostError("The graphics card reports an error that this process cannot recover from.") from error


def can_fork(place: str) -> bool:
    """Whether forked child processes can compute there, found by letting a child try."""
    if torch.device(place).type == "cpu":
        return True
    if torch.device(place).type != "cuda" or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    child = os.fork()
    if child == 0:
        try:
            torch.zeros(1, device=place)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _where(model: nn.Module) -> torch.device:
    first = next(iter([*model.parameters(), *model.buffers()]), None)
    return torch.device("cpu") if first is None else first.device
