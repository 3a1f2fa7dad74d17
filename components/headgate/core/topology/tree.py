"""The tree of domains of one flavor, and what is free in its lowest level."""


class FlavorTopology:
    """
    The tree of one flavor.

    `levels` are the node labels of its topology, widest first; `by_host` means that the lowest one is the hostname;
    `topology` is the name of the topology.
    """

    name: str
    topology: str
    levels: tuple[str, ...]
    by_host: bool
