"""
The fields of Kubernetes' own kinds, as far as a scheduler and its users meet them.

Every field of the API server at the two upper levels of a Pod is here, so that strict field validation
accepts real manifests; rarely used depths are `any`, which keeps whatever was written. List keys are those of the
published OpenAPI. Rules beyond the type of a field are not here: Kubernetes validates its own kinds by code, and
so do `rules_*.py`.
"""
# Over 400 lines: a table of the fields of Kubernetes' own kinds.

from typing import Final

CORE_SCHEMAS: Final = """
Condition: object
  type*: string
  status*: string
  observedGeneration: integer
  lastTransitionTime: string
  lastProbeTime: string
  lastHeartbeatTime: string
  reason: string
  message: string
LabelSelectorRequirement: object
  key*: string
  operator*: string
  values: []string
LabelSelector: object (atomic)
  matchLabels: map[string]
  matchExpressions: []$LabelSelectorRequirement
Toleration: object
  key: string
  operator: string
  value: string
  effect: string
  tolerationSeconds: integer
Taint: object
  key*: string
  value: string
  effect*: string
  timeAdded: string
ObjectReference: object (atomic)
  apiVersion: string
  kind: string
  namespace: string
  name: string
  uid: string
  resourceVersion: string
  fieldPath: string
ResourceClaimUse: object
  name*: string
  request: string
Resources: object
  limits: map[quantity]
  requests: map[quantity]
  claims: []$ResourceClaimUse (map=name)
EnvVar: object
  name*: string
  value: string
  valueFrom: any
ContainerPort: object
  name: string
  hostPort: integer
  containerPort*: integer
  protocol: string (default="TCP")
  hostIP: string
VolumeMount: object
  name*: string
  mountPath*: string
  readOnly: boolean
  recursiveReadOnly: string
  subPath: string
  subPathExpr: string
  mountPropagation: string
VolumeDevice: object
  name*: string
  devicePath*: string
Container: object
  name*: string
  image: string
  command: []string
  args: []string
  workingDir: string
  ports: []$ContainerPort (map=containerPort+protocol, merge=containerPort)
  envFrom: any
  env: []$EnvVar (map=name)
  resources: $Resources (default={})
  resizePolicy: any
  restartPolicy: string
  restartPolicyRules: any
  volumeMounts: []$VolumeMount (map=mountPath)
  volumeDevices: []$VolumeDevice (map=devicePath)
  livenessProbe: any
  readinessProbe: any
  startupProbe: any
  lifecycle: any
  terminationMessagePath: string (default="/dev/termination-log")
  terminationMessagePolicy: string (default="File")
  imagePullPolicy: string
  securityContext: any
  stdin: boolean
  stdinOnce: boolean
  tty: boolean
  targetContainerName: string
Named: object
  name: string
PodResourceClaim: object
  name*: string
  resourceClaimName: string
  resourceClaimTemplateName: string
TopologySpreadConstraint: object
  maxSkew*: integer
  topologyKey*: string
  whenUnsatisfiable*: string
  labelSelector: $LabelSelector
  minDomains: integer
  nodeAffinityPolicy: string
  nodeTaintsPolicy: string
  matchLabelKeys: []string
NodeSelectorRequirement: object
  key*: string
  operator*: string
  values: []string
NodeSelectorTerm: object (atomic)
  matchExpressions: []$NodeSelectorRequirement
  matchFields: []$NodeSelectorRequirement
NodeSelector: object (atomic)
  nodeSelectorTerms*: []$NodeSelectorTerm
PreferredSchedulingTerm: object
  weight*: integer
  preference*: $NodeSelectorTerm
NodeAffinity: object
  requiredDuringSchedulingIgnoredDuringExecution: $NodeSelector
  preferredDuringSchedulingIgnoredDuringExecution: []$PreferredSchedulingTerm
PodAffinityTerm: object
  labelSelector: $LabelSelector
  namespaces: []string
  topologyKey*: string
  namespaceSelector: $LabelSelector
  matchLabelKeys: []string
  mismatchLabelKeys: []string
WeightedPodAffinityTerm: object
  weight*: integer
  podAffinityTerm*: $PodAffinityTerm
PodAffinity: object
  requiredDuringSchedulingIgnoredDuringExecution: []$PodAffinityTerm
  preferredDuringSchedulingIgnoredDuringExecution: []$WeightedPodAffinityTerm
Affinity: object
  nodeAffinity: $NodeAffinity
  podAffinity: $PodAffinity
  podAntiAffinity: $PodAffinity
Volume: object (open)
  name*: string
HostAlias: object
  ip*: string
  hostnames: []string
PodSpec: object
  volumes: []$Volume (map=name)
  initContainers: []$Container (map=name)
  containers*: []$Container (map=name)
  ephemeralContainers: []$Container (map=name)
  restartPolicy: string (default="Always")
  terminationGracePeriodSeconds: integer (default=30)
  activeDeadlineSeconds: integer
  dnsPolicy: string (default="ClusterFirst")
  nodeSelector: map[string] (atomic)
  serviceAccountName: string
  serviceAccount: string
  automountServiceAccountToken: boolean
  nodeName: string
  hostNetwork: boolean
  hostPID: boolean
  hostIPC: boolean
  hostUsers: boolean
  hostnameOverride: string
  shareProcessNamespace: boolean
  securityContext: any (default={})
  imagePullSecrets: []$Named (map=name)
  hostname: string
  subdomain: string
  affinity: $Affinity
  schedulerName: string (default="default-scheduler")
  tolerations: []$Toleration
  hostAliases: []$HostAlias (map=ip)
  priorityClassName: string
  priority: integer
  dnsConfig: any
  readinessGates: any
  runtimeClassName: string
  enableServiceLinks: boolean
  preemptionPolicy: string
  overhead: map[quantity]
  topologySpreadConstraints: []$TopologySpreadConstraint (map=topologyKey+whenUnsatisfiable)
  setHostnameAsFQDN: boolean
  os: any
  schedulingGates: []$Named (map=name)
  schedulingGroup: object
    podGroupName: string
  resourceClaims: []$PodResourceClaim (map=name)
  resources: $Resources
  workloadRef: any
  schedulingGroup: any
TemplateMetadata: object
  name: string
  generateName: string
  namespace: string
  selfLink: string
  uid: string
  resourceVersion: string
  generation: integer
  creationTimestamp: string
  deletionTimestamp: string
  deletionGracePeriodSeconds: integer
  labels: map[string]
  annotations: map[string]
  ownerReferences: any
  finalizers: []string (union)
  managedFields: any
PodTemplate: object
  metadata: $TemplateMetadata
  spec: $PodSpec
Pod: object
  spec: $PodSpec
  status: object
    observedGeneration: integer
    phase: string
    conditions: []$Condition (map=type)
    message: string
    reason: string
    nominatedNodeName: string
    hostIP: string
    hostIPs: any
    podIP: string
    podIPs: any
    startTime: string
    initContainerStatuses: []object (open)
    containerStatuses: []object (open)
    ephemeralContainerStatuses: []object (open)
    qosClass: string
    resize: string
    resourceClaimStatuses: any
    allocatedResources: map[quantity]
    resources: any
    extendedResourceClaimStatus: any
Namespace: object
  spec: object
    finalizers: []string
  status: object
    phase: string
    conditions: []$Condition (map=type)
NodeAddress: object
  type*: string
  address*: string
Node: object
  spec: object
    podCIDR: string
    podCIDRs: []string (union)
    providerID: string
    unschedulable: boolean
    taints: []$Taint (merge=key)
    configSource: any
    externalID: string
  status: object
    capacity: map[quantity]
    allocatable: map[quantity]
    phase: string
    conditions: []$Condition (map=type)
    addresses: []$NodeAddress (map=type)
    daemonEndpoints: any
    nodeInfo: any
    images: any
    volumesInUse: any
    volumesAttached: any
    config: any
    runtimeHandlers: any
    features: any
    declaredFeatures: any
Event: object
  involvedObject*: $ObjectReference
  reason: string
  message: string
  source: any
  firstTimestamp: string
  lastTimestamp: string
  count: integer
  type: string
  eventTime: string
  series: any
  action: string
  related: $ObjectReference
  reportingComponent: string
  reportingInstance: string
ConfigMap: object
  immutable: boolean
  data: map[string]
  binaryData: map[string]
PodTemplateObject: object
  template: $PodTemplate
ProvisioningRequestPodSet: object
  podTemplateRef*: object
    name: string
  count*: integer
ProvisioningRequest: object
  spec: object
    podSets*: []$ProvisioningRequestPodSet (atomic)
    provisioningClassName*: string
    parameters: map[string]
  status: object
    conditions: []$Condition (map=type)
    provisioningClassDetails: map[string]
LimitRangeItem: object
  type*: string
  max: map[quantity]
  min: map[quantity]
  default: map[quantity]
  defaultRequest: map[quantity]
  maxLimitRequestRatio: map[quantity]
LimitRange: object
  spec: object
    limits: []$LimitRangeItem
PodFailureExitCodes: object
  containerName: string
  operator: string
  values: []integer
PodFailureCondition: object
  type: string
  status: string
PodFailureRule: object
  action: string
  onExitCodes: $PodFailureExitCodes
  onPodConditions: []$PodFailureCondition
PodFailurePolicy: object
  rules: []$PodFailureRule
SuccessPolicyRule: object
  succeededIndexes: string
  succeededCount: integer
SuccessPolicy: object
  rules: []$SuccessPolicyRule
UncountedPods: object
  succeeded: []string
  failed: []string
Job: object
  spec: object
    parallelism: integer
    completions: integer
    activeDeadlineSeconds: integer
    podFailurePolicy: $PodFailurePolicy
    successPolicy: $SuccessPolicy
    backoffLimit: integer
    backoffLimitPerIndex: integer
    maxFailedIndexes: integer
    selector: $LabelSelector
    manualSelector: boolean (default=false)
    template: $PodTemplate (default={})
    ttlSecondsAfterFinished: integer
    completionMode: string (default="NonIndexed")
    suspend: boolean (default=false)
    podReplacementPolicy: string
    managedBy: string
    scheduling: any
  status: object
    conditions: []$Condition (map=type)
    startTime: string
    completionTime: string
    active: integer
    succeeded: integer
    failed: integer
    terminating: integer
    completedIndexes: string
    failedIndexes: string
    uncountedTerminatedPods: $UncountedPods
    ready: integer
PriorityClass: object
  value: integer (default=0)
  globalDefault: boolean
  description: string
  preemptionPolicy: string (default="PreemptLowerPriority")
RuntimeClass: object
  handler*: string
  overhead: object
    podFixed: map[quantity]
  scheduling: object
    nodeSelector: map[string] (atomic)
    tolerations: []$Toleration
Lease: object
  spec: object
    holderIdentity: string
    leaseDurationSeconds: integer
    acquireTime: string
    renewTime: string
    leaseTransitions: integer
    strategy: string
    preferredHolder: string
EventsEvent: object
  eventTime: string
  series: any
  reportingController: string
  reportingInstance: string
  action: string
  reason: string
  regarding: $ObjectReference
  related: $ObjectReference
  note: string
  type: string
  deprecatedSource: any
  deprecatedFirstTimestamp: string
  deprecatedLastTimestamp: string
  deprecatedCount: integer
PodDisruptionBudget: object
  spec: object
    minAvailable: intorstring
    maxUnavailable: intorstring
    selector: $LabelSelector
    unhealthyPodEvictionPolicy: string
  status: object
    observedGeneration: integer
    disruptedPods: map[string]
    disruptionsAllowed: integer
    currentHealthy: integer
    desiredHealthy: integer
    expectedPods: integer
    conditions: []$Condition (map=type)
ServicePort: object
  name: string
  protocol: string (default="TCP")
  appProtocol: string
  port*: integer
  targetPort: intorstring
  nodePort: integer
Service: object
  spec: object
    ports: []$ServicePort
    selector: map[string] (atomic)
    clusterIP: string
    clusterIPs: []string
    type: string (default="ClusterIP")
    externalIPs: []string
    sessionAffinity: string (default="None")
    loadBalancerIP: string
    loadBalancerSourceRanges: []string
    externalName: string
    externalTrafficPolicy: string
    healthCheckNodePort: integer
    publishNotReadyAddresses: boolean
    sessionAffinityConfig: any
    ipFamilies: []string
    ipFamilyPolicy: string
    allocateLoadBalancerNodePorts: boolean
    loadBalancerClass: string
    internalTrafficPolicy: string
    trafficDistribution: string
  status: object
    loadBalancer: any
    conditions: []$Condition (map=type)
ReplicationController: object
  spec: object
    replicas: integer (default=1)
    minReadySeconds: integer
    selector: map[string] (atomic)
    template: $PodTemplate
  status: object
    replicas: integer
    fullyLabeledReplicas: integer
    readyReplicas: integer
    availableReplicas: integer
    observedGeneration: integer
    conditions: []$Condition (map=type)
ReplicaSet: object
  spec: object
    replicas: integer (default=1)
    minReadySeconds: integer
    selector*: $LabelSelector
    template: $PodTemplate
  status: object
    replicas: integer
    fullyLabeledReplicas: integer
    readyReplicas: integer
    availableReplicas: integer
    terminatingReplicas: integer
    observedGeneration: integer
    conditions: []$Condition (map=type)
StatefulSet: object
  spec: object
    replicas: integer (default=1)
    selector*: $LabelSelector
    template*: $PodTemplate
    volumeClaimTemplates: any
    serviceName: string
    podManagementPolicy: string (default="OrderedReady")
    updateStrategy: any
    revisionHistoryLimit: integer (default=10)
    minReadySeconds: integer
    persistentVolumeClaimRetentionPolicy: any
    ordinals: any
  status: object
    observedGeneration: integer
    replicas: integer
    readyReplicas: integer
    currentReplicas: integer
    updatedReplicas: integer
    currentRevision: string
    updateRevision: string
    collisionCount: integer
    availableReplicas: integer
    conditions: []$Condition (map=type)
PersistentVolumeClaim: object
  spec: object
    accessModes: []string
    selector: $LabelSelector
    resources: object
      limits: map[quantity]
      requests: map[quantity]
    volumeName: string
    storageClassName: string
    volumeMode: string (default="Filesystem")
    dataSource: any
    dataSourceRef: any
    volumeAttributesClassName: string
  status: object
    phase: string
    accessModes: []string
    capacity: map[quantity]
    conditions: []$Condition (map=type)
    allocatedResources: map[quantity]
    allocatedResourceStatuses: map[string]
    currentVolumeAttributesClassName: string
    modifyVolumeStatus: any
PersistentVolume: object
  spec: object (open)
    capacity: map[quantity]
    accessModes: []string
    claimRef: $ObjectReference
    persistentVolumeReclaimPolicy: string (default="Retain")
    storageClassName: string
    mountOptions: []string
    volumeMode: string (default="Filesystem")
    nodeAffinity: object
      required: $NodeSelector
    volumeAttributesClassName: string
  status: object
    phase: string
    message: string
    reason: string
    lastPhaseTransitionTime: string
TopologySelectorLabel: object
  key*: string
  values*: []string
TopologySelectorTerm: object (atomic)
  matchLabelExpressions: []$TopologySelectorLabel
StorageClass: object
  provisioner*: string
  parameters: map[string]
  reclaimPolicy: string (default="Delete")
  mountOptions: []string
  allowVolumeExpansion: boolean
  volumeBindingMode: string (default="Immediate")
  allowedTopologies: []$TopologySelectorTerm
CSINodeDriver: object
  name*: string
  nodeID*: string
  topologyKeys: []string
  allocatable: object
    count: integer
CSINode: object
  spec*: object
    drivers*: []$CSINodeDriver (map=name)
CSIDriver: object
  spec*: object
    attachRequired: boolean (default=true)
    podInfoOnMount: boolean (default=false)
    volumeLifecycleModes: []string
    storageCapacity: boolean (default=false)
    fsGroupPolicy: string (default="ReadWriteOnceWithFSType")
    tokenRequests: any
    requiresRepublish: boolean (default=false)
    seLinuxMount: boolean (default=false)
    nodeAllocatableUpdatePeriodSeconds: integer
    serviceAccountTokenInSecrets: boolean
    preventPodSchedulingIfMissing: boolean
CSIStorageCapacity: object
  nodeTopology: $LabelSelector
  storageClassName*: string
  capacity: quantity
  maximumVolumeSize: quantity
VolumeAttachment: object
  spec*: object
    attacher*: string
    source*: object
      persistentVolumeName: string
      inlineVolumeSpec: any
    nodeName*: string
  status: object
    attached*: boolean
    attachmentMetadata: map[string]
    attachError: any
    detachError: any
DeviceClass: object
  spec*: object
    selectors: any
    config: any
    extendedResourceName: string
ResourceClaimSpec: object
  devices: object
    requests: any
    constraints: any
    config: any
ResourceClaim: object
  spec*: $ResourceClaimSpec
  status: object
    allocation: any
    reservedFor: any
    devices: any
ResourceClaimTemplate: object
  spec*: object
    metadata: $TemplateMetadata
    spec*: $ResourceClaimSpec
TopologyKey: object
  key*: string
PodGroup: object
  spec*: object
    podGroupTemplateRef: any
    schedulingPolicy*: object
      basic: object
      gang: object
        minCount*: integer
    schedulingConstraints: object
      topology: []$TopologyKey
    disruptionMode: string
    priorityClassName: string
    priority: integer
    resourceClaims: any
  status: object
    conditions: any
    resourceClaimStatuses: any
ResourceSlice: object
  spec*: object
    driver*: string
    pool*: object
      name*: string
      generation*: integer
      resourceSliceCount*: integer
    nodeName: string
    nodeSelector: $NodeSelector
    allNodes: boolean
    devices: any
    perDeviceNodeSelection: boolean
    sharedCounters: any
CustomResourceDefinition: object
  spec*: any
  status: any
"""
