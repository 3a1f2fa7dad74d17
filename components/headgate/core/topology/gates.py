"""The feature gates that placement depends on, read from a configuration. Called by the catalog of flavors."""

from headgate.core.config import feature_gates
from headgate.core.topology.demands import Gates
from headgate.events.configuration import Configuration


def gates_of(configuration: Configuration) -> Gates:
    """The gates of placement in effect."""

    def on(gate: str) -> bool:
        return feature_gates.enabled(configuration, gate)

    return Gates(
        profile_mixed=on(feature_gates.TAS_PROFILE_MIXED),
        balanced=on(feature_gates.TAS_BALANCED_PLACEMENT),
        multi_layer=on(feature_gates.TAS_MULTI_LAYER),
        preferred_affinity=on(feature_gates.TAS_RESPECT_AFFINITY_PREFERRED),
        overlapping_flavors=on(feature_gates.TAS_OVERLAPPING_FLAVORS),
    )
