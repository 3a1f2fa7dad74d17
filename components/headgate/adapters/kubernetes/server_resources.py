"""
The resources that an API server is set up with, and those that run and serve Headgate in a cluster.

No cell watches them: they are none of `headgate.adapters.kubernetes.resources.RESOURCES`. Installing, taking over and
the certificates of servers read and write them.
"""

from typing import Final

from headgate.adapters.kubernetes.resources import v1

_ADMISSION: Final = "admissionregistration.k8s.io"

CUSTOM_RESOURCE_DEFINITIONS: Final = v1("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition")
API_SERVICES: Final = v1("apiregistration.k8s.io", "apiservices", "APIService")
MUTATING_WEBHOOKS: Final = v1(_ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
VALIDATING_WEBHOOKS: Final = v1(_ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
MUTATING_POLICIES: Final = v1(_ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy")
MUTATING_BINDINGS: Final = v1(_ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding")
VALIDATING_POLICIES: Final = v1(_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
VALIDATING_BINDINGS: Final = v1(_ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")
DEPLOYMENTS: Final = v1("apps", "deployments", "Deployment", namespaced=True)
SECRETS: Final = v1("", "secrets", "Secret", namespaced=True)
