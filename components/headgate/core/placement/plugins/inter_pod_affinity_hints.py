"""
Which events may help a pod that pod affinity keeps off all nodes.

Source: `isSchedulableAfterPodChange` and `isSchedulableAfterNodeChange` of interpodaffinity/plugin.go. Terms are held
against pods without regard to the labels of their namespaces, as there.
"""

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.counts.terms import NO_LABELS, Term, terms_of
from headgate.core.placement.framework.events import Hint
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo


def after_pod_change(pod: PodInfo, old: PodInfo | None, new: PodInfo | None, _: PlacementCluster) -> Hint:
    """Queue if a pod comes that the affinity means, or one goes that the anti-affinity means, or whose means it."""
    if old is not None and new is not None and new.uid == pod.uid:
        # Its labels have changed, and with them whose anti-affinity means it.
        return Hint.QUEUE
    if any(not each.node_name and not each.nominated_node_name for each in (old, new) if each is not None):
        return Hint.SKIP
    terms = terms_of(pod.shape)
    if new is not None:
        came = _all_mean(terms.affinity, new) and not (old is not None and _all_mean(terms.affinity, old))
        went = old is not None and _all_mean(terms.anti_affinity, old) and not _all_mean(terms.anti_affinity, new)
        return _queue_if(came or went)
    assert old is not None, "a change has an old or a new pod"
    return _queue_if(_all_mean(terms.anti_affinity, old) or _all_mean(terms_of(old.shape).anti_affinity, pod))


def _all_mean(terms: tuple[Term, ...], pod: PodInfo) -> bool:
    """Whether there are terms and all of them mean a pod."""
    return bool(terms) and all(term.matches(pod.namespace, pod.labels, NO_LABELS) for term in terms)


def after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject | None, _: PlacementCluster) -> Hint:
    """Queue if a node joins a domain of the affinity, or leaves one of the anti-affinity."""
    terms = terms_of(pod.shape)
    after = new.metadata.labels if new is not None else NO_LABELS
    if old is None:
        joins = any(term.topology_key in after for term in terms.affinity)
        # A node without the topology key always allows a pod with anti-affinity.
        return _queue_if(joins or bool(terms.anti_affinity))
    before = old.metadata.labels
    for term in terms.affinity:
        if term.topology_key in after and before.get(term.topology_key) != after[term.topology_key]:
            return Hint.QUEUE
    return _queue_if(
        any(
            term.topology_key in before and after.get(term.topology_key) != before[term.topology_key]
            for term in terms.anti_affinity
        )
    )


def _queue_if(condition: bool) -> Hint:
    return Hint.QUEUE if condition else Hint.SKIP
