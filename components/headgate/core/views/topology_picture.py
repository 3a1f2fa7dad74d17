"""
A picture of a topology as SVG: nested blocks for the levels, a cell for each domain of the lowest one, as a heat map.

The colour of a cell is how much of a resource is occupied, its grey foot the part of other pods. Titles name what a
block or a cell is (browsers show them as tooltips). Colours are attributes and not styles, and there is no script, so
the picture can be shown under a strict Content-Security-Policy, and takes the text colour of the page around it.

Pure: the same view always gives the same bytes. Size: about 200 bytes for each cell.
"""

from collections.abc import Iterable, Iterator
from math import ceil, sqrt
from typing import Final, NamedTuple

from headgate.core.state.tables import Values
from headgate.core.topology.assignments import HOSTNAME
from headgate.core.views.descriptions import format_amount
from headgate.core.views.topology import DomainUse, DomainView, NodeLeftOut, TopologyView
from headgate.events.ids import WorkloadKey

STEPS: Final = ("#dde4ec", "#b5d3ec", "#6fb1de", "#f2b04d", "#e1743b", "#b5271f")
"""Colours from empty to full. `LEGEND` names them."""
_BOUNDS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
LEGEND: Final = ("empty", "to 25%", "to 50%", "to 75%", "below 100%", "full")
_OTHER: Final = "#5f6a74"
_OUT: Final = "#9aa3ab"

CELL: Final = 14
_GAP: Final = 2
_PAD: Final = 6
_TITLE: Final = 15
_LETTER: Final = 6.2
"""The width of a letter at the size of the titles of blocks."""
WIDTH_MIN: Final = 720
WIDTH_MAX: Final = 1500
WORKLOADS_TOLD_MAX: Final = 5
"""How many workloads the title of a cell names; of more it tells the number."""


class _Block(NamedTuple):
    """A laid-out block: its size, its texts, and its parts with their places in it."""

    width: float
    height: float
    name: str
    caption: str
    title: str
    parts: tuple[tuple[float, float, "_Block | _Cell"], ...]


class _Cell(NamedTuple):
    """A domain of the lowest level; `share` is None for one that is not in the tree."""

    title: str
    share: DomainUse | None


def picture(view: TopologyView, *, names: bool = True) -> str:
    """The SVG document of a view, for its `resource`. Without `names`, titles do not name workloads."""
    out_by_parent: dict[Values, list[NodeLeftOut]] = {}
    elsewhere: list[NodeLeftOut] = []
    parents = set(_parents(view.domains))
    by_node = view.levels[-1:] == (HOSTNAME,)
    for each in view.left_out:
        if by_node and each.values[:-1] in parents:
            out_by_parent.setdefault(each.values[:-1], []).append(each)
        else:
            elsewhere.append(each)
    layout = _Layout(view.resource, names, out_by_parent)
    parts = layout.parts_of(view.domains, ())
    lone = [_Cell(layout.title_out(each), None) for each in elsewhere]
    width = _width_of(parts)
    if lone:
        parts.append(layout.block("not in the tree", "", "", list(lone), width))
    return "".join(_document(view, layout.placed(parts, width)))


def _parents(domains: Iterable[DomainView], above: Values = ()) -> Iterator[Values]:
    yield above
    for each in domains:
        if each.domains:
            yield from _parents(each.domains, (*above, each.value))


class _Layout:
    """Turns domains into blocks. Blocks stand in rows; the width of a block follows from the area of its parts."""

    def __init__(self, resource: str, names: bool, left_out: dict[Values, list[NodeLeftOut]]) -> None:
        self._resource = resource
        self._names = names
        self._left_out = left_out

    def parts_of(self, domains: tuple[DomainView, ...], path: Values) -> list["_Block | _Cell"]:
        """The blocks or cells of sibling domains, with the hosts among them that are not in the tree."""
        parts: list[_Block | _Cell] = []
        found: list[tuple[str, _Cell]] = []
        for each in domains:
            if each.domains:
                below = self.parts_of(each.domains, (*path, each.value))
                share = each.resources[self._resource]
                title = f"{each.level} {each.value}: {self._words(share)}; {each.nodes} nodes"
                parts.append(self.block(each.value, self._brief(share), title, below))
            else:
                found.append((each.value, _Cell(self._title(each), each.resources.get(self._resource, DomainUse()))))
        found += [(each.name, _Cell(self.title_out(each), None)) for each in self._left_out.get(path, ())]
        return parts + [cell for _, cell in sorted(found, key=lambda pair: pair[0])]

    def block(
        self, name: str, caption: str, title: str, parts: list["_Block | _Cell"], width: float | None = None
    ) -> _Block:
        """A block around some parts."""
        letters = len(name) + (len(caption) + 2 if caption else 0)
        titled = min(letters * _LETTER, 190.0)
        inner = self.placed(parts, max(_width_of(parts), titled) if width is None else width - 2 * _PAD)
        wide = max(inner.width, titled)
        room = int(wide / _LETTER)
        shown = name if len(name) <= room else f"{name[: max(room - 1, 1)]}…"
        fits = caption if len(shown) + 2 + len(caption) <= room else ""
        moved = tuple((x + _PAD, y + _TITLE + 3, part) for x, y, part in inner.parts)
        return _Block(wide + 2 * _PAD, inner.height + _TITLE + 3 + _PAD, shown, fits, title or name, moved)

    @staticmethod
    def placed(parts: list["_Block | _Cell"], width: float) -> _Block:
        """Parts in rows of at most a width."""
        placed: list[tuple[float, float, _Block | _Cell]] = []
        x = y = row = widest = 0.0
        for part in parts:
            wide, high = _size(part)
            gap = _GAP if isinstance(part, _Cell) else _PAD
            if x and x + wide > width + 0.01:
                x, y, row = 0.0, y + row + gap, 0.0
            placed.append((x, y, part))
            widest, row = max(widest, x + wide), max(row, high)
            x += wide + gap
        return _Block(widest, y + row, "", "", "", tuple(placed))

    def _words(self, share: DomainUse) -> str:
        def told(value: int) -> str:
            return format_amount(self._resource, value)

        return (
            f"of {told(share.capacity)} {self._resource} {told(share.used)} used, {told(share.other)} by other pods, "
            f"{told(share.free)} free"
        )

    def _brief(self, share: DomainUse) -> str:
        return f"{format_amount(self._resource, share.free)} free"

    def _title(self, domain: DomainView) -> str:
        share = domain.resources.get(self._resource, DomainUse())
        nodes = f"; {domain.nodes} nodes" if domain.nodes != 1 else ""
        return f"{domain.value}: {self._words(share)}{nodes}{self._who(domain.workloads)}"

    def title_out(self, left_out: NodeLeftOut) -> str:
        """The title of a cell that is not in the tree."""
        return f"{left_out.name} is not in the tree: {left_out.why}{self._who(left_out.workloads)}"

    def _who(self, workloads: dict[WorkloadKey, int]) -> str:
        if not workloads or not self._names:
            return ""
        told = [
            f"{pods} {'pod' if pods == 1 else 'pods'} of {key}"
            for key, pods in list(workloads.items())[:WORKLOADS_TOLD_MAX]
        ]
        left = len(workloads) - len(told)
        return "; " + ", ".join([*told, *([f"and {left} more workloads"] if left else [])])


def _size(part: _Block | _Cell) -> tuple[float, float]:
    return (CELL, CELL) if isinstance(part, _Cell) else (part.width, part.height)


def _width_of(parts: list[_Block | _Cell]) -> float:
    """A width at which the rows of these parts are about half as high again as wide, at least that of the widest."""
    if not parts:
        return 0.0
    sizes = [_size(part) for part in parts]
    gap = _GAP if isinstance(parts[0], _Cell) else _PAD
    widest = max(wide for wide, _ in sizes)
    area = sum((wide + gap) * (high + gap) for wide, high in sizes)
    wanted = sqrt(area * 1.8)
    if isinstance(parts[0], _Cell):
        columns = max(1, ceil((wanted + gap) / (CELL + gap)))
        return min(columns, len(parts)) * (CELL + gap) - gap
    return max(widest, min(wanted, WIDTH_MAX))


# --- drawing -------------------------------------------------------------------------------------------------------

_HEAD: Final = 44
_FOOT: Final = 30


def _document(view: TopologyView, body: _Block) -> Iterator[str]:
    wide, high = max(body.width, WIDTH_MIN) + 2 * _PAD, body.height + _HEAD + _FOOT
    share = view.resources.get(view.resource, DomainUse())
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(wide)}" height="{_n(high)}" '
        f'viewBox="0 0 {_n(wide)} {_n(high)}" font-family="system-ui, sans-serif" font-size="11" fill="currentColor">'
    )
    yield (
        f'<defs><pattern id="out" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M0 0V4" stroke="{_OUT}" stroke-width="2"/></pattern></defs>'
    )
    told = [format_amount(view.resource, each) for each in (share.capacity, share.used, share.other, share.free)]
    summary = (
        f"{view.resource}: {told[0]} in {view.nodes} nodes; {told[1]} used, {told[2]} by other pods, {told[3]} free"
    )
    yield f'<text x="{_PAD}" y="16" font-size="14" font-weight="600">{_t(view.flavor)}</text>'
    where = f"Topology {view.topology} ({' / '.join(view.levels)}), position {view.position}"
    yield f'<text x="{_n(_PAD + 10 + 8.5 * len(view.flavor))}" y="16" opacity=".65">{_t(where)}</text>'
    yield f'<text x="{_PAD}" y="33">{_t(summary)}</text>'
    for x, y, part in body.parts:
        yield from _drawn(part, x + _PAD, y + _HEAD)
    yield from _legend(_PAD, high - 16)
    yield "</svg>\n"


def _drawn(part: _Block | _Cell, x: float, y: float) -> Iterator[str]:
    if isinstance(part, _Cell):
        yield _cell(part, x, y)
        return
    yield (
        f'<g><title>{_t(part.title)}</title><rect x="{_n(x)}" y="{_n(y)}" width="{_n(part.width)}" '
        f'height="{_n(part.height)}" rx="3" fill="currentColor" fill-opacity=".03" stroke="currentColor" '
        f'stroke-opacity=".3"/><text x="{_n(x + _PAD)}" y="{_n(y + 12)}">{_t(part.name)}</text>'
    )
    if part.caption:
        yield (
            f'<text x="{_n(x + part.width - _PAD)}" y="{_n(y + 12)}" text-anchor="end" opacity=".65">{_t(part.caption)}'
            "</text>"
        )
    for dx, dy, inner in part.parts:
        yield from _drawn(inner, x + dx, y + dy)
    yield "</g>\n"


def _cell(cell: _Cell, x: float, y: float) -> str:
    at = f'x="{_n(x)}" y="{_n(y)}"'
    title = f"<title>{_t(cell.title)}</title>"
    if cell.share is None:
        return f'<rect {at} width="{CELL}" height="{CELL}" fill="url(#out)" stroke="{_OUT}">{title}</rect>'
    if cell.share == DomainUse():
        return f'<rect {at} width="{CELL}" height="{CELL}" fill="none" stroke="{_OUT}">{title}</rect>'
    text = f'<rect {at} width="{CELL}" height="{CELL}" fill="{STEPS[step(cell.share)]}">{title}</rect>'
    if cell.share.other > 0 and cell.share.capacity > 0:
        wide = max(1.0, CELL * min(1.0, cell.share.other / cell.share.capacity))
        line = f'd="M{_n(x)} {_n(y + CELL - 1.5)}h{_n(wide)}" stroke="{_OTHER}" stroke-width="3"'
        text += f'<path {line} pointer-events="none"/>'
    return text


def step(share: DomainUse) -> int:
    """The place of a share in `STEPS`: 0 is empty, the last one has nothing left."""
    if share.free <= 0:
        return len(STEPS) - 1
    occupied = share.occupied
    return next(number for number, bound in enumerate(_BOUNDS) if occupied <= bound)


def _legend(x: float, y: float) -> Iterator[str]:
    for colour, text in zip(STEPS, LEGEND, strict=True):
        yield f'<rect x="{_n(x)}" y="{_n(y)}" width="12" height="12" fill="{colour}" stroke="{_OUT}"/>'
        yield f'<text x="{_n(x + 16)}" y="{_n(y + 10)}">{text}</text>'
        x += 26 + _LETTER * len(text)
    yield f'<rect x="{_n(x)}" y="{_n(y + 7)}" width="12" height="4" fill="{_OTHER}"/>'
    yield f'<text x="{_n(x + 16)}" y="{_n(y + 10)}">by other pods</text>'
    x += 30 + _LETTER * 13
    yield f'<rect x="{_n(x)}" y="{_n(y)}" width="12" height="12" fill="url(#out)" stroke="{_OUT}"/>'
    yield f'<text x="{_n(x + 16)}" y="{_n(y + 10)}">not ready or cordoned: not in the tree</text>'


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def _t(text: str) -> str:
    """Text with nothing that XML does not allow."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text).translate(_ENTITIES)
