"""
A recorded run followed step by step: each attempt is made anew from the recorded state before it.

Nothing is taken from our own decisions: after an attempt what was recorded of it is applied. So attempts are compared
one by one, however the ones before were decided.
"""

from collections.abc import Iterator

from headgate.core.placement.attempt import attempt
from headgate.core.placement.configuration.profiles import Profiles, read_profiles
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.scan import NodeOrder
from headgate.events.ids import UnixMs
from headgate.testing.reference.placement.objects import ScenarioObjects
from headgate.testing.reference.placement.scenario import Json, PlacementScenario, ScriptAction
from headgate.testing.reference.placement.telling import told_attempt


class Following:
    """A recorded run, followed. `objects` is the state at the step that was yielded last."""

    def __init__(self, scenario: PlacementScenario, steps: list[Json]) -> None:
        self._scenario = scenario
        self._steps = steps
        self.objects = ScenarioObjects()
        self.profiles: Profiles = read_profiles(scenario.config, REGISTRY)
        self._frameworks = {
            name: Framework(profile, self.objects.cluster) for name, profile in self.profiles.by_name.items()
        }
        for manifest in scenario.objects:
            self.objects.put(manifest)

    def attempts(self) -> Iterator[tuple[Json, Json]]:
        """Each attempt as made here, and as recorded."""
        for step in self._steps:
            if "attempt" in step:
                recorded = step["attempt"]
                yield self._attempted(recorded), recorded
                self._apply_attempt(recorded)
            else:
                self._apply(step)

    def _attempted(self, recorded: Json) -> Json:
        cluster = self.objects.cluster
        framework = self._frameworks[recorded["profile"]]
        profile = framework.profile
        scan = cluster.index(NodeOrder).scan(0, self.profiles.percentage_of(profile))
        made = attempt(framework, cluster.pods[recorded["pod"]], scan)
        return told_attempt(made, profile.scheduler_name, recorded["n"], recorded["from"])

    def _apply_attempt(self, recorded: Json) -> None:
        """A nomination counts from the attempt on; its writing follows as a step."""
        if recorded.get("postfilter", {}).get("mode") == "override":
            self.objects.cluster.nominate(recorded["pod"], recorded["postfilter"].get("nominated", ""))

    def _apply(self, step: Json) -> None:
        at_ms = UnixMs(self._scenario.start_ms + 1000 * step["t"])
        match step["do"]:
            case "script":
                apply_action(self.objects, self._scenario.script[step["script"]])
            case "bound":
                self.objects.bind(step["pod"], step["node"], at_ms)
            case "terminating":
                self.objects.terminate(step["pod"], at_ms)
            case "deleted":
                self.objects.delete("Pod", step["pod"])
            case "nominated":
                self.objects.nominate(step["pod"], step["node"])
            case "object":
                self.objects.put(step["object"])
            case _:
                pass


def apply_action(objects: ScenarioObjects, action: ScriptAction) -> bool:
    """An action of a script; False if it changed nothing."""
    match action.op:
        case "create":
            objects.put(action.object)
            return True
        case "patch":
            return objects.patch(action.kind, action.name, action.patch)
        case "delete":
            return objects.delete(action.kind, action.name)
        case _:
            return False
