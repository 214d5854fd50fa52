"""The session of a console: opened when a host is first asked, so a console starts where no host can be reached."""

from __future__ import annotations

from contextlib import ExitStack

from fleet.model.inventory import Inventory
from fleet.progress import Silent
from fleet.session import Session, connect
from fleet.settings import Settings


class Opened:
    """`opened()` is the session. After `close` the next call opens another one."""

    def __init__(self, inventory: Inventory, settings: Settings) -> None:
        self.inventory = inventory
        self.settings = settings
        self._session: Session | None = None
        self._stack = ExitStack()

    def __call__(self) -> Session:
        """Raises HostError where the inventory's hosts cannot be provided: the lab is not up."""
        if self._session is None:
            self._session = self._stack.enter_context(connect(self.inventory, self.settings, Silent()))
        return self._session

    def close(self) -> None:
        self._session = None
        self._stack.close()
