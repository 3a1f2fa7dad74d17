"""Kueue's messages on gangs that do not fit."""

from headgate.core.topology.counts import ShapeCounts
from headgate.core.topology.shaping import Gang


def not_fit(counts: ShapeCounts, gang: Gang, level: int, fitting: int) -> str:
    """Why a gang does not fit at a level where this many of its slices do."""
    topology = f'topology "{counts.tree.topology}"'
    if gang.layers:
        return f"{topology} doesn't allow to fit{_by_layer(counts, gang, level)}{_excluded(counts)}"
    unit = "pod" if gang.shape.slice_size == 1 else "slice"
    if fitting == 0:
        return f"{topology} doesn't allow to fit any of {gang.slices} {unit}(s){_excluded(counts)}"
    return f"{topology} allows to fit only {fitting} out of {gang.slices} {unit}(s){_excluded(counts)}"


def _by_layer(counts: ShapeCounts, gang: Gang, level: int) -> str:
    """How many slices of each layer fit into the domain with the most slices."""
    tree = counts.tree
    values = tree.by_level[level].values
    best = min(tree.by_level[level].alive().tolist(), key=lambda each: (-counts.slices[level][each], values[each]))
    text = ""
    for layer in gang.layers:
        if layer.topology not in tree.levels:
            continue
        at = tree.levels.index(layer.topology)
        fitting = sum(int(counts.pods[at][each]) // layer.size for each in _below(counts, level, best, at))
        text += f"; {fitting}/{gang.pods // layer.size} slice(s) fit on level {layer.topology}"
    return text


def _below(counts: ShapeCounts, level: int, domain: int, at: int) -> list[int]:
    domains = [domain]
    for each in range(level, at):
        domains = [child for parent in domains for child in counts.tree.by_level[each].children[parent]]
    return domains


def _excluded(counts: ShapeCounts) -> str:
    """Why leaves take no pod: requirements on nodes, the domain that a replacement has to be in, and what is short."""
    reasons: dict[str, int] = {}
    alive = counts.tree.leaves.alive().tolist()
    reachable = counts.reachable()
    for leaf in alive:
        if leaf in counts.filter.why:
            reason = counts.filter.why[leaf]
        elif not reachable[leaf]:
            reason = "topologyDomain"
        elif counts.pods[-1][leaf] == 0:
            reason = f'resource "{counts.limiting(leaf)}"'
        else:
            continue
        reasons[reason] = reasons.get(reason, 0) + 1
    if not reasons:
        return ""
    texts = sorted(f"{reason}: {count}" for reason, count in reasons.items())
    return f". Total nodes: {len(alive)}; excluded: {', '.join(texts)}"
