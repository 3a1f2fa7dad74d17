"""
What the reading of objects depends on: the configuration decides which are relevant, and which of their labels.

A bridge whose configuration changes has to be shown anew what is read otherwise by the new one (`read_otherwise`): a
watch does not repeat objects that do not change.
"""

from collections.abc import Mapping

import msgspec

from headgate.core.api import job_kinds, metadata_keys
from headgate.core.api.metadata_keys import NO_KEYS, MetadataKeys
from headgate.events.configuration import Configuration


class ReadingRules(msgspec.Struct, frozen=True):
    """
    By which rules objects are read.

    `unnamed`: jobs that name no queue are relevant, too. `keys`: the labels and annotations beside Kueue's own that are
    read of a resource's objects; of pods those of groups alone, for a plain pod's Workload is made from the whole pod.
    """

    unnamed: bool = False
    keys: Mapping[str, MetadataKeys] = {}

    def keys_of(self, resource: str) -> MetadataKeys:
        """The labels and annotations to read of a resource's objects."""
        return self.keys.get(resource, NO_KEYS)


def rules_of(configuration: Configuration) -> ReadingRules:
    """The rules of a cell with this configuration."""
    keys = {
        "cohorts": metadata_keys.shown(configuration, "Cohort"),
        "clusterqueues": metadata_keys.shown(configuration, "ClusterQueue"),
        "localqueues": metadata_keys.shown(configuration, "LocalQueue"),
        "workloads": metadata_keys.shown(configuration, "Workload"),
        "pods": metadata_keys.copied(configuration),
    }
    return ReadingRules(
        unnamed=configuration.manage_jobs_without_queue_name,
        keys={resource: each for resource, each in keys.items() if each != NO_KEYS},
    )


def read_otherwise(before: Configuration, after: Configuration) -> tuple[str, ...]:
    """The resources of which other objects, or other labels, are read by one configuration than by the other."""
    old, new = rules_of(before), rules_of(after)
    jobs = job_kinds.resources_of(job_kinds.enabled(after)) if old.unnamed is not new.unnamed else ()
    named = dict.fromkeys((*old.keys, *new.keys))
    return (*jobs, *(each for each in named if old.keys_of(each) != new.keys_of(each)))
