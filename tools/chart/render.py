"""
The templates of the chart: the manifests of deploy/kubernetes with the chart's values in the places that users change.

Called by `tools.chart.__main__`. Raises DriftError where a default in values.yaml is not what the manifests say.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tools.chart.frameworks import guarded_rules
from tools.chart.manifests import CLUSTER_WIDE, Object, content, documents, labelled, merged
from tools.chart.templating import If, Items, Raw, With, Yaml, escaped, write

HEADER: Final = "{{- /* Generated from deploy/kubernetes by `make schemas`; do not edit. */}}\n"
NAMESPACE: Final = "headgate-system"
RECORD: Final = "headgate-cell-main"
"""The name of the ConfigMap with the cluster's record of its cell, which holds the cell's."""
KEYS: Final = "$.Values.keys.enabled"
CREDENTIALS: Final = '(include "headgate.credentials" $)'
BROKER: Final = "$.Values.nats.enabled"
CERT_MANAGER: Final = '(eq $.Values.webhook.certificates "cert-manager")'


class DriftError(Exception):
    """A default of the chart is not what the manifests say. The message is one line."""


def templates(values: Mapping[str, Any]) -> dict[str, str]:
    """The generated files of the chart, by their path in it."""
    defaults = ChartDefaults(values)
    keys = {each["metadata"]["name"]: each for each in documents("keys/keys.yaml")}
    users = {each["metadata"]["name"]: each for each in documents("nats/users.yaml")}
    common = documents("base/process.yaml")[0]
    deployments = []
    for each in documents("base/deployments.yaml"):
        name = each["metadata"]["name"]
        whole = labelled(_over(each, common))
        whole = merged(whole, _patch(keys[name]), KEYS)
        whole = merged(whole, _patch(users[name]), CREDENTIALS)
        deployments.append(_process(name, whole, defaults))
    return {
        "templates/processes.yaml": _file(deployments),
        "templates/disruption-budgets.yaml": _file(
            (labelled(each) for each in documents("base/disruption-budgets.yaml")), "podDisruptionBudgets.enabled"
        ),
        "templates/service-accounts.yaml": _file(labelled(each) for each in documents("base/service-accounts.yaml")),
        "templates/rbac.yaml": _file(labelled(guarded_rules(each)) for each in documents("base/rbac.yaml")),
        "templates/service.yaml": _file(labelled(each) for each in documents("base/service.yaml")),
        "templates/network-policies.yaml": _file(
            (labelled(each) for each in documents("base/network-policies.yaml")), "networkPolicies.enabled"
        ),
        "templates/policies.yaml": _file(documents("policies/policies.yaml"), "policies.enabled"),
        **_visibility(),
        **_webhook(defaults),
        **_nats(defaults),
        **_monitoring(defaults),
    }


class ChartDefaults:
    """The chart's values.yaml, compared with the manifests wherever one of its values takes the place of theirs."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def check(self, path: str, manifest: Any) -> None:
        """Raises DriftError unless the value's default is what the manifests have."""
        found: Any = self._values
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found != manifest:
            raise DriftError(f"values.yaml: {path} is {found!r}, and the manifests say {manifest!r}: make them equal")

    def check_pod(self, name: str, key: str, manifest: Any) -> None:
        """The same for a value of the pods of a process, whose own values are laid over those of all."""
        processes = self._values["processes"]
        own = processes[name].get(key)
        found = processes["defaults"][key] if own is None else merged(processes["defaults"][key], own)
        if found != manifest:
            raise DriftError(f"values.yaml: processes.{name}.{key} is {found!r}, and the manifests say {manifest!r}")


def _over(base: Object, patch: Object) -> Object:
    """A patch of Kustomize for many objects: all but its name."""
    found: Object = merged(base, {**patch, "metadata": {}})
    return found


def _patch(document: Object) -> Object:
    return {"spec": document["spec"]}


def _process(name: str, deployment: Object, defaults: ChartDefaults) -> Object:
    spec = deployment["spec"]
    defaults.check_pod(name, "replicas", spec["replicas"])
    spec["replicas"] = Raw("{{ $pod.replicas }}")
    template = spec["template"]
    template["metadata"] = {
        "annotations": {
            "checksum/config": Raw('{{ include "headgate.config" $ | sha256sum }}'),
            With("$pod.podAnnotations"): Yaml("."),
        },
        "labels": {**template["metadata"]["labels"], With("$pod.podLabels"): Yaml(".")},
    }
    pod = template["spec"]
    (container,) = pod["containers"]
    container["image"] = Raw('{{ include "headgate.image" $ }}')
    defaults.check_pod(name, "resources", container["resources"])
    container["resources"] = Yaml("$pod.resources")
    tls = Items(
        If("$.Values.nats.tls.secret"), [{"name": "nats-tls", "mountPath": "/etc/headgate-nats-tls", "readOnly": True}]
    )
    if name != "webhook":
        container["volumeMounts"] = [*container["volumeMounts"], tls]
        volume = {
            "name": "nats-tls",
            "secret": {"secretName": Raw("{{ $.Values.nats.tls.secret }}"), "defaultMode": 288},
        }
        pod["volumes"] = [*pod["volumes"], Items(If("$.Values.nats.tls.secret"), [volume])]
        pod["securityContext"] = merged(pod["securityContext"], {"fsGroup": 65532}, "$.Values.nats.tls.secret")
    container["env"] = [*container["env"], Items(With("$pod.env"), Yaml("."))]
    template["spec"] = _scheduling(name, _pulling(pod), defaults)
    own = f'(get $.Values.processes "{name}" | default dict)'
    values = f"$pod := mergeOverwrite (deepCopy $.Values.processes.defaults) (deepCopy {own})"
    return {Opening(values): None, **deployment}


class Opening(str):
    """An assignment before an object."""

    __slots__ = ()


def _pulling(pod: Object) -> Object:
    (container,) = pod["containers"]
    pod["containers"] = [
        {
            "name": container.pop("name"),
            "image": container.pop("image"),
            With("$.Values.image.pullPolicy"): {"imagePullPolicy": Raw("{{ . }}")},
            **container,
        }
    ]
    return {With("$.Values.imagePullSecrets"): {"imagePullSecrets": Yaml(".")}, **pod}


def _scheduling(name: str, pod: Object, defaults: ChartDefaults) -> Object:
    defaults.check_pod(name, "priorityClassName", pod.pop("priorityClassName"))
    spread = pod.pop("topologySpreadConstraints")
    return {
        With("$pod.priorityClassName"): {"priorityClassName": Raw("{{ . }}")},
        **pod,
        If("$pod.topologySpread"): {"topologySpreadConstraints": spread},
        With("$pod.nodeSelector"): {"nodeSelector": Yaml(".")},
        With("$pod.affinity"): {"affinity": Yaml(".")},
        With("$pod.tolerations"): {"tolerations": Yaml(".")},
    }


def _visibility() -> dict[str, str]:
    files = [each for name in ("apiservices", "service", "rbac") for each in documents(f"visibility/{name}.yaml")]
    return {
        "templates/visibility.yaml": _file(files, "visibility.enabled"),
        "templates/visibility-network-policy.yaml": _file(
            documents("visibility/network-policy.yaml"), "visibility.enabled", "networkPolicies.enabled"
        ),
    }


def _webhook(defaults: ChartDefaults) -> dict[str, str]:
    found = []
    (mount,) = documents("webhook-cert-manager/deployment.yaml")
    for each in documents("webhook/deployment.yaml"):
        if each["kind"] == "Deployment":
            found.append(_process("webhook", merged(each, _patch(mount), CERT_MANAGER), defaults))
        elif each["kind"] != "PodDisruptionBudget":
            found.append(each)
    budgets = [each for each in documents("webhook/deployment.yaml") if each["kind"] == "PodDisruptionBudget"]
    return {
        "templates/webhook.yaml": _file(found, "webhook.enabled"),
        "templates/webhook-rbac.yaml": _file(map(guarded_rules, documents("webhook/rbac.yaml")), "webhook.enabled"),
        "templates/webhook-disruption-budget.yaml": _file(budgets, "webhook.enabled", "podDisruptionBudgets.enabled"),
        "templates/webhook-network-policy.yaml": _file(
            documents("webhook/network-policy.yaml"), "webhook.enabled", "networkPolicies.enabled"
        ),
        "templates/webhook-certificate.yaml": _file(
            documents("webhook-cert-manager/certificate.yaml"), "webhook.enabled", CERT_MANAGER
        ),
    }


def _nats(defaults: ChartDefaults) -> dict[str, str]:
    found = [_server(each, defaults) if each["kind"] == "StatefulSet" else each for each in documents("nats/nats.yaml")]
    (setup,) = documents("nats/setup.yaml")
    return {
        "templates/nats.yaml": _file(found, BROKER),
        "templates/nats-setup.yaml": _file([_setup(setup)], BROKER),
        "templates/nats-network-policies.yaml": _file(
            documents("nats/network-policies.yaml"), BROKER, "networkPolicies.enabled"
        ),
        "files/nats.conf": content("nats/nats.conf"),
    }


def _server(document: Object, defaults: ChartDefaults) -> Object:
    spec = document["spec"]
    template = spec["template"]
    template["metadata"]["annotations"] = {
        "checksum/config": Raw('{{ include "headgate.nats.config" $ | sha256sum }}'),
        With("$.Values.nats.podAnnotations"): Yaml("."),
    }
    pod = template["spec"]
    (container,) = pod["containers"]
    (claim,) = spec["volumeClaimTemplates"]
    requests = claim["spec"]["resources"]["requests"]
    for path, holder, key in (
        ("nats.image", container, "image"),
        ("nats.resources", container, "resources"),
        ("nats.storage.size", requests, "storage"),
        ("nats.priorityClassName", pod, "priorityClassName"),
    ):
        defaults.check(path, holder[key])
        holder[key] = Yaml(f"$.Values.{path}") if key == "resources" else Raw(f"{{{{ $.Values.{path} }}}}")
    claim["spec"][With("$.Values.nats.storage.className")] = {"storageClassName": Raw("{{ . }}")}
    for key in ("nodeSelector", "affinity", "tolerations"):
        pod[With(f"$.Values.nats.{key}")] = {key: Yaml(".")}
    template["spec"] = _pulling(pod)
    return document


def _setup(job: Object) -> Object:
    """A Job's template is immutable: its name says which settings it is for, so that an upgrade makes another one."""
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["image"] = Raw('{{ include "headgate.image" $ }}')
    job["spec"]["template"]["spec"] = _pulling(pod)
    config = '(include "headgate.image" $) (include "headgate.config" $)'
    job["metadata"]["name"] = Raw(f'nats-setup-{{{{ printf "%s%s" {config} | sha256sum | trunc 8 }}}}')
    return job


def _monitoring(defaults: ChartDefaults) -> dict[str, str]:
    on = "monitoring.{}.enabled".format
    (monitor,) = documents("monitoring/service-monitor.yaml")
    for key in ("interval", "scheme"):
        (endpoint,) = monitor["spec"]["endpoints"]
        defaults.check(f"monitoring.serviceMonitor.{key}", endpoint[key])
        endpoint[key] = Raw(f"{{{{ $.Values.monitoring.serviceMonitor.{key} }}}}")
    return {
        "templates/metrics-service.yaml": _file(documents("monitoring/service.yaml"), on("serviceMonitor")),
        "templates/service-monitor.yaml": _file([_labels_of(monitor, "serviceMonitor")], on("serviceMonitor")),
        "templates/prometheus-rule.yaml": _file(
            [_labels_of(_with_runbooks(each, defaults), "rules") for each in documents("monitoring/alerts.yaml")],
            on("rules"),
        ),
    }


def _with_runbooks(document: Object, defaults: ChartDefaults) -> Object:
    """Alerts whose pages of the documentation are where the users of the chart have them."""
    for group in document["spec"]["groups"]:
        for rule in group["rules"]:
            folder, _, page = rule["annotations"]["runbook_url"].rpartition("/")
            defaults.check("monitoring.rules.runbooks", folder)
            rule["annotations"]["runbook_url"] = Raw(f"{{{{ $.Values.monitoring.rules.runbooks }}}}/{page}")
    return document


def _labels_of(document: Object, section: str) -> Object:
    labels = document["metadata"].get("labels", {})
    document["metadata"]["labels"] = {**labels, With(f"$.Values.monitoring.{section}.labels"): Yaml(".")}
    return document


def _file(found: Iterable[Object], *conditions: str) -> str:
    """A file of objects, guarded by values that have to be true."""
    text = "".join(f"---\n{_object(each)}" for each in found)
    guards = [each if each.startswith(("$", "(")) else f"$.Values.{each}" for each in conditions]
    if guards:
        condition = guards[0] if len(guards) == 1 else f"and {' '.join(guards)}"
        text = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return HEADER + text


def _object(document: Object) -> str:
    head = ""
    document = dict(document)
    for key in [each for each in document if isinstance(each, Opening)]:
        head += f"{{{{- {key} }}}}\n"
        del document[key]
    if document["kind"] not in CLUSTER_WIDE:
        metadata = document["metadata"]
        document["metadata"] = {"name": metadata["name"], "namespace": metadata.get("namespace", NAMESPACE), **metadata}
    lines = "\n".join(write(_of_the_release(document)))
    return f"{head}{lines}\n"


_NAMESPACE: Final = re.compile(rf"\b{NAMESPACE}\b")


def _of_the_release(node: Any) -> Any:
    """The tree with the release's namespace where the manifests name theirs."""
    match node:
        case Raw():
            return node
        case str() if RECORD in node or NAMESPACE in node:
            return _in_namespace(node)
        case dict():
            return {key: _of_the_release(value) for key, value in node.items()}
        case Items():
            return Items(node.guard, node.items if isinstance(node.items, Yaml) else _of_the_release(list(node.items)))
        case Yaml():
            return node
        case list():
            return [_of_the_release(each) for each in node]
        case _:
            return node


def _in_namespace(text: str) -> Raw:
    quoted = escaped(json.dumps(text, ensure_ascii=False))
    quoted = quoted.replace(RECORD, "headgate-cell-{{ $.Values.settings.cell }}")
    return Raw(_NAMESPACE.sub("{{ $.Release.Namespace }}", quoted))
