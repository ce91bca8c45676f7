"""Captures the state of a run at a step boundary, saves it, and restores it from the last good checkpoint."""

import copy
import pickle
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.training import randomness
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.kept import Kept, KeptModel, KeptOptimizer, State
from eunomia_appmaster.training.place import Place
from eunomia_appmaster.training.plain import plain

FORMAT = 1


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The captured state of a run at one step boundary.

    ``saved``: whether a checkpoint has this state; ``captured_at``: seconds of the monotonic clock; ``redo``: an
    earlier state from which a later start resumes, if any (docs/decisions/0123-before-the-last-batch.md).
    """

    step: int
    place: dict[str, Any]
    objects: list[State]
    randomness: dict[str, Any]
    state: dict[str, Any]
    saved: bool = False
    captured_at: float = field(default_factory=time.monotonic)
    redo: "Snapshot | None" = None

    def values(self) -> list[Any]:
        """Return the objects' states.

        Raises:
            ChangedError: something other than a step has changed parameters since the capture.
        """
        return [state() for state in self.objects]


class Keeper:
    """Saves and restores the objects that ``prepare`` registered, in order, and the position in the loops.

    Args:
        gang: this worker's gang.
        store: the store of the job's checkpoints; None: there are none.
        trusted: whether checkpoints may contain objects of any class, whose unpickling can run code.
    """

    def __init__(self, gang: Gang, store: JobCheckpoints | None, *, trusted: bool = False) -> None:
        self.gang = gang
        self.store = store
        self._trusted = trusted
        self.incarnation = 1
        self.seed: int | None = None
        self.place = Place()
        self.state: dict[str, Any] = {}
        self.loaded_step: int | None = None
        self._kept: list[Kept] = []
        self._loaded: dict[str, Any] | None = None
        self._attempt: int | None = None

    @property
    def kept(self) -> list[Kept]:
        """The registered objects, in order."""
        return self._kept

    def take(self, state: dict[str, Any]) -> None:
        """Load the state of another worker of the gang, as from a checkpoint."""
        self.seed = state["seed"]
        self._go_to(state)

    def restore_taken(self) -> None:
        """Restore all objects from the state that was taken, inside the current loop; random states are unchanged."""
        if self._loaded is not None:
            for index, kept in enumerate(self._kept):
                kept.restore(self._loaded_state(index, kept.kind))
            self._restore_state(self._loaded)
            self._loaded = None

    def restore_choices(self) -> None:
        """Restore all objects except models and optimizers, since a script may choose its loader by these objects.

        Models and optimizers have a large state, which a newcomer restores once, when its loop begins.
        """
        for index, kept in enumerate(self._kept if self._loaded is not None else ()):
            if not isinstance(kept, KeptModel | KeptOptimizer):
                kept.restore(self._loaded_state(index, kept.kind))

    def take_over(self) -> None:
        """Become the store's writer, as the new rank 0 of a gang that continues after a live change."""
        if self.store is not None:
            self.store.begin(self._attempt, self.incarnation, adopt=False)

    def load(self, attempt: int | None = None, incarnation: int | None = None) -> int:
        """Become the store's writer, and load the last good checkpoint if there is one; returns its step, else 0.

        Args:
            attempt: number of the app master's attempt; None: there is no app master.
            incarnation: number of the job's incarnation; None: the one after the last writer's.
        """
        self._attempt = attempt
        path, self.incarnation = self.gang.share(self._begun(attempt, incarnation))
        if path is None or self.gang.newcomer:
            self.state.update(self.gang.peers_state())
            return 0
        loaded = self._read(path)
        if loaded["format"] != FORMAT:
            raise EunomiaError(f"a checkpoint must have format {FORMAT}", value=str(loaded["format"]), place=str(path))
        self.seed = loaded["seed"]
        return self._go_to(loaded)

    @property
    def redo_at(self) -> tuple[int, int] | None:
        """Epoch and step before a loop's last step, if the loaded checkpoint was saved after that step; else None."""
        redo = None if self._loaded is None else self._loaded.get("redo")
        return None if redo is None else (int(redo["place"]["epoch"]), int(redo["step"]))

    def load_redo(self) -> None:
        """Go back from the loaded checkpoint at a loop's end to the state before the loop's last step."""
        if self._loaded is not None:
            self._go_to({**self._loaded, **self._loaded["redo"], "redo": None})

    def _read(self, path: Path) -> dict[str, Any]:
        """Read a checkpoint, without running code in it unless checkpoints are trusted."""
        try:
            loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=not self._trusted)
        except pickle.UnpicklingError as error:
            how = "python -m eunomia_appmaster.training.convert FOLDER makes those of an earlier version so"
            rule = f"a checkpoint must hold tensors and plain values only ({how})"
            raise EunomiaError(rule, value=str(error).partition("\n")[0][:200], place=str(path)) from None
        return loaded

    def plain(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the content of a checkpoint as plain values.

        Raises:
            InputError: it contains values that are not plain, and checkpoints are not trusted.
        """
        if self._trusted:
            return payload
        kinds = [kept.kind for kept in self._kept]
        objects = [plain(state, kind) for state, kind in zip(payload["objects"], kinds, strict=True)]
        redo = payload.get("redo")
        made = {"objects": objects, "state": plain(payload["state"], "run.state")}
        made["place"] = plain(payload["place"], "the state of a loader's generator")
        return payload | made | ({"redo": self.plain(redo)} if redo else {})

    def add(self, kept: Kept) -> None:
        """Register an object, and restore it from the loaded checkpoint, if there is one.

        Raises:
            InputError: the object's state is not plain, so that no checkpoint can contain it.
        """
        if self.store is not None and not self._trusted:
            plain(kept.capture()(), kept.kind)
        self._kept.append(kept)
        if self._loaded is not None:
            kept.restore(self._loaded_state(len(self._kept) - 1, kept.kind))

    def restore_randomness(self) -> None:
        """Restore this worker's random states from the checkpoint; if it has none for this rank, seed by the rank."""
        if self._loaded is None:
            return
        states = self._loaded["randomness"]
        if self.gang.rank < len(states):
            randomness.restore(states[self.gang.rank], self.gang.device)
        else:
            randomness.seed_all(randomness.mix(self._loaded["seed"], self.gang.rank, self._loaded["step"]))

    def rewind(self, *, forget: bool) -> None:
        """Undo the script's changes since ``prepare``, which the checkpoint includes already.

        Args:
            forget: whether to free the loaded checkpoint, since the script has reached its loops.
        """
        if self._loaded is None:
            return
        for index, kept in enumerate(self._kept):
            kept.restore(self._loaded_state(index, kept.kind))
        self._restore_state(self._loaded)
        self.restore_randomness()
        if forget:
            self._loaded = None

    def loaded_snapshot(self) -> Snapshot | None:
        """Return the loaded checkpoint as a snapshot; None: none was loaded."""
        if self.loaded_step is None:
            return None
        return Snapshot(
            step=self.loaded_step, place=self.place.to_plain(), objects=[], randomness={}, state={}, saved=True
        )

    def capture(self, step: int) -> Snapshot:
        """Capture the present state, cheaply: what only ``optimizer.step()`` changes is read when it is requested."""
        return Snapshot(
            step=step,
            place=self.place.to_plain(),
            objects=[kept.capture() for kept in self._kept],
            randomness=randomness.capture(self.gang.device),
            state=copy.deepcopy(self.state),
        )

    def capture_copy(self, step: int) -> Snapshot:
        """Capture a copy of the present state in host memory, which later steps and other code do not change."""
        snapshot = self.capture(step)
        # Only rank 0 writes objects, so no other rank needs the copy, unless it may become rank 0.
        writes = self.gang.rank == 0 or self.gang.live
        snapshot.objects = [_copied(state()) for state in snapshot.objects] if writes else []
        return snapshot

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint; a collective call of all workers, which returns once the checkpoint is on the disk."""
        if self.store is None or snapshot.saved:
            return
        payload: dict[str, Any] = {"format": FORMAT, "seed": self.seed, "kinds": [kept.kind for kept in self._kept]}
        payload |= self._state_of(snapshot)
        payload["redo"] = None if snapshot.redo is None else self._state_of(snapshot.redo)
        if self.gang.rank == 0 and not self.gang.broken:
            payload = self.plain(payload)
            self.store.save(snapshot.step, lambda path: torch.save(payload, path), incarnation=self.incarnation)
        self.gang.highest([0])
        snapshot.saved = not self.gang.broken

    def alone(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return a checkpoint's content without other workers' random states, for a write without a collective call."""
        return {
            "seed": self.seed,
            "kinds": [kept.kind for kept in self._kept],
            "step": snapshot.step,
            "place": snapshot.place,
            "objects": snapshot.values(),
            "randomness": [snapshot.randomness],
            "state": snapshot.state,
            "redo": None,
        }

    def _state_of(self, snapshot: Snapshot) -> dict[str, Any]:
        return {
            "step": snapshot.step,
            "place": snapshot.place,
            "objects": snapshot.values(),
            "randomness": self.gang.gather(snapshot.randomness),
            "state": snapshot.state,
        }

    def _go_to(self, loaded: dict[str, Any]) -> int:
        self._loaded = loaded
        self.loaded_step = int(loaded["step"])
        self.place.load(loaded["place"])
        self._restore_state(loaded)
        return self.loaded_step

    def _begun(self, attempt: int | None, incarnation: int | None) -> tuple[Path | None, int]:
        """Return, on rank 0, the path of the checkpoint to resume from (None: none) and this incarnation's number."""
        if self.store is None or self.gang.rank != 0 or self.gang.newcomer:
            return None, incarnation or 1
        found = self.store.begin(attempt, incarnation)
        number = incarnation if self.store.fence is None else self.store.fence.incarnation
        return None if found is None else found.path, number or 1

    def _restore_state(self, loaded: dict[str, Any]) -> None:
        self.state.clear()
        self.state.update(copy.deepcopy(loaded["state"]))

    def _loaded_state(self, index: int, kind: str) -> Any:
        kinds = [] if self._loaded is None else self._loaded["kinds"]
        if self._loaded is None or index >= len(kinds) or kinds[index] != kind:
            raise EunomiaError(
                f"prepare() must be given what the checkpoint holds, in that order: {', '.join(kinds)}",
                value=f"{kind} at place {index + 1}",
                place=f"checkpoint of step {self.loaded_step}",
            )
        return self._loaded["objects"][index]


def _copied(value: Any) -> State:
    """Return a function that returns a copy of a state with tensors in host memory."""
    copied = _on_host(value)
    return lambda: copied


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _on_host(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_on_host(each) for each in value)
    return copy.deepcopy(value)
