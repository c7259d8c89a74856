"""Decides which calls of a simulated disk fail, before they do anything or after they are done."""

from typing import final

import attrs

from raftlog.base.errors import DiskError


@final
@attrs.define(eq=False)
class _Failing:
    """Fails calls of one operation on paths that contain a text."""

    operation: str
    path_part: str
    error: type[DiskError]
    skip: int
    count: int
    late: bool

    def hits(self, operation: str, path: str, late: bool) -> bool:
        """Whether this call fails; counts the call if it matches."""
        if self.operation != operation or self.late is not late or self.path_part not in path:
            return False
        if self.count <= 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.count -= 1
        return True


@final
@attrs.define(eq=False)
class DiskErrors:
    """The failures that were asked for and have not come yet."""

    _failing: list[_Failing] = attrs.Factory(list)

    def ask(
        self, operation: str, path_part: str, error: type[DiskError], skip: int, count: int,
        late: bool,
    ) -> None:  # fmt: skip
        """See `SimulatedDisk.fail`."""
        self._failing.append(_Failing(operation, path_part, error, skip, count, late))

    def forget(self, path_part: str = "") -> None:
        """Withdraw the failures that were asked for with this path part; "" withdraws all."""
        kept = [one for one in self._failing if path_part and one.path_part != path_part]
        self._failing[:] = kept

    def check(self, operation: str, path: str, *, late: bool = False) -> None:
        """Raise the error that this call should fail with; `late` says that the call is done."""
        for one in self._failing:
            if one.hits(operation, path, late):
                raise one.error(f"injected failure of {operation}", on=path)
