"""
The fields, defaults, enumerations and bounds of Kueue's kinds (`kueue.x-k8s.io/v1beta2`).

The text is the schema of Kueue 0.20-devel's CRDs; what their CEL rules and webhooks add is in `rules.py`.
"""

from typing import Final

KUEUE_SCHEMAS: Final = """
StatusCondition: object
  type*: string (maxLen=316)
  status*: string (enum=True|False|Unknown)
  observedGeneration: integer (min=0)
  lastTransitionTime*: string
  reason*: string (maxLen=1024)
  message*: string (maxLen=32768)
FairSharing: object
  weight: quantity (default=1)
FlavorQuotas: object
  name*: string (maxLen=253)
  resources*: []object (minItems=1, maxItems=64, map=name)
    name*: string
    nominalQuota*: quantity
    borrowingLimit: quantity
    lendingLimit: quantity
ResourceGroup: object
  coveredResources*: []string (minItems=1, maxItems=64, set)
  flavors*: []$FlavorQuotas (minItems=1, maxItems=64, map=name)
FlavorUsage: object
  name*: string (maxLen=253)
  resources*: []object (maxItems=64, map=name)
    name*: string
    total: quantity
    borrowed: quantity
LocalQueueFlavorUsage: object
  name*: string (maxLen=253)
  resources*: []object (maxItems=64, map=name)
    name*: string
    total: quantity
AdmissionCheck: object
  spec*: object
    controllerName*: string (maxLen=253)
    parameters: object
      apiGroup*: string (maxLen=253)
      kind*: string (maxLen=63)
      name*: string (maxLen=63)
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
ClusterQueue: object
  spec: object
    resourceGroups: []$ResourceGroup (maxItems=16)
    cohortName: string (maxLen=253)
    queueingStrategy: string (default="BestEffortFIFO", enum=StrictFIFO|BestEffortFIFO)
    namespaceSelector: $LabelSelector
    flavorFungibility: object (default={})
      whenCanBorrow: string (default="MayStopSearch", enum=MayStopSearch|TryNextFlavor)
      whenCanPreempt: string (default="TryNextFlavor", enum=MayStopSearch|TryNextFlavor)
      preference: string (enum=BorrowingOverPreemption|PreemptionOverBorrowing)
    preemption: object (default={})
      reclaimWithinCohort: string (default="Never", enum=Never|LowerPriority|Any)
      borrowWithinCohort: object (default={})
        policy: string (default="Never", enum=Never|LowerPriority)
        maxPriorityThreshold: integer
      withinClusterQueue: string (default="Never", enum=Never|LowerPriority|LowerOrNewerEqualPriority)
    admissionChecksStrategy: object
      admissionChecks*: []object (minItems=1, maxItems=64, map=name)
        name*: string (maxLen=316)
        onFlavors: []string (maxItems=64, set)
    admissionScope: object
      admissionMode*: string (enum=UsageBasedAdmissionFairSharing|NoAdmissionFairSharing)
    concurrentAdmissionPolicy: object
      migration*: object
        mode*: string (enum=TryPreferredFlavors|RetainFirstAdmission, maxLen=253)
        constraints: object
          lastAcceptableFlavorName: string (maxLen=253)
    fairSharing: $FairSharing
    stopPolicy: string (default="None", enum=None|Hold|HoldAndDrain)
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
    flavorsReservation: []$FlavorUsage (maxItems=64, map=name)
    flavorsUsage: []$FlavorUsage (maxItems=64, map=name)
    pendingWorkloads: integer
    reservingWorkloads: integer
    admittedWorkloads: integer
    fairSharing: object
      weightedShare*: integer
Cohort: object
  spec: object
    parentName: string (maxLen=253)
    resourceGroups: []$ResourceGroup (maxItems=16)
    fairSharing: $FairSharing
  status: object
    fairSharing: object
      weightedShare*: integer
LocalQueue: object
  spec: object
    clusterQueue: string (maxLen=253)
    stopPolicy: string (default="None", enum=None|Hold|HoldAndDrain)
    fairSharing: $FairSharing
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
    pendingWorkloads: integer
    reservingWorkloads: integer
    admittedWorkloads: integer
    flavorsReservation: []$LocalQueueFlavorUsage (maxItems=64, map=name)
    flavorsUsage: []$LocalQueueFlavorUsage (maxItems=64, map=name)
    fairSharing: object
      weightedShare*: integer
      admissionFairSharingStatus: object
        consumedResources*: map[quantity]
        lastUpdate*: string
ProvisioningRequestConfig: object
  spec: object
    provisioningClassName*: string (maxLen=253)
    parameters: map[string] (maxProps=100)
    managedResources: []string (maxItems=100, set)
    retryStrategy: object (default={"backoffBaseSeconds":60,"backoffLimitCount":3,"backoffMaxSeconds":1800})
      backoffLimitCount: integer (default=3)
      backoffBaseSeconds: integer (default=60)
      backoffMaxSeconds: integer (default=1800)
    podSetUpdates: object
      nodeSelector: []object (maxItems=8, map=key)
        key*: string (maxLen=317)
        valueFromProvisioningClassDetail*: string (maxLen=32768)
    podSetMergePolicy: string (enum=IdenticalPodTemplates|IdenticalWorkloadSchedulingRequirements)
ResourceFlavor: object
  spec: object
    nodeLabels: map[string] (maxProps=8, atomic)
    nodeTaints: []$Taint (maxItems=8)
    tolerations: []$Toleration (maxItems=8)
    topologyName: string (maxLen=253)
Topology: object
  spec*: object
    levels*: []object (minItems=1, maxItems=16)
      nodeLabel*: string (maxLen=316)
WorkloadPriorityClass: object
  value*: integer
  description: string (maxLen=2048)
TopologyAssignment: object
  levels*: []string (minItems=1, maxItems=16)
  slices*: []object (maxItems=1000)
    domainCount*: integer (min=1)
    valuesPerLevel*: []object (minItems=1, maxItems=16)
      universal: string (maxLen=63)
      individual: object
        prefix: string (maxLen=63)
        suffix: string (maxLen=63)
        roots*: []string (minItems=1, maxItems=100000)
    podCounts*: object
      universal: integer (min=1)
      individual: []integer (minItems=1, maxItems=100000)
Workload: object
  spec: object
    podSets: []object (minItems=1, maxItems=18, map=name)
      name: string (default="main", maxLen=63)
      template*: $PodTemplate
      count: integer (default=1, min=0)
      minCount: integer (min=1)
      topologyRequest: object
        required: string (maxLen=63)
        preferred: string (maxLen=63)
        unconstrained: boolean
        podIndexLabel: string (maxLen=317)
        subGroupIndexLabel: string (maxLen=317)
        subGroupCount: integer (min=0)
        podSetGroupName: string (maxLen=256)
        podSetSliceRequiredTopology: string (maxLen=63)
        podSetSliceSize: integer (min=1)
        podsetSliceRequiredTopologyConstraints: []object (maxItems=3)
          topology*: string (maxLen=63)
          size*: integer (min=1)
    queueName: string (maxLen=253)
    priorityClassRef: object
      group*: string (enum=kueue.x-k8s.io|scheduling.k8s.io)
      kind*: string (enum=WorkloadPriorityClass|PriorityClass)
      name*: string (maxLen=253)
    priority: integer
    active: boolean (default=true)
    maximumExecutionTimeSeconds: integer (min=1)
    preemptionGates: []object (maxItems=8, map=name)
      name*: string (maxLen=63)
  status: object
    conditions: []$StatusCondition (maxItems=16, map=type)
    admission: object
      clusterQueue: string (maxLen=253)
      podSetAssignments: []object (maxItems=18, map=name)
        name: string (default="main", maxLen=63)
        flavors: map[string]
        resourceUsage: map[quantity]
        count: integer (min=0)
        topologyAssignment: $TopologyAssignment
        delayedTopologyRequest: string (enum=Pending|Ready, maxLen=7)
    requeueState: object
      count: integer (min=0)
      requeueAt: string
    reclaimablePods: []object (maxItems=18, map=name)
      name*: string (maxLen=63)
      count*: integer (min=0)
    admissionChecks: []object (maxItems=8, map=name)
      name*: string (maxLen=316)
      state*: string (enum=Pending|Ready|Retry|Rejected)
      lastTransitionTime*: string
      message*: string (maxLen=32768)
      requeueAfterSeconds: integer (min=0)
      retryCount: integer (min=0)
      podSetUpdates: []object (maxItems=18)
        name*: string (maxLen=63)
        labels: map[string]
        annotations: map[string]
        nodeSelector: map[string]
        tolerations: []$Toleration (maxItems=8)
    resourceRequests: []object (maxItems=18, map=name)
      name*: string (maxLen=63)
      resources: map[quantity]
    accumulatedPastExecutionTimeSeconds: integer
    schedulingStats: object
      evictions: []object (maxItems=256, map=reason+underlyingCause)
        reason*: string (maxLen=316)
        underlyingCause*: string (maxLen=316)
        count*: integer (min=0)
    nominatedClusterNames: []string (maxItems=20, set)
    clusterName: string (maxLen=256)
    unhealthyNodes: []object (maxItems=8, map=name)
      name*: string (maxLen=63)
    preemptionGates: []object (maxItems=8, map=name)
      name*: string (maxLen=63)
      position*: string (enum=Closed|Open)
      lastTransitionTime*: string
"""
