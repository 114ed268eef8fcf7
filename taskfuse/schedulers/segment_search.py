"""The search for segments: which tensors are computed by one kernel each, while the cost models say that fewer kernels take no longer.

What kernels a segment may be is in :mod:`taskfuse.schedulers.segment_ways`, what follows of it from who reads what in :mod:`taskfuse.schedulers.tensor_graph`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from heapq import heappop, heappush
from math import inf, prod
from typing import Any

from taskfuse.deadline import DeadlineError
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.apart import atoms
from taskfuse.schedulers.auto import multiplies
from taskfuse.schedulers.beside import GAIN, SMALL, JointPlace, fit_together, groups, is_joinable, joined, levels
from taskfuse.schedulers.budget import Budget, Work
from taskfuse.schedulers.candidates import Candidate, Trial, tried
from taskfuse.schedulers.product_cascades import tile_walks
from taskfuse.schedulers.schedule import Chosen, Config, Sizes
from taskfuse.schedulers.segment_ways import SLACK, KnownCandidates, RowViews, Ways
from taskfuse.schedulers.segmentation import Segmentation, SegmentStep
from taskfuse.schedulers.tensor_graph import Segment, TensorGraph
from taskfuse.schedulers.walks import walks
from taskfuse.target import Target

PRODUCTS_WITHOUT_TILES = 0.5
"""The most that a product whose factors are not kept in tiles reaches of the multiply-add rate of the CUDA cores."""
ABSURD = 10.0
"""A kernel that takes this many times as long as expected when its tensors were put together, or that is far from its roofline and :data:`LARGE`, is not
taken if there is another way, whatever was spent."""
LARGE = 0.1
"""The least time beyond its roofline of a kernel far from it, relative to the time of all kernels, for which the search goes on when its budget is spent."""
MOST_PRODUCTS = 8
"""The most products of one list of tiles: each adds to what has to be lowered, proved and compiled, and the more there are, the less a launch matters."""
EQUAL = 1.000001
"""The most time relative to another one that is equal up to rounding."""


class Search:
    """Greedy merging of segments.

    Args:
        known: the candidates of segments by what they compute; segments that forms of a fusion have in common are scheduled once.
        moved: the calls that made the form that is searched.
        begun: the search of another form of the fusion, whose segments this one begins with.
    """

    def __init__(
        self,
        fusion: Fusion,
        sizes: Mapping[str, int] | None,
        target: Target,
        trial: Trial | None,
        budget: Budget,
        known: KnownCandidates,
        moved: tuple[str, ...] = (),
        begun: Search | None = None,
    ) -> None:
        self.fusion = fusion
        self.parts = Parts(fusion)
        self.rows = RowViews(fusion)
        self.known = known
        self.moves = moved
        self.sizes = sizes
        self.extent = Sizes(fusion, sizes, target)
        self.target = self.extent.target
        self.graph = TensorGraph(fusion, self.extent)
        self._unmoved: set[tuple[Segment, TensorView, Segment]] = set()
        self._trial = trial
        self._budget = budget
        self._ways: dict[Segment, Ways] = {}
        self._kept: dict[Segment, SegmentStep] = {}
        self._made: dict[Segment, Chosen[Any]] = {}
        self._dropped: list[str] = []
        self._refused_us = 0.0
        self._is_absurd = False
        self._trusted: set[Segment] = set()
        self._sharing: dict[Segment, bool] = {}
        start = self.graph.beginning() if begun is None else self._as_in(begun.segments)
        self._segments = self.graph.in_order(self._joined(self._walked_together(start)))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, before a kernel was tried."""
        return tuple(self._segments)

    @property
    def us(self) -> float:
        """Microseconds of the segments, before a kernel was tried; ``inf`` while one has no kernel."""
        return self._us_of(self._segments)

    @property
    def least(self) -> float:
        """Microseconds of the segments if all that may be side by side in one launch take no other, and fill what each leaves idle, which is taken for as much
        as a launch that overlaps nothing; ``inf`` while one has no kernel."""
        found = self._candidates(self._segments)
        if found is None:
            return inf
        _, together = self._groups(self._segments, found)
        return self.us - self.target.alone_us(0.0) * sum(len(group) - 1 for group in together)

    @property
    def has_products_beside(self) -> bool:
        """Whether several products so small that launches matter could run at once, and are not in one list of tiles."""
        found = self._candidates(self._segments)
        if found is None:
            return False
        placed = zip(found, self._levels(self._segments, found), strict=True)
        small = [level for made, level in placed if multiplies(made.schedule) and made.schedule.us <= SMALL * self.target.launch_us]
        return len(set(small)) < len(small)

    def crossed(self) -> list[tuple[TensorView, tuple[TensorView, ...]]]:
        """The tensors that segments read of others, each with its readers in one of them; those that are made last come first."""
        number = {tv: k for k, p in enumerate(self._segments) for tv in p}
        found: list[tuple[TensorView, tuple[TensorView, ...]]] = []
        for tv in reversed(self.graph.tensors):
            apart: dict[int, list[TensorView]] = {}
            for reader in sorted(self.graph.readers[tv], key=self.graph.place.__getitem__):
                if number[reader] != number[tv]:
                    apart.setdefault(number[reader], []).append(reader)
            found += [(tv, tuple(apart[k])) for k in sorted(apart)]
        return found

    def _us_of(self, segments: Sequence[Segment]) -> float:
        """Microseconds of segments; ``inf`` if one has no kernel."""
        return sum(self._way(p).scheduled_us for p in segments)

    def segmentation(self, reason: str) -> Segmentation:
        """The segments that the search ends with, all of them kernels that are proved."""
        segments = self._segments
        while True:
            segments = self._by_levels(segments)
            us = self._us_of(segments)
            refused = next((p for k, p in enumerate(segments) if not self._holds(p, f"{self.fusion.name}_{k}", us)), None)
            if refused is None:
                break
            segments = self.graph.in_order(self._without(segments, refused))
        steps = self._beside(segments, [self._kept[p] for p in segments])
        crossing, dropped = self.graph.crossing(segments), tuple(self._dropped)
        ended = self._budget.extended or self._budget.why_spent
        return Segmentation(self.fusion.name, tuple(steps), crossing, reason, moved=self.moves, whole_fusion=self.fusion, dropped=dropped, ended=ended)

    def _beside(self, segments: Sequence[Segment], steps: Sequence[SegmentStep]) -> list[SegmentStep]:
        """The kernels, those side by side in one launch that do not wait for one another."""
        level, together = self._groups(segments, steps)
        heads: dict[int, SegmentStep] = dict(enumerate(steps))
        left = sorted(together, key=len, reverse=True) if self._trial else []  # where most launches are saved first
        while left and (not self._budget.is_spent or self._budget.extend()):
            group = left.pop(0)
            members = [steps[k] if config is None else self._arranged(segments[k], steps[k], config) for k, config in group]
            parts = tuple(step for step in members if step is not None)
            apart = sum(steps[k].schedule.us for k, _ in group)
            found = joined(f"{parts[0].fusion.name}_beside", [p.fusion for p in parts], [p.schedule for p in parts]) if len(parts) == len(members) else None
            if found is None:
                continue
            bound = sum(self._ways[segments[k]].bound for k, _ in group) - (len(group) - 1) * self.target.launch_us
            try:
                with self._budget.limit():
                    came = tried(self._trial, found.fusion, found.schedule, bound)
            except DeadlineError:
                break
            counted = came.schedule.count
            if came.refused or counted is None or max(counted.us, bound) > GAIN * apart:  # of many members, a count has seen few blocks each
                why = came.refused or f"{counted}, one after another {apart:.1f} us"
                self._dropped.append(f"not side by side: {', '.join(p.fusion.name for p in parts)}: {why}")
                left += [
                    kind for moved in (False, True) if 1 < len(kind := [JointPlace(p.segment) for p in group if (p.config is not None) is moved]) < len(group)
                ]
                continue
            tensors, views = tuple(name for p in parts for name in p.tensors), tuple(name for p in parts for name in p.views)
            for k, _ in group[1:]:
                del heads[k]
            heads[group[0].segment] = SegmentStep(found.fusion, came.schedule.expected_by_count(bound), tensors, None, views, parts, found.call)
        return [heads[k] for k in sorted(heads, key=lambda k: (level[k], k))]

    def _may_share(self, p: Segment) -> bool:
        """Whether the kernel of a segment may share a launch."""
        if p not in self._sharing:
            found = self._way(p).candidate
            self._sharing[p] = found is not None and is_joinable(found.fusion, found.schedule, self.target)
        return self._sharing[p]

    def _arranged(self, p: Segment, step: SegmentStep, config: Config) -> SegmentStep | None:
        """The kernel of a segment with other parameters; ``None`` if it cannot be made."""
        made = self._ways[p].arranged(config)
        if made is None:
            return None
        named, _ = copy_fusion(made.fusion)
        named.name = step.fusion.name
        return replace(made, fusion=named)

    def _groups(self, segments: Sequence[Segment], kernels: Sequence[Candidate | SegmentStep]) -> tuple[list[int], list[list[JointPlace]]]:
        """The level of each segment, and which may share a launch."""
        level = self._levels(segments, kernels)
        return level, groups([kernel.fusion for kernel in kernels], [kernel.schedule for kernel in kernels], level, self.target)

    def _levels(self, segments: Sequence[Segment], kernels: Sequence[Candidate | SegmentStep]) -> list[int]:
        own = {tv: k for k, p in enumerate(segments) for tv in p}
        needs = [{own[t] for tv in p for t in self.graph.reads[tv] if t in own and t not in p} for p in segments]
        schedules = [kernel.schedule for kernel in kernels]
        is_product = [multiplies(schedule) for schedule in schedules]
        may = [is_joinable(kernel.fusion, kernel.schedule, self.target) for kernel in kernels]

        known: dict[tuple[tuple[int, int], ...], bool] = {}  # equal pieces have the same parameters and counts, in schedules of their own names

        def fits(j: int, k: int) -> bool:
            if (is_product[j] and is_product[k]) or not (may[j] and may[k]):
                return is_product[j] and is_product[k]
            pair = tuple((id(s.option), id(s.count)) for s in (schedules[j], schedules[k]))
            if pair not in known:
                known[pair] = fit_together(schedules[j], schedules[k], self.target)
            return known[pair]

        return levels(needs, fits)

    def _by_levels(self, segments: list[Segment]) -> list[Segment]:
        """The segments in the order in which their kernels run, by which these are named; as they are, while one has no kernel."""
        found = self._candidates(segments)
        if found is None:
            return segments
        level = self._levels(segments, found)
        return [segments[k] for k in sorted(range(len(segments)), key=lambda k: (level[k], k))]

    def _joined(self, segments: list[Segment]) -> list[Segment]:
        """``segments``, merged as long as that is faster. If one takes longer, when scheduled, than estimated, all are tried again; one that was
        merged without a schedule, in parts."""
        while True:
            segments = self._merged(segments)
            expected = [self._way(p).us for p in segments]
            self._us_of(segments)
            if expected == [self._way(p).us for p in segments]:
                break
            wrong = {p for p, us in zip(segments, expected, strict=True) if p in self._trusted and self._way(p).us > us}
            segments = [q for p in segments for q in (self._parts_of(p) if p in wrong else [p])]
        settled = frozenset[Segment]()
        while settled != (settled := frozenset(segments)):
            while not self._budget.is_spent and (moved := self._moved(segments)) is not None:
                segments = moved
            segments = self._merged(segments, settled)  # what was in the way of a pair may stand elsewhere now
        return self._multiplied_together(self.graph.in_order(segments))

    def _multiplied_together(self, segments: list[Segment]) -> list[Segment]:
        """``segments``, products so small that launches matter as one list of tiles where that is faster: they need not have a tensor in common."""
        found = self._candidates(segments)
        if found is None:
            return segments
        small: dict[int, list[Segment]] = {}
        for p, made, level in zip(segments, found, self._levels(segments, found), strict=True):
            if multiplies(made.schedule) and made.schedule.us <= SMALL * self.target.launch_us:
                small.setdefault(level, []).append(p)
        owner = {tv: p for p in segments for tv in p}
        joined = dict.fromkeys(segments)
        for level in small.values():
            while len(level) > 1 and not self._budget.is_spent:
                a = level.pop(0)
                for b in level:
                    self._budget.spend(Work.PAIR, len(a) + len(b))
                    if self.graph.products_of(a | b) <= MOST_PRODUCTS and self._gains(owner, a, b):
                        level[level.index(b)] = whole = a | b
                        owner |= dict.fromkeys(whole, whole)
                        del joined[a], joined[b]
                        joined[whole] = None
                        break
        return list(joined)

    def _walked_together(self, segments: list[Segment]) -> list[Segment]:
        """``segments``, those of a walk as one where that is faster: no two of them need be."""
        for walk in (*walks(self.fusion), *tile_walks(self.fusion)):
            parts = [p for p in segments if any(tv in p for tv in walk)]
            whole = frozenset[TensorView]().union(*parts)
            if len(parts) < 2 or not self.graph.is_convex({tv: p for p in segments for tv in p}, whole):
                continue
            apart = sum(self._way(p).us for p in parts)
            if self._way(whole).us <= apart and self._way(whole).scheduled_us <= apart:  # a price may be that of an impossible schedule
                segments = [*(p for p in segments if p not in parts), whole]
        return segments

    def _merged(self, segments: list[Segment], settled: AbstractSet[Segment] = frozenset()) -> list[Segment]:
        """``segments`` with pairs merged, those that save the most bytes first. A pair without a gain is not tried again, since paths remain; one that has only
        numbers in common, such as a learning rate, is not tried at all where both may share a launch later.

        Args:
            settled: segments of which no pair is tried.
        """
        there = dict(enumerate(segments))
        owner = {tv: p for p in segments for tv in p}
        touching: dict[TensorView, set[int]] = {}
        pairs: list[tuple[float, int, int]] = []

        def add(number: int) -> None:
            own = self.graph.touched(there[number])
            near, aside = (set[int]().union(*(touching.get(tv, ()) for tv in own if self.graph.is_number(tv) is kind)) & there.keys() for kind in (False, True))
            if any(k not in near for k in aside) and self._may_share(there[number]):
                aside = {k for k in aside if not self._may_share(there[k])}
            for other in near | aside:
                if there[other] in settled and there[number] in settled:
                    continue
                heappush(pairs, (-self.graph.saved(there[other], there[number]), other, number))
            for tv in own:
                touching.setdefault(tv, set()).add(number)

        for number in there:
            add(number)
        number = len(segments)
        while pairs and not self._budget.is_spent:
            _, a, b = heappop(pairs)
            self._budget.spend(Work.PAIR, len(there.get(a, ())) + len(there.get(b, ())))
            if a in there and b in there and self._gains(owner, there[a], there[b]):
                there[number] = there.pop(a) | there.pop(b)
                owner |= dict.fromkeys(there[number], there[number])
                add(number)
                number += 1
        return list(there.values())

    def _holds(self, p: Segment, name: str, us: float) -> bool:
        """Whether the kernel of a segment can be made and is proved; otherwise its way is dropped.

        Args:
            us: microseconds of all segments.
        """
        step = self._step(p)
        if step is None:
            return False
        kept = self._kept.get(p)
        if kept is not None and self._made.get(p) is step.schedule and kept.fusion.name == name:
            return True
        named, _ = copy_fusion(step.fusion)
        named.name = name
        came = tried(self._trial, named, step.schedule, self._ways[p].bound)
        schedule = came.schedule
        is_large = schedule.is_far and schedule.us - schedule.bound > LARGE * us
        self._is_absurd = is_large or schedule.us > ABSURD * step.schedule.us
        searches_on = not self._budget.is_spent or self._is_absurd
        if is_large:
            self._budget.extend()
        if not came.refused and not (schedule.is_far and searches_on and self._ways[p].put_aside(schedule)):
            self._kept[p] = replace(step, fusion=named, schedule=schedule)
            self._made[p] = step.schedule
            return True
        self._refused_us = schedule.us
        what = f"{', '.join(step.tensors)} by {schedule.scheduler}, with {schedule.config.words}"
        if came.refused:
            self._ways[p].drop(came.refused)
            self._dropped.append(f"no kernel of {what}: {came.refused}")
        else:
            self._dropped.append(f"far from its roofline of {schedule.bound:.1f} us: {what}: {schedule.count}")
        return False

    def _without(self, segments: Sequence[Segment], refused: Segment) -> list[Segment]:
        """The segments after a kernel was refused, or is far from its roofline: that one is made in another way, or taken apart and put together anew."""
        step = self._step(refused)
        is_taken = self._budget.is_spent and not self._is_absurd and step is not None and step.schedule.us <= ABSURD * self._refused_us
        if step is not None and (is_taken or (step.schedule.us <= SLACK * self._refused_us and not self._ways[refused].is_last)):
            return list(segments)
        rest = [p for p in segments if p is not refused]
        parts = self._parts_of(refused)
        if parts == [refused]:
            if self._step(refused) is None:
                raise self._ways[refused].error()
            return list(segments)
        apart = self._joined(rest + parts)
        return apart if step is None or self._us_of(apart) < self._us_of(segments) else list(segments)

    def _parts_of(self, p: Segment) -> list[Segment]:
        """The segments that merging began with, in a segment; its smallest ones, if it has none of these or is one."""
        parts = [q for q in self.graph.beginning() if q <= p]
        is_finer = parts != [p] and frozenset[TensorView]().union(*parts) == p
        return parts if is_finer else atoms(self.fusion, [tv for tv in self.graph.tensors if tv in p])

    def _moved(self, segments: Sequence[Segment]) -> list[Segment] | None:
        """The segments with some tensors on the other side of a cut, if that is faster; or if it takes as long, and segments can then be merged."""
        owner = {tv: p for p in segments for tv in p}
        for a, tensors, home in self.graph.movable(segments):
            if self._budget.is_spent:
                break
            first = min(tensors, key=lambda tv: self.graph.place[tv])
            if (a, first, home) in self._unmoved:
                continue
            self._unmoved.add((a, first, home))
            left, right = a - tensors, home | tensors
            there = owner | dict.fromkeys(left, left) | dict.fromkeys(right, right)
            if not all(self.graph.is_convex(there, p) for p in (left, right)):
                continue
            us, both = self._us_of((a, home)), (left, right)
            if sum(self._way(p).us for p in both) <= us * EQUAL and (found := self._us_of(both)) <= us * EQUAL:
                moved = [p for p in segments if p not in (a, home)] + [left, right]
                if found < us / EQUAL:
                    return moved
                merged = self._merged(moved, frozenset(moved) - {left, right})
                if len(merged) < len(moved):
                    return merged
        return None

    def _as_in(self, others: Sequence[Segment]) -> list[Segment]:
        """The segments of another form, in parts that have nothing in common here: merging finds whether they belong together. A tensor that it lacks stands
        with its readers, a reduction alone, the parts of one assembly together. What is no segment here is in the parts that merging begins with."""
        homes = {tv.name: k for k, p in enumerate(others) for tv in p}
        found: dict[int, set[TensorView]] = {}
        number = dict[TensorView, int]()
        for k, tv in enumerate(reversed(self.graph.tensors), len(others)):
            near = set[int]() if isinstance(self.fusion.definition(tv), Reduction) else {number[r] for r in self.graph.readers[tv]}
            number[tv] = homes.get(tv.name, near.pop() if len(near) == 1 else k)
        for together in atoms(self.fusion, self.graph.tensors):
            number |= dict.fromkeys(together, max(number[tv] for tv in together))
        for tv in self.graph.tensors:
            found.setdefault(number[tv], set()).add(tv)
        segments = [q for k in found for q in self.graph.connected(frozenset(found[k]))]
        owner = {tv: p for p in segments for tv in p}
        return [q for p in segments for q in ([p] if self.graph.is_convex(owner, p) and self._way(p).us < inf else self._parts_of(p))]

    def _gains(self, owner: Mapping[TensorView, Segment], a: Segment, b: Segment) -> bool:
        if not self.graph.is_convex(owner, a | b):
            return False
        apart = self._way(a).us + self._way(b).us
        if self._is_hopeless(a | b, apart) or self._way(a | b).us > apart:
            return False
        if self._way(a | b).is_exact:
            self._trusted.add(a | b)
            return True
        together = self._way(a | b).scheduled_us
        return together < inf and together <= apart

    def _is_hopeless(self, p: Segment, us: float) -> bool:
        """True if a segment has products that take longer than ``us`` without a scheduler of products, and none of these takes it."""
        target = self.target
        points = [prod(self.extent(a.extent) for a in tv.root) for tv in p if isinstance(e := self.fusion.definition(tv), Reduction) and len(e.operands) > 1]
        return target.issue_us(sum(points) / PRODUCTS_WITHOUT_TILES) > us and not self._way(p).has_products

    def _way(self, p: Segment) -> Ways:
        if p not in self._ways:
            self._ways[p] = Ways(self.known, self.parts, self.rows, sorted(p, key=self.graph.place.__getitem__))
        return self._ways[p]

    def _step(self, p: Segment) -> SegmentStep | None:
        return self._way(p).step

    def _candidates(self, segments: Sequence[Segment]) -> list[Candidate] | None:
        """The kernels of segments, each in the names of the first of its kind; ``None`` while one has none."""
        found = [candidate for p in segments if (candidate := self._way(p).candidate) is not None]
        return found if len(found) == len(segments) else None
