"""raftlog: a replicated, partitioned, append-only log that speaks the Apache Kafka protocol.

Public names are loaded on first use, so that importing one floor never imports the whole tower:

    import raftlog

    with raftlog.Cluster(brokers=3) as cluster:
        print(cluster.bootstrap_servers)
"""

from importlib import import_module

__all__ = ["Cluster", "ReplicatedLog", "verify"]

# Public name -> the module that defines it.
_HOMES = {
    "Cluster": "raftlog.embed.cluster",
    "ReplicatedLog": "raftlog.embed.replicated_log",
}


def _refuse_optimised(debug: bool) -> None:
    """Raise RuntimeError under `python -O`: our assertions guard data and must run."""
    if not debug:
        raise RuntimeError(
            "raftlog does not run under python -O or PYTHONOPTIMIZE: its assertions protect "
            "acknowledged records. Start Python without that option."
        )


_refuse_optimised(__debug__)


def __getattr__(name: str) -> object:
    """Load a public name from its home module, once."""
    if name == "verify":
        return import_module("raftlog.verify")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    imported = import_module("raftlog.base.imports").imported
    value: object = getattr(imported(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not, and nothing else."""
    return sorted(__all__)
