"""The simplest disk: everything in memory, durable at once. For tests that are not about the disk."""

from raftlog.base.errors import DiskError


class MemoryFile:
    def __init__(self, content: bytearray, path: str) -> None:
        self.content = content
        self.path = path

    def read_at(self, position, size):
        return bytes(self.content[position : position + size])

    def write_at(self, position, parts):
        data = b"".join(parts)
        if position > len(self.content):
            self.content.extend(bytes(position - len(self.content)))
        self.content[position : position + len(data)] = data

    def truncate(self, size):
        if size < len(self.content):
            del self.content[size:]
        else:
            self.content.extend(bytes(size - len(self.content)))

    def sync(self):
        pass

    def size(self):
        return len(self.content)

    def close(self):
        pass


class MemoryDisk:
    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.directories: dict[str, None] = {"": None}
        self.syncs = 0

    def open(self, path, *, create=False, write=True):
        if create:
            if path in self.files:
                raise DiskError("file exists", on=path)
            self.files[path] = bytearray()
        if path not in self.files:
            raise DiskError("no such file", on=path)
        return MemoryFile(self.files[path], path)

    def list(self, path):
        prefix = path + "/" if path else ""
        names = [p[len(prefix) :] for p in [*self.files, *self.directories] if p.startswith(prefix)]
        return sorted({name.split("/")[0] for name in names if name})

    def exists(self, path):
        return path in self.files or path in self.directories

    def make_dir(self, path):
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            self.directories["/".join(parts[:count])] = None

    def rename(self, old, new):
        if old in self.files:
            self.files[new] = self.files.pop(old)
            return
        raise DiskError("no such file", on=old)

    def remove(self, path):
        if path in self.files:
            del self.files[path]
        elif path in self.directories:
            del self.directories[path]
        else:
            raise DiskError("no such file", on=path)

    def sync_dir(self, path):
        pass

    def sync_all(self):
        pass

    def free_bytes(self):
        return 1 << 40
