"""
What the fields of Kueue's kinds are for: the descriptions that `kubectl explain` shows.

The text has the fields of `fields` in the same nesting, each with its description; `|` continues a line. A field
without one is an error of a test, a description without a field one of the compilation.
"""

import re
from typing import Final

_TEXT: Final = """
StatusCondition: One condition of this object.
  type: Name of the condition.
  status: Whether the condition holds: True, False or Unknown.
  observedGeneration: Generation of the object that the condition was computed for.
  lastTransitionTime: When the status of the condition last changed.
  reason: Reason for the last change, for programs.
  message: Details of the last change, for people.
LabelSelector: Selects objects by their labels. An empty selector selects all, an absent one none.
  matchLabels: Labels that an object must have with exactly these values.
  matchExpressions: Requirements on labels, all of which an object must meet.
    key: Label that the requirement is about.
    operator: Relation of the label to the values: In, NotIn, Exists or DoesNotExist.
    values: Values for In and NotIn; empty for Exists and DoesNotExist.
Taint: A taint of a node.
  key: Key of the taint.
  value: Value of the taint.
  effect: Effect on pods that do not tolerate the taint: NoSchedule, PreferNoSchedule or NoExecute.
  timeAdded: When a NoExecute taint was added.
Toleration: A toleration of taints whose key, value and effect match.
  key: Key of the taints that are tolerated; empty, with the operator Exists, for all keys.
  operator: Relation of the key to the value: Equal (the default) or Exists.
  value: Value of the taints that are tolerated; empty with the operator Exists.
  effect: Effect of the taints that are tolerated; empty for all effects.
  tolerationSeconds: How long a NoExecute taint is tolerated; for ever if it is not set.
ResourceRequirements: Resources that are requested, and their limits.
  limits: Highest amount of each resource that may be used.
  requests: Amount of each resource that is requested. It defaults to the limit.
  claims: Resource claims of the pod that are used.
    name: Name of an entry of the pod's resourceClaims.
    request: Name of a request of the claim; all of the claim if it is not set.
Container: A container. Kueue reads its resources.
  name: Name of the container, unique in the pod.
  restartPolicy: Restart policy of the container; Always makes an init container a sidecar.
  resources: Resources that the container requests.
PodTemplate: Template of the pods.
  metadata: Metadata of the pods.
    name: Name of a pod that is created from the template.
    namespace: Namespace of a pod that is created from the template.
    labels: Labels of the pods.
    annotations: Annotations of the pods.
    finalizers: Finalizers of the pods.
  spec: Specification of the pods.
    initContainers: Containers that run before the others, and sidecars.
    containers: Containers of a pod.
    resources: Resources that a pod requests as a whole.
    overhead: Resources that a pod needs in addition to its containers, from its runtime class.
    nodeName: Name of the node that a pod is bound to.
    nodeSelector: Labels that a node must have. They are compared with the labels of flavors.
    affinity: Node and pod affinity. Required node affinity is compared with the labels of flavors.
    tolerations: Taints that the pods tolerate. They are compared with the taints of flavors.
    priorityClassName: Name of the PriorityClass of the pods.
    priority: Priority of the pods.
    runtimeClassName: Name of the RuntimeClass of the pods.
    schedulerName: Name of the scheduler that binds the pods.
    restartPolicy: Restart policy of the containers.
    schedulingGates: Gates that keep the pods from being scheduled as long as they are there.
      name: Name of the gate.
    resourceClaims: Resource claims that are allocated before a pod starts.
      name: Name of the entry, which containers refer to.
      resourceClaimName: Name of a ResourceClaim in the namespace of the pod.
      resourceClaimTemplateName: Name of a ResourceClaimTemplate from which each pod gets a claim of its own.
FairSharing: Parameters of fair sharing with the siblings in the same cohort or ClusterQueue.
  weight: Advantage over siblings when unused quota is shared. With weight 0 everything borrowed counts as an infinite
    | share.
FlavorQuotas: Quotas of one flavor.
  name: Name of the ResourceFlavor.
  resources: Quotas of each covered resource in this flavor.
    name: Name of the resource.
    nominalQuota: Amount of the resource that is available to admitted workloads of this queue or cohort.
    borrowingLimit: Highest amount above the nominal quota that may be borrowed from the cohort; no limit if it is not
      | set.
    lendingLimit: Highest amount of the nominal quota that may be lent to the cohort; all of it if it is not set.
ResourceGroup: Resources that get their flavor together, and the flavors to try.
  coveredResources: Names of the resources whose quotas the flavors have. A resource is in one group only.
  flavors: Flavors of these resources with their quotas, in the order in which they are tried.
FlavorUsage: Usage of one flavor.
  name: Name of the ResourceFlavor.
  resources: Usage of each resource in this flavor.
    name: Name of the resource.
    total: Amount that is used, including what is borrowed.
    borrowed: Amount that is borrowed from the cohort.
LocalQueueFlavorUsage: Usage of one flavor.
  name: Name of the ResourceFlavor.
  resources: Usage of each resource in this flavor.
    name: Name of the resource.
    total: Amount that is used.
ConsumedResources: Usage in the past that admission fair sharing takes into account.
  consumedResources: Amount of each resource that was used over time, older usage counting less.
  lastUpdate: When the amounts were last computed.
AdmissionCheck: A condition outside the queue that workloads have to meet after their quota is reserved.
  spec: Who decides the check, and by which parameters.
    controllerName: Name of the controller that decides the check. It is immutable.
    parameters: Object with the parameters of the check.
      apiGroup: API group of the object.
      kind: Kind of the object.
      name: Name of the object.
    retryDelayMinutes: Without effect. How long a check waited after a failure.
  status: Whether the check can be used.
    conditions: Conditions of the check. Active says whether its controller is able to decide it.
ClusterQueue: Quotas of resources that workloads of many namespaces share.
  spec: Quotas of the queue, and the rules by which workloads get them.
    resourceGroups: Groups of resources with their flavors and quotas.
    cohortName: Cohort whose members share unused quota. Without one the queue neither borrows nor lends.
    cohort: Cohort whose members share unused quota. Without one the queue neither borrows nor lends.
    admissionChecks: Names of the AdmissionChecks of all workloads of this queue.
    queueingStrategy: Order of workloads. With StrictFIFO a workload that does not fit blocks those behind it; with
      | BestEffortFIFO it does not.
    namespaceSelector: Namespaces whose workloads may use the queue. An empty selector allows all namespaces, an
      | absent one none.
    flavorFungibility: When the next flavor is tried before the workload borrows or preempts in the current one.
      whenCanBorrow: What to do when the workload fits in a flavor by borrowing: use it (MayStopSearch) or try the
        | next one.
      whenCanPreempt: What to do when the workload fits in a flavor by preemption: use it (MayStopSearch) or try the
        | next one.
      preference: What is better when all flavors were tried: borrowing without preemption, or preemption without
        | borrowing.
    preemption: Which workloads may be evicted in favor of a pending one.
      reclaimWithinCohort: Which workloads of other queues of the cohort that borrow may be preempted when the pending
        | one fits in the nominal quota.
      borrowWithinCohort: Whether workloads of other queues of the cohort may be preempted when the pending one needs
        | to borrow.
        policy: Never, or LowerPriority for workloads of lower priority.
        maxPriorityThreshold: Only workloads of this priority or below may be preempted by one that borrows.
      withinClusterQueue: Which workloads of the same queue may be preempted when the pending one does not fit.
    admissionChecksStrategy: AdmissionChecks of the workloads of this queue, by flavor.
      admissionChecks: The checks.
        name: Name of the AdmissionCheck.
        onFlavors: Flavors for whose workloads the check applies; all flavors if it is empty.
    admissionScope: How workloads of this queue compete in admission fair sharing.
      admissionMode: Whether the LocalQueues' usage in the past orders their workloads.
    concurrentAdmissionPolicy: Whether a workload tries several flavors at the same time, each with a variant of its
      | own.
      migration: What becomes of an admitted variant when a better flavor is available.
        mode: TryPreferredFlavors moves the workload to a better flavor; RetainFirstAdmission keeps the first.
        constraints: Limits of the migration.
          lastAcceptableFlavorName: Flavor after which no migration is tried any more; a workload in it or in a better
            | one stays.
    fairSharing: Weight of the queue in its cohort.
    stopPolicy: Hold admits no more workloads; HoldAndDrain evicts the admitted ones as well.
  status: Usage of the queue, and whether it can admit workloads.
    conditions: Conditions of the queue. Active says whether it admits workloads, and why not.
    flavorsReservation: Quota that is reserved in each flavor, including workloads whose checks are not ready yet.
    flavorsUsage: Quota that admitted workloads use in each flavor.
    pendingWorkloads: Number of workloads that wait.
    reservingWorkloads: Number of workloads that reserve quota.
    admittedWorkloads: Number of workloads that are admitted and not finished.
    fairSharing: State of fair sharing.
      weightedShare: Highest ratio of borrowed to lendable quota over all resources, in thousandths, divided by the
        | weight.
      admissionFairSharingStatus: Usage in the past. A ClusterQueue has none.
    pendingWorkloadsStatus: No longer written. The visibility API shows pending workloads.
      clusterQueuePendingWorkload: First pending workloads of the queue.
        name: Name of the workload.
        namespace: Namespace of the workload.
      lastChangeTime: When the list was last changed.
Cohort: A group of ClusterQueues and cohorts that share unused quota.
  spec: Place of the cohort in the tree, and quotas of its own.
    parentName: Parent cohort. Without one the cohort is the root of its tree.
    resourceGroups: Quotas that the cohort itself adds to what its members share.
    fairSharing: Weight of the cohort in its parent.
  status: State of the cohort.
    fairSharing: State of fair sharing.
      weightedShare: Highest ratio of borrowed to lendable quota over all resources, in thousandths, divided by the
        | weight.
      admissionFairSharingStatus: Usage in the past. A Cohort has none.
LocalQueue: Queue of a namespace, to which its users submit workloads.
  spec: ClusterQueue that the queue leads to, and its rules.
    clusterQueue: ClusterQueue whose quotas the workloads of this queue use. It is immutable.
    stopPolicy: Hold admits no more workloads of this queue; HoldAndDrain evicts the admitted ones as well.
    fairSharing: Weight of the queue in admission fair sharing.
  status: Usage of the queue, and whether its workloads can be admitted.
    conditions: Conditions of the queue. Active says whether its workloads can be admitted, and why not.
    pendingWorkloads: Number of workloads of this queue that wait.
    reservingWorkloads: Number of workloads of this queue that reserve quota.
    admittedWorkloads: Number of workloads of this queue that are admitted and not finished.
    flavorsReservation: Quota that workloads of this queue reserve in each flavor.
    flavorsUsage: Quota that admitted workloads of this queue use in each flavor.
    flavorUsage: Quota that admitted workloads of this queue use in each flavor.
    flavors: No longer written. Flavors of the ClusterQueue.
      name: Name of the ResourceFlavor.
      resources: Resources of the flavor.
      nodeLabels: Labels of the nodes of the flavor.
      nodeTaints: Taints of the nodes of the flavor.
      topology: Topology of the nodes of the flavor.
        name: Name of the Topology.
        levels: Levels of the topology, the highest first.
    fairSharing: State of fair sharing.
      weightedShare: Share of the queue. 0 for a LocalQueue.
      admissionFairSharingStatus: Usage in the past, by which admission fair sharing orders LocalQueues.
KubeConfig: Where the credentials of the worker cluster are.
  location: Name of the Secret in Kueue's namespace, or path of the file, with a kubeconfig.
  locationType: Whether the location is a Secret or a Path.
ClusterProfileReference: ClusterProfile of the worker cluster.
  name: Name of the ClusterProfile.
MultiKueueCluster: A worker cluster of MultiKueue. Headgate keeps it and does not use it.
  spec: How the worker cluster is reached.
    clusterSource: Credentials of the worker cluster: exactly one of the fields.
      kubeConfig: Kubeconfig of the worker cluster.
      clusterProfileRef: ClusterProfile of the worker cluster.
    kubeConfig: Kubeconfig of the worker cluster.
    clusterProfileRef: ClusterProfile of the worker cluster.
  status: State of the connection.
    conditions: Conditions of the cluster. Active says whether it is connected.
MultiKueueConfig: The worker clusters of a MultiKueue admission check. Headgate keeps it and does not use it.
  spec: The worker clusters.
    clusters: Names of MultiKueueClusters.
    quotaManagement: Whether the quotas of the manager follow those of the workers (Automated) or not (Manual).
ProvisioningRequestConfig: How ProvisioningRequests are made for workloads of an admission check.
  spec: Class, parameters and retries of the requests.
    provisioningClassName: Class of the ProvisioningRequests, by which an autoscaler recognizes them.
    parameters: Parameters that are passed to the class.
    managedResources: Resources that requests are made for; a workload that needs none of them needs no request. All
      | resources if it is empty.
    retryStrategy: When a failed request is made again.
      backoffLimitCount: Number of retries.
      backoffBaseSeconds: Wait before the first retry; it doubles with each one.
      backoffMaxSeconds: Longest wait between two retries.
    podSetUpdates: Changes of the pods of a workload whose request has succeeded.
      nodeSelector: Node selectors that the pods get.
        key: Label of the node selector.
        valueFromProvisioningClassDetail: Detail of the ProvisioningRequest whose value the selector gets.
    podSetMergePolicy: Which pod sets of a workload become one in the request; none if it is not set.
ResourceFlavor: A kind of nodes, by their labels and taints, for which queues have quotas.
  spec: Nodes of the flavor, and what admitted pods need for them.
    nodeLabels: Labels of the nodes. Pods that are admitted to the flavor get them as node selector.
    nodeTaints: Taints of the nodes. Workloads have to tolerate them to be admitted to the flavor.
    tolerations: Tolerations that pods get when they are admitted to the flavor.
    topologyName: Topology of the nodes, for topology-aware scheduling. It is immutable once it is set.
Topology: Hierarchy of the nodes of a data center, for topology-aware scheduling.
  spec: Levels of the hierarchy.
    levels: Levels, the highest first. They are immutable.
      nodeLabel: Label by which nodes say which domain of this level they belong to.
WorkloadPriorityClass: A priority of workloads that has no effect on their pods.
  value: Priority of workloads that use the class. Higher ones are admitted first.
  description: What the class is meant for.
TopologyAssignment: Topology domains that the pods of a pod set were assigned to.
  levels: Node labels of the levels that the domains are of, the highest first.
  domains: Domains, and how many pods each gets.
    values: Value of each level for this domain.
    count: Number of pods in this domain.
  slices: Domains in compressed form. Their order is the order of the pods.
    domainCount: Number of domains of this slice.
    valuesPerLevel: Values of each level for the domains of this slice: one for all, or one for each.
      universal: Value that all domains of this slice share.
      individual: Values of each domain.
        prefix: Beginning that the values have in common.
        suffix: End that the values have in common.
        roots: What lies between prefix and suffix, for each domain.
    podCounts: Number of pods in each domain of this slice: one for all, or one for each.
      universal: Number that all domains of this slice share.
      individual: Number of each domain.
Workload: Pods that are admitted together. It stands for a job in the queue.
  spec: What the workload needs, and its queue.
    podSets: Sets of equal pods. A workload needs at least one.
      name: Name of the pod set, unique in the workload.
      template: Template of the pods. Its requests, node selector, affinity and tolerations decide flavors and quota.
      count: Number of pods.
      minCount: Lowest number of pods with which the workload may be admitted in part. Not more than one pod set may
        | have it.
      topologyRequest: Where the pods should be in the topology.
        required: Level of the topology, by its node label, within one domain of which all pods must be.
        preferred: Level of the topology, by its node label, within one domain of which all pods should be if possible.
        unconstrained: Whether the pods may be anywhere in the topology, as long as they fit.
        podIndexLabel: Label of the pods with their index.
        subGroupIndexLabel: Label of the pods with the index of their group of the job, such as a replicated Job.
        subGroupCount: Number of such groups.
        podSetGroupName: Pod sets with the same name are assigned to one domain together.
        podSetSliceRequiredTopology: Level of the topology within one domain of which all pods of a slice must be.
        podSetSliceSize: Number of pods in a slice.
        podsetSliceRequiredTopologyConstraints: Levels for slices, and for slices within them.
          topology: Level of the topology, by its node label, within one domain of which all pods of a slice must be.
          size: Number of pods in a slice.
    queueName: LocalQueue of the workload, in the same namespace. It is immutable while quota is reserved.
    priorityClassRef: Class that the priority comes from.
      group: API group of the class.
      kind: Kind of the class: WorkloadPriorityClass, or PriorityClass of pods.
      name: Name of the class.
    priorityClassName: Name of the class that the priority comes from.
    priorityClassSource: Kind of the class: kueue.x-k8s.io/workloadpriorityclass or scheduling.k8s.io/priorityclass.
    priority: Priority of the workload. Higher ones are admitted first, and may preempt lower ones.
    active: Whether the workload may be admitted. An admitted one is evicted when it is set to false.
    maximumExecutionTimeSeconds: How long the workload may be admitted, in total; then it is deactivated. No limit if
      | it is not set.
    preemptionGates: Gates that keep the workload from preempting others as long as they are closed.
      name: Name of the gate.
  status: Where the workload is in the queue, and what it has got.
    conditions: Conditions of the workload: QuotaReserved, Admitted, Finished, PodsReady, Evicted, Preempted, Requeued
      | and others.
    admission: What the workload was given when its quota was reserved.
      clusterQueue: ClusterQueue whose quota is reserved.
      podSetAssignments: What each pod set was given.
        name: Name of the pod set.
        flavors: Flavor of each resource.
        resourceUsage: Quota of each resource that all pods of the set use.
        count: Number of pods that were admitted. It is less than asked for when the workload is admitted in part.
        topologyAssignment: Topology domains of the pods.
        delayedTopologyRequest: Whether the domains are assigned only when the admission checks are ready, and whether
          | that has been done.
    requeueState: Repetitions after evictions because the pods did not get ready, or a check has to be tried again.
      count: Number of repetitions.
      requeueAt: When the workload goes back to its queue.
    reclaimablePods: Pods that have finished and whose quota is free again.
      name: Name of the pod set.
      count: Number of such pods.
    admissionChecks: State of the admission checks of this workload.
      name: Name of the AdmissionCheck.
      state: Pending, Ready, Retry (evict and try again) or Rejected (deactivate).
      lastTransitionTime: When the state last changed.
      message: Details of the state, for people.
      requeueAfterSeconds: How long the workload waits at least until it is tried again.
      retryCount: Number of retries.
      podSetUpdates: What the check adds to the pods when the workload starts.
        name: Name of the pod set.
        labels: Labels to add.
        annotations: Annotations to add.
        nodeSelector: Node selectors to add.
        tolerations: Tolerations to add.
    resourceRequests: What each pod set requests while the workload waits, after transformations of resources.
      name: Name of the pod set.
      resources: Amount of each resource for all pods of the set.
    accumulatedPastExecutionTimeSeconds: How long the workload was admitted before its last eviction.
    accumulatedPastExexcutionTimeSeconds: How long the workload was admitted before its last eviction.
    schedulingStats: Statistics of the workload.
      evictions: Number of evictions by reason.
        reason: Reason of the evictions.
        underlyingCause: Cause behind the reason; empty if there is none.
        count: Number of evictions.
    nominatedClusterNames: Worker clusters that may run the workload (MultiKueue).
    clusterName: Worker cluster that runs the workload (MultiKueue). It is immutable once it is set.
    unhealthyNodes: Nodes with pods of the workload that have failed and for which replacements are looked for.
      name: Name of the node.
    preemptionGates: State of the preemption gates of this workload.
      name: Name of the gate.
      position: Closed keeps the workload from preempting, Open does not.
      lastTransitionTime: When the position last changed.
"""


def _by_place(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    path: list[str] = []
    for line in text.splitlines():
        match = re.fullmatch(r"( *)(?:(\w+):|(\|)) (\S.*)", line)
        if match is None:
            continue
        if match[3]:
            found[".".join(path)] += f" {match[4]}"
        else:
            path = [*path[: len(match[1]) // 2], match[2]]
            found[".".join(path)] = match[4]
    return found


KUEUE_DESCRIPTIONS: Final = _by_place(_TEXT)
"""Descriptions by the path of their field, without the brackets of lists: `Workload.spec.podSets.count`."""
