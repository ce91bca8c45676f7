"""Moves a run's state from a member that has it to one that lacks it.

The sender sends the plain values, and where its large host tensors are in its memory. A receiver on the same machine
reads them there; otherwise it asks for them, and they are sent tensor after tensor.
"""

import pickle
from dataclasses import dataclass
from typing import Any

import torch

from eunomia_appmaster.training.live.groups import PeerGroup
from eunomia_appmaster.training.live.memory import Memory, memory_of, read

HEAD_BYTES = 1 << 15
"""Bytes of the first message: the plain values of most jobs fit into it."""
SMALL_BYTES = 1 << 16
"""Tensors of fewer bytes are sent together."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """The placeholder of a tensor in a state that is sent."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


class StateTransfer:
    """A state on its way to a member; the sender must not change it before ``finish`` returns.

    Args:
        group: the group of both.
        state: tensors and plain values.
        to: rank of the receiver.

    Raises:
        PeerLostError: the member is gone.
    """

    def __init__(self, group: PeerGroup, state: Any, to: int) -> None:
        self._group, self._to = group, to
        tensors: list[torch.Tensor] = []
        skeleton = _taken_apart(state, tensors)
        self._flats, self._large = _packed(tensors)
        data = pickle.dumps((skeleton, memory_of([each for each in self._large if _is_on_host(each)])))
        head = len(data).to_bytes(8, "big") + data[:HEAD_BYTES]
        group.send(torch.frombuffer(bytearray(head.ljust(8 + HEAD_BYTES)), dtype=torch.uint8), to).wait()
        if len(data) > HEAD_BYTES:
            group.send(torch.frombuffer(bytearray(data[HEAD_BYTES:]), dtype=torch.uint8), to).wait()
        self._waiting = [group.send(each, to, tag) for tag, each in enumerate(self._flats.values())]

    def finish(self) -> None:
        """Send what the receiver has not read itself; returns once it has the whole state.

        Raises:
            PeerLostError: the member is gone.
        """
        has_read = torch.zeros(1, dtype=torch.uint8)
        self._group.receive(has_read, self._to).wait()
        large = [each for each in self._large if not (has_read[0] and _is_on_host(each))]
        first = len(self._flats)
        waiting = [self._group.send(each, self._to, first + tag) for tag, each in enumerate(large)]
        for each in (*self._waiting, *waiting):
            each.wait()


Layout = list[tuple[tuple[int, ...], torch.dtype]]
"""Shapes and types of the large tensors of a state in host memory, in order."""


def layout_of(state: Any) -> Layout:
    """Return the layout of a state's large host tensors, for which the receiver has memory."""
    return [(tuple(each.shape), each.dtype) for each in large_tensors(state)]


def large_tensors(state: Any) -> list[torch.Tensor]:
    """Return a state's large host tensors in order; copies of those that are not contiguous."""
    tensors: list[torch.Tensor] = []
    _taken_apart(state, tensors)
    return [each for each in tensors if _is_on_host(each) and not _is_small(each)]


def room_for(layout: Layout) -> list[torch.Tensor]:
    """Return tensors of a layout whose memory is touched, since a transfer into untouched memory is slow."""
    return [torch.empty(shape, dtype=dtype).fill_(0) for shape, dtype in layout]


def receive(group: PeerGroup, source: int, device: torch.device, room: list[torch.Tensor]) -> Any:
    """Receive a state from a member; GPU tensors are placed on ``device``, others in ``room`` where they fit.

    Raises:
        PeerLostError: the member is gone.
    """
    head = torch.empty(8 + HEAD_BYTES, dtype=torch.uint8)
    group.receive(head, source).wait()
    data = head.numpy().tobytes()
    length, data = int.from_bytes(data[:8], "big"), data[8:]
    if length > HEAD_BYTES:
        rest = torch.empty(length - HEAD_BYTES, dtype=torch.uint8)
        group.receive(rest, source).wait()
        data += rest.numpy().tobytes()
    # The data comes from a process of the same job, over connections whose addresses only the job's processes have.
    skeleton, memory = pickle.loads(data[:length])
    slots: list[_Slot] = []
    _slots(skeleton, slots)
    where = {"cpu": torch.device("cpu"), "cuda": device}
    tensors = [_room(slot, where[slot.device], room) for slot in slots]
    flats, large = _packed(tensors)
    waiting = [group.receive(each, source, tag) for tag, each in enumerate(flats.values())]
    missing = _not_read(memory, large)
    group.send(torch.tensor([len(missing) < len(large)], dtype=torch.uint8), source).wait()
    waiting += [group.receive(each, source, len(flats) + tag) for tag, each in enumerate(missing)]
    for each in waiting:
        each.wait()
    _unpack(flats, tensors)
    return _put_together(skeleton, tensors)


def _not_read(memory: Memory, large: list[torch.Tensor]) -> list[torch.Tensor]:
    """Read the host tensors in the sender's memory; returns the tensors that it must send."""
    host = [each for each in large if _is_on_host(each)]
    return [each for each in large if not _is_on_host(each)] if host and read(memory, host) else large


def _room(slot: _Slot, device: torch.device, room: list[torch.Tensor]) -> torch.Tensor:
    fits = bool(room) and device.type == "cpu" and (tuple(room[0].shape), room[0].dtype) == (slot.shape, slot.dtype)
    return room.pop(0) if fits else torch.empty(slot.shape, dtype=slot.dtype, device=device)


def _taken_apart(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a state with each tensor replaced by its slot; the tensors are appended to a list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().contiguous())
        return _Slot(len(tensors) - 1, tuple(value.shape), value.dtype, value.device.type)
    if isinstance(value, dict):
        return {key: _taken_apart(each, tensors) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_taken_apart(each, tensors) for each in value)
    return value


def _put_together(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _Slot):
        return tensors[value.number]
    if isinstance(value, dict):
        return {key: _put_together(each, tensors) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_together(each, tensors) for each in value)
    return value


def _slots(value: Any, found: list[_Slot]) -> None:
    if isinstance(value, _Slot):
        found.append(value)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _slots(each, found)


def _is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() < SMALL_BYTES


def _packed(
    tensors: list[torch.Tensor],
) -> tuple[dict[tuple[torch.dtype, torch.device], torch.Tensor], list[torch.Tensor]]:
    """Return the small tensors, concatenated by type and device, and the large ones."""
    alike: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in filter(_is_small, tensors):
        alike.setdefault((tensor.dtype, tensor.device), []).append(tensor.reshape(-1))
    flats = {kind: torch.cat(each) for kind, each in alike.items()}
    return flats, [tensor for tensor in tensors if not _is_small(tensor)]


def _unpack(flats: dict[tuple[torch.dtype, torch.device], torch.Tensor], tensors: list[torch.Tensor]) -> None:
    used = dict.fromkeys(flats, 0)
    for tensor in filter(_is_small, tensors):
        kind = tensor.dtype, tensor.device
        end = used[kind] + tensor.numel()
        tensor.copy_(flats[kind][used[kind] : end].view_as(tensor))
        used[kind] = end
