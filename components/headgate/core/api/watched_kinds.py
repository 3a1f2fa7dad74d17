"""
The kinds of the watched objects that are no jobs, by the name of their resource.

A resource whose plural is that of a kind of jobs too has a name of its own among the watched ones, and is here under
both: facts about its objects have the plural.

Quarantine names objects by them, and placement the objects that it reads. Jobs have their own table (`job_kinds`).
"""

from collections.abc import Mapping
from typing import Final

KIND_OF: Final[Mapping[str, str]] = {
    "namespaces": "Namespace",
    "nodes": "Node",
    "resourceflavors": "ResourceFlavor",
    "topologies": "Topology",
    "admissionchecks": "AdmissionCheck",
    "provisioningrequestconfigs": "ProvisioningRequestConfig",
    "provisioningrequests": "ProvisioningRequest",
    "podtemplates": "PodTemplate",
    "cohorts": "Cohort",
    "clusterqueues": "ClusterQueue",
    "localqueues": "LocalQueue",
    "workloadpriorityclasses": "WorkloadPriorityClass",
    "priorityclasses": "PriorityClass",
    "limitranges": "LimitRange",
    "runtimeclasses": "RuntimeClass",
    "trainingruntimes": "TrainingRuntime",
    "clustertrainingruntimes": "ClusterTrainingRuntime",
    "workloads": "Workload",
    "pods": "Pod",
    "services": "Service",
    "replicationcontrollers": "ReplicationController",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "statefulsets.apps": "StatefulSet",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
    "csidrivers": "CSIDriver",
    "csistoragecapacities": "CSIStorageCapacity",
    "volumeattachments": "VolumeAttachment",
    "resourceclaims": "ResourceClaim",
    "resourceslices": "ResourceSlice",
    "deviceclasses": "DeviceClass",
    "podgroups": "PodGroup",
    "podgroups.scheduling.k8s.io": "PodGroup",
}
