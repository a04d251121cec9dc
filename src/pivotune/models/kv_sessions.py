"""The caches of episodes: one slot a session, so that a turn computes only what is new."""

from collections.abc import Mapping
from dataclasses import dataclass

from pivotune.models.kv_cache import Arena, CacheShape
from pivotune.models.rows import Ids

CAPACITY_STEP = 256


@dataclass(slots=True, eq=False)
class Session:
    """A slot of the session arena and the ids whose keys it holds."""

    slot: int
    ids: Ids = ()


class SessionStore:
    """Sessions by name, the least recently used first. Never more than `most_tokens` of memory."""

    def __init__(self, shape: CacheShape, most_tokens: int) -> None:
        self._shape = shape
        self._most_tokens = most_tokens
        self._sessions: dict[str, Session] = {}
        self.arena = Arena(shape, 0, 0)

    def reserve(self, lengths: Mapping[str, int]) -> None:
        """Make room for sessions of these lengths at once, as far as memory allows."""
        new = [name for name in lengths if name not in self._sessions]
        slots = max(self.arena.slots, len(self._sessions) + len(new))
        capacity = max(lengths.values(), default=0)
        if capacity > self.arena.capacity:
            capacity = max(capacity, self.arena.capacity * 5 // 4)
            capacity = -(-capacity // CAPACITY_STEP) * CAPACITY_STEP
        capacity = max(capacity, self.arena.capacity)
        if slots * capacity <= self._most_tokens:
            self.arena.grow(slots, capacity)

    def open(self, name: str, length: int, busy: set[str]) -> Session | None:
        """A session with room for `length` tokens, new or as it was left.

        Others than the busy ones may be dropped for it. None when there is no room.
        """
        session = self._sessions.pop(name, None) or Session(self._find_slot(busy))
        slots = max(self.arena.slots, session.slot + 1)
        capacity = max(self.arena.capacity, length)
        if slots * capacity > self._most_tokens:
            return None
        self.arena.grow(slots, capacity)
        self._sessions[name] = session
        return session

    def close(self, name: str) -> None:
        self._sessions.pop(name, None)
        if not self._sessions:
            self.arena = Arena(self._shape, 0, 0)

    def clear(self) -> None:
        self._sessions.clear()
        self.arena = Arena(self._shape, 0, 0)

    def _find_slot(self, busy: set[str]) -> int:
        """A free slot, that of the session longest out of use, or the next new one."""
        used = {session.slot for session in self._sessions.values()}
        for slot in range(self.arena.slots):
            if slot not in used:
                return slot
        if (self.arena.slots + 1) * self.arena.capacity > self._most_tokens:
            for name, session in self._sessions.items():
                if name not in busy:
                    del self._sessions[name]
                    return session.slot
        return self.arena.slots
