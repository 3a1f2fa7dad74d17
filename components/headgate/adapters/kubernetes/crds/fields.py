"""
The fields, defaults, enumerations, patterns and bounds of Kueue's kinds (`kueue.x-k8s.io/v1beta2`).

The text, in the language of `schema`, is the schema of Kueue 0.19.2's CustomResourceDefinitions with the fields that
0.20 adds; their CEL rules are in `rules`, what the fields are for in `descriptions`. Fields marked `~` are those of
v1beta1 that v1beta2 spells otherwise or has dropped, fields marked `^` those of v1beta2 that v1beta1 spells otherwise.
What only v1beta2 has, v1beta1 has here as well, under the same name: a client that reads one version and writes the
other loses nothing then.

A Workload's pod template is checked where scheduling reads it (names, resources, placement); its other fields are kept
as written. The Job that the template belongs to was checked whole when it was created, and checking its copy at each
status write costs the API server more than the rest of the write.
"""

from typing import Final

KUEUE_SCHEMAS: Final = """
SubdomainName: string (maxLen=253, pattern=subdomain)
StatusCondition: object
  type*: string (maxLen=316, pattern=qualified)
  status*: string (enum=True|False|Unknown)
  observedGeneration: int64 (min=0)
  lastTransitionTime*: time
  reason*: string (minLen=1, maxLen=1024, pattern=reason)
  message*: string (maxLen=32768)
LabelSelector: object (atomic)
  matchLabels: map[string]
  matchExpressions: []object
    key*: string
    operator*: string
    values: []string
Taint: object
  key*: string
  value: string
  effect*: string
  timeAdded: time
Toleration: object
  key: string
  operator: string
  value: string
  effect: string
  tolerationSeconds: int64
Taints: []$Taint (maxItems=8)
Tolerations: []$Toleration (maxItems=8)
ResourceRequirements: object
  limits: map[quantity]
  requests: map[quantity]
  claims: []object (map=name)
    name*: string
    request: string
Container: object (open)
  name*: string
  restartPolicy: string
  resources: $ResourceRequirements
PodTemplate: object
  metadata: object
    name: string
    namespace: string
    labels: map[string]
    annotations: map[string]
    finalizers: []string
  spec: object (open)
    initContainers: []$Container (map=name)
    containers*: []$Container (map=name)
    resources: $ResourceRequirements
    overhead: map[quantity]
    nodeName: string
    nodeSelector: map[string] (atomic)
    affinity: object
    tolerations: []$Toleration
    priorityClassName: string
    priority: int32
    runtimeClassName: string
    schedulerName: string
    restartPolicy: string
    schedulingGates: []object (map=name)
      name*: string
    resourceClaims: []object (map=name)
      name*: string
      resourceClaimName: string
      resourceClaimTemplateName: string
FairSharing: object
  weight: quantity (default=1)
ConsumedResources: object
  consumedResources*: map[quantity]
  lastUpdate*: time
FlavorQuotas: object
  name*: $SubdomainName
  resources*: []object (minItems=1, maxItems=64, map=name)
    name*: string
    nominalQuota*: quantity
    borrowingLimit: quantity
    lendingLimit: quantity
ResourceGroup: object
  coveredResources*: []string (minItems=1, maxItems=64)
  flavors*: []$FlavorQuotas (minItems=1, maxItems=64, map=name)
FlavorUsage: object
  name*: $SubdomainName
  resources*: []object (maxItems=64, map=name)
    name*: string
    total: quantity
    borrowed: quantity
LocalQueueFlavorUsage: object
  name*: $SubdomainName
  resources*: []object (maxItems=64, map=name)
    name*: string
    total: quantity
AdmissionCheck: object
  spec: object
    controllerName*: string (minLen=1, maxLen=253)
    parameters: object
      apiGroup*: string (minLen=1, maxLen=253, pattern=subdomain)
      kind*: string (minLen=1, maxLen=63, pattern=kind)
      name*: string (minLen=1, maxLen=63, pattern=label)
    retryDelayMinutes~: int64 (former="retryDelayMinutes has no effect and is no field of v1beta2: remove it")
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
WhenCanBorrow: string (enum=MayStopSearch|TryNextFlavor, former={"Borrow":"MayStopSearch"})
WhenCanPreempt: string (enum=MayStopSearch|TryNextFlavor, former={"Preempt":"MayStopSearch"})
CheckName: string (maxLen=316)
ClusterQueue: object
  spec: object
    resourceGroups: []$ResourceGroup (maxItems=16)
    cohortName^: $SubdomainName
    cohort~: $SubdomainName (former="cohort is cohortName in v1beta2")
    admissionChecks~: []$CheckName (former="admissionChecks is admissionChecksStrategy.admissionChecks in v1beta2")
    queueingStrategy: string (default="BestEffortFIFO", enum=StrictFIFO|BestEffortFIFO)
    namespaceSelector: $LabelSelector
    flavorFungibility: object (default={})
      whenCanBorrow: $WhenCanBorrow (default="MayStopSearch")
      whenCanPreempt: $WhenCanPreempt (default="TryNextFlavor")
      preference: string (enum=BorrowingOverPreemption|PreemptionOverBorrowing)
    preemption: object (default={})
      reclaimWithinCohort: string (default="Never", enum=Never|LowerPriority|Any)
      borrowWithinCohort: object (default={})
        policy: string (default="Never", enum=Never|LowerPriority)
        maxPriorityThreshold: int32
      withinClusterQueue: string (default="Never", enum=Never|LowerPriority|LowerOrNewerEqualPriority)
    admissionChecksStrategy: object
      admissionChecks*: []object (minItems=1, maxItems=64, map=name)
        name*: string (minLen=1, maxLen=316)
        onFlavors: []$SubdomainName (maxItems=64, set)
    admissionScope: object
      admissionMode*: string (enum=UsageBasedAdmissionFairSharing|NoAdmissionFairSharing)
    concurrentAdmissionPolicy: object
      migration*: object
        mode*: string (enum=TryPreferredFlavors|RetainFirstAdmission, maxLen=253)
        constraints: object
          lastAcceptableFlavorName: $SubdomainName
    fairSharing: $FairSharing
    stopPolicy: string (default="None", enum=None|Hold|HoldAndDrain)
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
    flavorsReservation: []$FlavorUsage (maxItems=64, map=name)
    flavorsUsage: []$FlavorUsage (maxItems=64, map=name)
    pendingWorkloads: int32
    reservingWorkloads: int32
    admittedWorkloads: int32
    fairSharing: object
      weightedShare*: int64
      admissionFairSharingStatus~: $ConsumedResources (former="ClusterQueues have none in v1beta2")
    pendingWorkloadsStatus~: object (former="pendingWorkloadsStatus is no field of v1beta2")
      clusterQueuePendingWorkload: []object
        name*: string
        namespace*: string
      lastChangeTime*: time
Cohort: object
  spec: object
    parentName: $SubdomainName
    resourceGroups: []$ResourceGroup (maxItems=16)
    fairSharing: $FairSharing
  status: object
    fairSharing: object
      weightedShare*: int64
      admissionFairSharingStatus~: $ConsumedResources (former="Cohorts have none in v1beta2")
LocalQueue: object
  spec: object
    clusterQueue: $SubdomainName
    stopPolicy: string (default="None", enum=None|Hold|HoldAndDrain)
    fairSharing: $FairSharing
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
    pendingWorkloads: int32
    reservingWorkloads: int32
    admittedWorkloads: int32
    flavorsReservation: []$LocalQueueFlavorUsage (maxItems=64, map=name)
    flavorsUsage^: []$LocalQueueFlavorUsage (maxItems=64, map=name)
    flavorUsage~: []$LocalQueueFlavorUsage (maxItems=64, map=name, former="flavorUsage is flavorsUsage in v1beta2")
    flavors~: []object (maxItems=64, map=name, former="flavors is no field of v1beta2")
      name*: $SubdomainName
      resources: []string (maxItems=64, set)
      nodeLabels: map[string] (maxProps=8, atomic)
      nodeTaints: []$Taint (maxItems=8)
      topology: object
        name*: $SubdomainName
        levels*: []string (minItems=1, maxItems=16)
    fairSharing: object
      weightedShare*: int64
      admissionFairSharingStatus: $ConsumedResources
ClusterName: string (maxLen=256)
KubeConfig: object
  location*: string (minLen=1, maxLen=256)
  locationType: string (default="Secret", enum=Secret|Path)
ClusterProfileReference: object
  name*: string (minLen=1, maxLen=256)
MultiKueueCluster: object
  spec: object
    clusterSource*^: object
      kubeConfig: $KubeConfig
      clusterProfileRef: $ClusterProfileReference
    kubeConfig~: $KubeConfig (former="kubeConfig is clusterSource.kubeConfig in v1beta2")
    clusterProfileRef~: $ClusterProfileReference (former="it is clusterSource.clusterProfileRef in v1beta2")
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
MultiKueueConfig: object
  spec: object
    clusters*: []$ClusterName (minItems=1, maxItems=20)
    quotaManagement: string (enum=Manual|Automated)
ParameterValue: string (maxLen=255)
ProvisioningRequestConfig: object
  spec: object
    provisioningClassName*: string (minLen=1, maxLen=253, pattern=subdomain)
    parameters: map[$ParameterValue] (maxProps=100)
    managedResources: []string (maxItems=100, set)
    retryStrategy: object (default={"backoffBaseSeconds":60,"backoffLimitCount":3,"backoffMaxSeconds":1800})
      backoffLimitCount: int32 (default=3)
      backoffBaseSeconds: int32 (default=60)
      backoffMaxSeconds: int32 (default=1800)
    podSetUpdates: object
      nodeSelector: []object (maxItems=8, map=key)
        key*: string (minLen=1, maxLen=317, pattern=qualified)
        valueFromProvisioningClassDetail*: string (minLen=1, maxLen=32768)
    podSetMergePolicy: string (enum=IdenticalPodTemplates|IdenticalWorkloadSchedulingRequirements)
ResourceFlavor: object
  spec: object
    nodeLabels: map[string] (maxProps=8, atomic)
    nodeTaints: $Taints
    tolerations: $Tolerations
    topologyName: $SubdomainName
Topology: object
  spec: object
    levels*: []object (minItems=1, maxItems=16)
      nodeLabel*: string (minLen=1, maxLen=316, pattern=qualified)
WorkloadPriorityClass: object
  value*: int32
  description: string (maxLen=2048)
LevelName: string (maxLen=317)
ShortName: string (maxLen=63)
PodSetName: string (maxLen=63, pattern=label)
PodCount: int32 (min=1)
TopologyAssignment: object
  levels*: []$LevelName (minItems=1, maxItems=16)
  domains~: []object (former="domains are slices in v1beta2")
    values*: []string (minItems=1, maxItems=16)
    count*: int32 (min=1)
  slices*^: []object (maxItems=1000)
    domainCount*: int32 (min=1)
    valuesPerLevel*: []object (minItems=1, maxItems=16)
      universal: string (maxLen=63)
      individual: object
        prefix: string (maxLen=63)
        suffix: string (maxLen=63)
        roots*: []$ShortName (minItems=1, maxItems=100000)
    podCounts*: object
      universal: int32 (min=1)
      individual: []$PodCount (minItems=1, maxItems=100000)
PriorityClassSource: string (enum=kueue.x-k8s.io/workloadpriorityclass|scheduling.k8s.io/priorityclass|)
Workload: object
  spec: object
    podSets: []object (minItems=1, maxItems=18, map=name)
      name: string (default="main", maxLen=63, pattern=label)
      template*: $PodTemplate
      count: int32 (default=1, min=0)
      minCount: int32 (min=1)
      topologyRequest: object
        required: string (maxLen=63)
        preferred: string (maxLen=63)
        unconstrained: boolean
        podIndexLabel: string (maxLen=317)
        subGroupIndexLabel: string (maxLen=317)
        subGroupCount: int32
        podSetGroupName: string (maxLen=256)
        podSetSliceRequiredTopology: string (maxLen=63)
        podSetSliceSize: int32
        podsetSliceRequiredTopologyConstraints: []object (maxItems=3)
          topology*: string (minLen=1, maxLen=63)
          size*: int32 (min=1)
    queueName: $SubdomainName
    priorityClassRef^: object
      group*: string (enum=kueue.x-k8s.io|scheduling.k8s.io)
      kind*: string (enum=WorkloadPriorityClass|PriorityClass)
      name*: string (minLen=1, maxLen=253, pattern=subdomain)
    priorityClassName~: $SubdomainName (former="priorityClassName is priorityClassRef.name in v1beta2")
    priorityClassSource~: $PriorityClassSource (former="it is priorityClassRef.group and .kind in v1beta2")
    priority: int32
    active: boolean (default=true)
    maximumExecutionTimeSeconds: int32 (min=1)
    preemptionGates: []object (maxItems=8, map=name)
      name*: string (minLen=1, maxLen=63)
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
    admission: object
      clusterQueue: $SubdomainName
      podSetAssignments: []object (maxItems=18, map=name)
        name: string (default="main", maxLen=63, pattern=label)
        flavors: map[$SubdomainName]
        resourceUsage: map[quantity]
        count: int32 (min=0)
        topologyAssignment: $TopologyAssignment
        delayedTopologyRequest: string (enum=Pending|Ready, maxLen=7)
    requeueState: object
      count: int32 (min=0)
      requeueAt: time
    reclaimablePods: []object (maxItems=18, map=name)
      name*: $PodSetName
      count*: int32 (min=0)
    admissionChecks: []object (maxItems=8, map=name)
      name*: string (minLen=1, maxLen=316)
      state*: string (enum=Pending|Ready|Retry|Rejected)
      lastTransitionTime*: time
      message*: string (maxLen=32768)
      requeueAfterSeconds: int32 (min=0)
      retryCount: int32 (min=0)
      podSetUpdates: []object (maxItems=18)
        name*: $PodSetName
        labels: map[string]
        annotations: map[string]
        nodeSelector: map[string]
        tolerations: $Tolerations
    resourceRequests: []object (maxItems=18, map=name)
      name*: $PodSetName
      resources: map[quantity]
    accumulatedPastExecutionTimeSeconds^: int32
    accumulatedPastExexcutionTimeSeconds~: int32 (former="it is accumulatedPastExecutionTimeSeconds in v1beta2")
    schedulingStats: object
      evictions: []object (maxItems=256, map=reason+underlyingCause)
        reason*: string (maxLen=316)
        underlyingCause*: string (maxLen=316)
        count*: int32 (min=0)
    nominatedClusterNames: []$ClusterName (maxItems=20)
    clusterName: $ClusterName
    unhealthyNodes: []object (maxItems=8, map=name)
      name*: string (maxLen=63)
    preemptionGates: []object (maxItems=8, map=name)
      name*: string (minLen=1, maxLen=63)
      position*: string (enum=Closed|Open)
      lastTransitionTime*: time
"""
