"""
Attempts with extenders: each is asked what the kube-scheduler would ask, and its answer counts as it does there.

Expectations are from pkg/scheduler/extender.go, schedule_one.go and framework/preemption/preemption.go.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.placement import Json, cluster_of, node, pod

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.attempt import PlacementAttempt, attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import Profiles, read_profiles
from headgate.core.placement.extenders.answers import read_answer
from headgate.core.placement.extenders.requests import ExtenderAsk, binders, is_interested
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import Code
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.queue_hints import queue_profile
from headgate.core.placement.scan import NodeOrder
from headgate.events.extenders import ExtenderAnswer

GPU = "example.com/gpu"
A, B = "http://a", "http://b"

Server = Callable[[str, Json], Any]
"""What an extender answers to a path and a body: JSON, a status, or text that is no JSON."""


def extender(url: str = A, **fields: Any) -> Json:
    return {"urlPrefix": url, "nodeCacheCapable": True, **fields}


def profiles(*extenders: Json, **profile: Any) -> Profiles:
    return read_profiles(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", **profile}],
            "extenders": list(extenders),
        },
        REGISTRY,
    )


class Played:
    """An attempt, made again until no answer is missing; `asked` are the calls, by round."""

    def __init__(self, cluster: PlacementCluster, key: str, extenders: list[Json], **servers: Server) -> None:
        read = profiles(*extenders)
        self.framework = Framework(read.by_name["default-scheduler"], cluster, read.extenders)
        self.answers: dict[str, ExtenderAnswer] = {}
        self.rounds: list[list[ExtenderAsk]] = []
        while True:
            self.made = attempt(self.framework, cluster.pods[key], cluster.index(NodeOrder).scan(0, 100), self.answers)
            if self.made.path != "asks":
                return
            assert self.made.asks, "an attempt without a decision asks for something"
            self.rounds.append(list(self.made.asks))
            for ask in self.made.asks:
                assert ask.request not in self.answers, f"{ask} is answered already"
                self.answers[ask.request] = read_answer(ask, *answered(servers[ask.extender[-1]], ask))

    @property
    def asked(self) -> list[tuple[str, str]]:
        return [(ask.extender, ask.verb) for asks in self.rounds for ask in asks]

    def body(self, number: int) -> Json:
        return [ask for asks in self.rounds for ask in asks][number].body


def answered(server: Server, ask: ExtenderAsk) -> tuple[int, bytes]:
    match server(ask.path, json.loads(json.dumps(ask.body))):
        case int() as status:
            return status, b"why not"
        case str() as text:
            return 200, text.encode()
        case value:
            return 200, json.dumps(value).encode()


def three(*pods: Json) -> PlacementCluster:
    return cluster_of(node("n1"), node("n2"), node("n3"), *(pods or (pod("p"),)))


def only(*names: str, **others: Any) -> Server:
    """Lets these nodes pass, of those that are sent."""
    return lambda path, body: {"NodeNames": [name for name in body["NodeNames"] if name in names], **others}


# --- filter ----------------------------------------------------------------------------------------------------------


def test_without_extenders_nothing_is_asked():
    """The attempt is as ever."""
    played = Played(three(), "ns/p", [])
    assert (played.made.path, played.asked, played.made.ignored) == ("scored", [], ())


def test_a_filter_is_sent_the_feasible_nodes_and_leaves_some():
    """A node that no plugin lets pass is not sent. The only node left is taken without scores."""
    cluster = cluster_of(node("n1"), node("n2"), node("full", cpu="0"), pod("p", cpu="1"))
    played = Played(cluster, "ns/p", [extender(filterVerb="f", prioritizeVerb="s", weight=1)], a=only("n2"))
    assert played.asked == [(A, "filter")]
    assert played.body(0)["NodeNames"] == ["n1", "n2"]
    assert (played.made.node, played.made.path) == ("n2", "single")


def test_extenders_filter_one_after_the_other_and_ignorable_ones_last():
    """Each is sent what the one before has left; with no node left none is asked."""
    extenders = [extender(B, filterVerb="f", ignorable=True), extender(A, filterVerb="f")]
    played = Played(three(), "ns/p", extenders, a=only("n1", "n2"), b=only("n2", "n3"))
    assert played.asked == [(A, "filter"), (B, "filter")]
    assert played.body(1)["NodeNames"] == ["n1", "n2"]
    assert played.made.node == "n2"
    assert Played(three(), "ns/p", extenders, a=only(), b=only("n1")).asked == [(A, "filter")]


def test_the_message_of_a_pod_that_extenders_leave_no_node():
    """A histogram of their messages; nodes without one are not mentioned. Any event may bring the pod back."""
    server = only(FailedNodes={"n1": "no licence"}, FailedAndUnresolvableNodes={"n2": "no device", "n1": "no device"})
    made = Played(three(), "ns/p", [extender(filterVerb="f")], a=server).made
    assert made.status.code == Code.UNSCHEDULABLE
    assert made.message.startswith("0/3 nodes are available: 2 no device. ")
    assert made.message.endswith("preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.")
    assert made.rejectors == ("Extender",)
    assert {name: status.code for name, status in made.verdicts.rejections().items()} == {
        "n1": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        "n2": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    }


def test_the_rejections_of_plugins_and_of_extenders_stand_side_by_side():
    """Plugins that have rejected nodes stay rejectors."""
    cluster = cluster_of(node("n1"), node("n2", cpu="0"), pod("p", cpu="1"))
    made = Played(cluster, "ns/p", [extender(filterVerb="f")], a=only(FailedNodes={"n1": "busy"})).made
    assert made.message.startswith("0/2 nodes are available: 1 Insufficient cpu, 1 busy.")
    assert made.rejectors == ("Extender", "NodeResourcesFit")


def test_the_queue_registers_extenders_for_all_events():
    """What they decide by is not known."""
    for extenders in ([], [extender(filterVerb="f")]):
        read = profiles(*extenders)
        framework = Framework(read.by_name["default-scheduler"], three(), read.extenders)
        registered = {
            each.event.resource for each in queue_profile(framework).registrations if each.plugin == "Extender"
        }
        assert len(registered) == (10 if extenders else 0)


def test_whole_nodes_are_sent_to_an_extender_without_a_cache():
    """It answers with nodes; with names alone it has let none pass."""
    extenders = [extender(filterVerb="f", nodeCacheCapable=False)]
    played = Played(three(), "ns/p", extenders, a=lambda path, body: {"Nodes": {"items": body["Nodes"]["items"][1:2]}})
    assert (played.body(0)["NodeNames"], len(played.body(0)["Nodes"]["items"])) == (None, 3)
    assert played.made.node == "n2"
    assert not Played(three(), "ns/p", extenders, a=lambda path, body: {"NodeNames": ["n1"]}).made.node


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            {"NodeNames": ["n1", "n9"]},
            'extender "http://a" claims a filtered node "n9" which is not found in the input node list',
        ),
        ({"Error": "database is down"}, 'extender "http://a/f": database is down'),
        (500, "failed f with extender at URL http://a/f, code 500"),
        (
            "<html>",
            'extender "http://a/f": cannot read the answer: it is no JSON: Expecting value: line 1 column 1 (char 0)',
        ),
        ({"NodeNames": "n1"}, 'extender "http://a/f": cannot read the answer: NodeNames is a string, not an array'),
    ],
)
def test_a_filter_that_fails(answer, error):
    """It fails the attempt with its name; one that is ignorable is passed over, and noted."""
    failed = Played(three(), "ns/p", [extender(filterVerb="f")], a=lambda path, body: answer).made
    assert (failed.node, failed.reason, failed.message, failed.rejectors) == ("", "SchedulerError", error, ())
    assert failed.nominated == ""
    ignored = Played(three(), "ns/p", [extender(filterVerb="f", ignorable=True)], a=lambda path, body: answer).made
    assert (ignored.node, ignored.path, ignored.ignored) == ("n1", "scored", (error,))


def test_a_node_that_does_not_exist_is_not_rejected():
    """What is said of it is noted, and counts for no node."""
    made = Played(three(), "ns/p", [extender(filterVerb="f")], a=only(FailedNodes={"n9": "no", "n1": "no"})).made
    assert made.message.startswith("0/3 nodes are available: 1 no.")
    assert made.ignored == ('extender "http://a" rejects node "n9", which does not exist',)


def test_an_extender_may_speak_of_nodes_that_it_was_not_asked_about():
    """Its word counts more than that of the plugin that has rejected the node, as in Go."""
    cluster = cluster_of(node("n1"), node("n2", cpu="0"), pod("p", cpu="1"))
    server = only(FailedAndUnresolvableNodes={"n1": "no", "n2": "no"})
    made = Played(cluster, "ns/p", [extender(filterVerb="f")], a=server).made
    assert made.message.startswith("0/2 nodes are available: 2 no.")
    assert made.looked == 2


# --- interest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["requests", "limits"])
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_an_extender_is_asked_about_pods_that_name_its_resources(containers, field):
    """Whichever container names one, in requests or limits."""
    other = [{"name": "d", "resources": {field: {GPU: "1"}}}]
    cluster = three(pod("with", spec={containers: other}), pod("without"))
    read = profiles(extender(filterVerb="f", bindVerb="b", managedResources=[{"name": GPU}]))
    for key, interested in (("ns/with", True), ("ns/without", False)):
        spec = cluster.pods[key].spec
        assert is_interested(read.extenders[0], spec) is interested
        assert bool(binders(read.extenders, spec)) is interested
    without = Played(cluster, "ns/without", [extender(filterVerb="f", managedResources=[{"name": GPU}])])
    assert (without.asked, without.made.path) == ([], "scored")


def test_a_resource_that_an_extender_accounts_for_is_not_counted_by_the_scheduler():
    """`ignoredByScheduler`: no node has the resource, and the pod fits all the same."""
    gpu: dict[str, Any] = {GPU: "1"}
    cluster = three(pod("p", **gpu))
    for ignored in (False, True):
        managed = [{"name": GPU, "ignoredByScheduler": ignored}]
        played = Played(cluster, "ns/p", [extender(filterVerb="f", managedResources=managed)], a=only("n3"))
        assert played.made.node == ("n3" if ignored else "")


# --- prioritize ------------------------------------------------------------------------------------------------------


def scores(**by_node: int) -> Server:
    return lambda path, body: [{"Host": name, "Score": score} for name, score in by_node.items()]


def test_scores_are_weighted_and_added_to_those_of_plugins():
    """Times the weight, times ten: the range of plugins is ten times that of extenders. All are asked at once."""
    extenders = [
        extender(A, prioritizeVerb="s", weight=2),
        extender(B, prioritizeVerb="s", weight=1, ignorable=True),
        extender("http://c", filterVerb="f"),
    ]
    played = Played(three(), "ns/p", extenders, a=scores(n1=1, n3=4), b=scores(n1=5, n2=10), c=only("n1", "n2", "n3"))
    assert [sorted((ask.extender, ask.verb) for ask in asks) for asks in played.rounds] == [
        [("http://c", "filter")],
        [(A, "prioritize"), (B, "prioritize")],
    ]
    scored = played.made.scored
    assert scored is not None
    before = Played(three(), "ns/p", []).made.scored
    assert before is not None
    names = [played.framework.cluster.name_of(row) for row in scored.rows.tolist()]
    added = dict(zip(names, (scored.total - before.total).tolist(), strict=True))
    assert added == {"n1": 1 * 2 * 10 + 5 * 10, "n2": 10 * 10, "n3": 4 * 2 * 10}
    assert {name: values.tolist() for name, values in scored.by_extender.items()} == {
        A: [{"n1": 20, "n2": 0, "n3": 80}[name] for name in names],
        B: [{"n1": 50, "n2": 100, "n3": 0}[name] for name in names],
    }
    assert played.made.node == "n2"


@pytest.mark.parametrize("ignorable", [True, False])
@pytest.mark.parametrize("answer", [503, "nonsense", {"Error": "no list"}])
def test_scores_that_fail_are_passed_over(answer, ignorable):
    """Whether the extender is ignorable or not: plugins and other extenders decide."""
    extenders = [
        extender(A, prioritizeVerb="s", weight=1, ignorable=ignorable),
        extender(B, prioritizeVerb="s", weight=1),
    ]
    made = Played(three(), "ns/p", extenders, a=lambda path, body: answer, b=scores(n3=10)).made
    assert made.node == "n3"
    assert len(made.ignored) == 1
    assert A in made.ignored[0]


@pytest.mark.parametrize(("score", "node_name"), [(50, "n2"), (-3, "n1")])
def test_scores_outside_of_their_range_count_as_they_are(score, node_name):
    """As in Go; it is noted."""
    made = Played(three(), "ns/p", [extender(prioritizeVerb="s", weight=1)], a=scores(n2=score)).made
    assert made.node == node_name
    noted = f'extender "http://a" gives node "n2" the score {score}, outside of [0, 10]: it is counted as it is'
    assert made.ignored == (noted,)


def test_scores_that_cannot_be_added_up_are_passed_over():
    """Go's integers wrap around; here none of the extender's scores counts, and it is noted."""
    made = Played(three(), "ns/p", [extender(prioritizeVerb="s", weight=2)], a=scores(n2=2**62, n3=5)).made
    assert made.node == "n1"
    assert "none of its scores is counted" in made.ignored[0]


def test_scores_of_nodes_that_were_not_sent_are_noted():
    """They count for no node."""
    made = Played(three(), "ns/p", [extender(prioritizeVerb="s", weight=1)], a=scores(n2=1, n9=10)).made
    assert made.node == "n2"
    assert made.ignored == ('extender "http://a" scores node "n9", which it was not asked about',)


def test_extenders_score_where_no_plugin_does():
    """All nodes are looked at then, and not the first that fits."""
    cluster = three()
    nothing = {"disabled": [{"name": "*"}]}
    read = profiles(extender(prioritizeVerb="s", weight=1), plugins={"score": nothing, "preScore": nothing})
    framework = Framework(read.by_name["default-scheduler"], cluster, read.extenders)
    scan = cluster.index(NodeOrder).scan(0, 100)
    asks = attempt(framework, cluster.pods["ns/p"], scan).asks
    answer = read_answer(asks[0], 200, b'[{"Host":"n3","Score":1}]')
    assert attempt(framework, cluster.pods["ns/p"], scan, {asks[0].request: answer}).node == "n3"


# --- nominated pods --------------------------------------------------------------------------------------------------


def nominated() -> PlacementCluster:
    return three({**pod("p"), "status": {"nominatedNodeName": "n2"}})


def test_the_node_that_a_pod_is_nominated_to_is_asked_about_alone():
    """If the extender lets it pass it is taken."""
    played = Played(nominated(), "ns/p", [extender(filterVerb="f")], a=only("n2"))
    assert [ask.body["NodeNames"] for asks in played.rounds for ask in asks] == [["n2"]]
    assert (played.made.node, played.made.path, played.made.looked) == ("n2", "nominated", 0)


@pytest.mark.parametrize(
    "answer", [{"NodeNames": [], "FailedNodes": {"n2": "gone"}}, {"Error": "no"}, {"NodeNames": []}]
)
def test_all_nodes_are_asked_about_when_the_nominated_one_is_refused(answer):
    """Also when the extender fails about it: that ends no attempt, as in Go."""

    def server(path: str, body: Json) -> Any:
        return answer if body["NodeNames"] == ["n2"] else {"NodeNames": ["n3"]}

    played = Played(nominated(), "ns/p", [extender(filterVerb="f")], a=server)
    assert [ask.body["NodeNames"] for asks in played.rounds for ask in asks] == [["n2"], ["n1", "n2", "n3"]]
    assert (played.made.node, played.made.path) == ("n3", "single")
    assert (played.made.ignored != ()) == ("Error" in answer)


# --- preempt ---------------------------------------------------------------------------------------------------------


def full() -> PlacementCluster:
    """Two nodes that a pod of priority 10 fits on if the pods of priority 0 go; v1 is the cheaper victim."""
    manifests = [node("n1", cpu="1"), node("n2", cpu="1"), pod("p", spec={"priority": 10}, cpu="1")]
    manifests.append(pod("v1", on="n1", spec={"priority": 0}, cpu="1"))
    manifests.append(pod("v2", on="n2", spec={"priority": 1}, cpu="1"))
    return cluster_of(*manifests)


def victims(**by_node: list[str]) -> Server:
    return lambda path, body: {
        "NodeNameToMetaVictims": {name: {"Pods": [{"UID": uid} for uid in uids]} for name, uids in by_node.items()}
    }


def helped(made: PlacementAttempt) -> tuple[str | None, tuple[str, ...]]:
    assert made.post_filtered is not None
    return made.nominated, made.post_filtered.victims


def test_an_extender_chooses_among_the_nodes_to_preempt_on():
    """It is sent all of them with their victims, and what it returns counts."""
    assert helped(Played(full(), "ns/p", []).made) == ("n1", ("ns/v1",))
    played = Played(full(), "ns/p", [extender(preemptVerb="v")], a=victims(n2=["uid-v2"]))
    assert played.asked == [(A, "preempt")]
    assert played.body(0)["NodeNameToMetaVictims"] == {
        "n1": {"Pods": [{"UID": "uid-v1"}], "NumPDBViolations": 0},
        "n2": {"Pods": [{"UID": "uid-v2"}], "NumPDBViolations": 0},
    }
    assert helped(played.made) == ("n2", ("ns/v2",))


def test_whole_victims_are_sent_to_an_extender_without_a_cache():
    """As Go does."""
    played = Played(full(), "ns/p", [extender(preemptVerb="v", nodeCacheCapable=False)], a=victims(n1=["uid-v1"]))
    body = played.body(0)
    assert body["NodeNameToMetaVictims"] is None
    assert body["NodeNameToVictims"]["n1"]["Pods"][0]["metadata"]["name"] == "v1"


def test_extenders_preempt_one_after_the_other():
    """Each is sent what the one before has left; with none left there is no candidate, and the nomination stays."""
    extenders = [extender(A, preemptVerb="v"), extender(B, preemptVerb="v")]
    played = Played(full(), "ns/p", extenders, a=victims(n2=["uid-v2"]), b=victims(n2=["uid-v2"]))
    assert list(played.body(1)["NodeNameToMetaVictims"]) == ["n2"]
    none = Played(full(), "ns/p", extenders, a=victims(), b=victims(n2=["uid-v2"]))
    assert none.asked == [(A, "preempt")]
    assert helped(none.made) == (None, ())
    assert none.made.message.endswith("preemption: no candidate node for preemption")


def test_more_victims_than_were_found_count():
    """An extender may add pods of the node; the criteria are those of all victims that it returns."""
    cluster = full()
    cluster.set_pod(cluster.shapes.read(pod("w1", on="n1", spec={"priority": 5}, cpu="0")))
    server = victims(n1=["uid-w1", "uid-v1"], n2=["uid-v2"])
    assert helped(Played(cluster, "ns/p", [extender(preemptVerb="v")], a=server).made) == ("n2", ("ns/v2",))


@pytest.mark.parametrize(
    ("server", "error"),
    [
        (
            victims(n1=["uid-x"]),
            "extender: http://a claims to preempt pod (UID: uid-x) on node: n1, but the pod is not found on that node",
        ),
        (
            victims(n1=["uid-v2"]),
            "extender: http://a claims to preempt pod (UID: uid-v2) on node: n1, but the pod is not found on that node",
        ),
        (victims(n9=["uid-v1"]), 'extender "http://a": nodeinfo not found for node name "n9"'),
        (lambda path, body: 500, "failed v with extender at URL http://a/v, code 500"),
        (
            lambda path, body: {"NodeNameToMetaVictims": {"n1": None}},
            'extender "http://a/v": cannot read the answer: NodeNameToMetaVictims[n1] is null',
        ),
    ],
)
def test_an_extender_that_fails_to_preempt(server, error):
    """Nothing is preempted; an ignorable one is passed over, and what was found without it counts."""
    failed = Played(full(), "ns/p", [extender(preemptVerb="v")], a=server).made
    assert failed.post_filtered is not None
    assert failed.post_filtered.status.code == Code.ERROR
    assert failed.message.endswith(f"preemption: {error}")
    assert helped(failed) == (None, ())
    ignored = Played(full(), "ns/p", [extender(preemptVerb="v", ignorable=True)], a=server).made
    assert helped(ignored) == ("n1", ("ns/v1",))
    assert ignored.ignored == (error,)


def test_a_node_without_victims_is_an_error_or_is_left_out():
    """Preemption is for nothing there."""
    server = victims(n1=[], n2=["uid-v2"])
    failed = Played(full(), "ns/p", [extender(preemptVerb="v")], a=server).made
    assert failed.message.endswith('extender "http://a": expected at least one victim pod on node "n1"')
    assert helped(Played(full(), "ns/p", [extender(preemptVerb="v", ignorable=True)], a=server).made)[0] == "n2"


def test_preemption_may_help_on_a_node_that_an_extender_has_refused():
    """FailedNodes are such; FailedAndUnresolvableNodes are not."""
    for reason, tried in (("FailedNodes", 1), ("FailedAndUnresolvableNodes", 0)):
        cluster = cluster_of(
            node("n1"), pod("v", on="n1", spec={"priority": 0}, cpu="1"), pod("p", spec={"priority": 10}, cpu="1")
        )
        made = Played(cluster, "ns/p", [extender(filterVerb="f")], a=only(**{reason: {"n1": "no"}})).made
        assert made.post_filtered is not None
        assert len(made.post_filtered.details.hopeless) == tried


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_request_is_identified_by_extender_verb_pod_and_nodes():
    """Not by what nodes are like: an answer is not lost because a label changes."""

    def request(cluster: PlacementCluster, key: str = "ns/p", **fields: Any) -> str:
        read = profiles(extender(**{"filterVerb": "f", **fields}))
        framework = Framework(read.by_name["default-scheduler"], cluster, read.extenders)
        return attempt(framework, cluster.pods[key], cluster.index(NodeOrder).scan(0, 100)).asks[0].request

    same = request(three())
    assert request(cluster_of(node("n3", labels={"new": "yes"}), node("n1"), node("n2"), pod("p"))) == same
    others = {
        request(cluster_of(node("n1"), node("n2"), pod("p"))),
        request(three(pod("q")), "ns/q"),
        request(three(), filterVerb="g"),
        request(three(), url="http://b"),
        request(three(), filterVerb="", prioritizeVerb="f", weight=1),
    }
    assert len(others | {same}) == 6


# --- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([extender("extender:80")], "extenders[0].urlPrefix: 'extender:80' is no URL"),
        ([extender("https://")], "extenders[0].urlPrefix: 'https://' is no URL"),
        ([extender("https://x:99999")], "extenders[0].urlPrefix: 'https://x:99999' is no URL"),
        ([extender("https://x?a=b")], "extenders[0].urlPrefix: 'https://x?a=b' has a query or a fragment"),
        ([extender(tlsConfig={"insecure": True, "caFile": "ca"})], "extenders[0].tlsConfig.insecure: "),
        ([extender(tlsConfig={"certFile": "c"})], "extenders[0].tlsConfig.keyFile: it is missing"),
        ([extender(tlsConfig={"keyData": "k"})], "extenders[0].tlsConfig.certFile: it is missing"),
        ([extender()] * 17, "extenders: there are 17"),
    ],
)
def test_an_extender_that_cannot_be_called_is_refused(given, error):
    """One error, which names the field."""
    with pytest.raises(ConfigurationError) as raised:
        profiles(*given)
    assert str(raised.value).startswith(error)


def test_a_resource_cannot_be_left_to_an_extender_without_the_plugin_that_leaves_it():
    """Go fails to start then; so does this, and says which plugin."""
    managed = extender(managedResources=[{"name": GPU, "ignoredByScheduler": True}])
    plugins = {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}
    with pytest.raises(ConfigurationError, match=r"profiles\[0\]\.plugins: .*NodeResourcesFit"):
        profiles(managed, plugins=plugins)
