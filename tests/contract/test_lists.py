"""Lists: what they hold, in which order, at which version, page by page; and what a list may not ask for."""

import asyncio
import base64

import msgspec
import pytest
from tests.contract.cases import status
from tests.contract.samples import LEASE, LOCAL_QUEUE, names, version_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[LEASE, LOCAL_QUEUE], ids=lambda sample: sample.plural)
def sample(request):
    """The kind that is listed."""
    return request.param


def list_error(*causes: tuple[str, str, str]):
    """The refusal of list options that do not go together: (reason, field, message) of each cause."""
    texts = [f"{field}: {message}" for _, field, message in causes]
    return status(
        422,
        "Invalid",
        'ListOptions.meta.k8s.io "" is invalid: ' + (texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"),
        {
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": reason, "message": message, "field": field} for reason, field, message in causes],
        },
    )


def whole(sample, version: str):
    """The metadata of a list that is complete: lists of custom kinds carry an empty continue token."""
    return {"resourceVersion": version} | ({"continue": ""} if sample is LOCAL_QUEUE else {})


def too_large(asked: int, current: int):
    """The refusal of a version from the future."""
    return status(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


# --- what a list holds


async def test_a_list_is_in_the_order_of_the_names(server, namespace, sample):
    """Names sort as bytes, whenever they were created."""
    await sample.create(server, namespace, "b", "a", "a-b", "a.b", "a0", "c")
    assert names(await server.call("GET", sample.path(namespace))) == ["a", "a-b", "a.b", "a0", "b", "c"]


async def test_a_list_over_all_namespaces_is_in_the_order_of_namespace_slash_name(server, sample):
    """The keys sort as one text, so a namespace whose name continues with a dash comes before the shorter one."""
    first = await server.fresh_namespace()
    longer = f"{first}-b"
    assert (await server.call("POST", "/api/v1/namespaces", {"metadata": {"name": longer}})).status == 201
    for namespace in (first, longer):
        await sample.create(server, namespace, "x", labels={"case": first})
    answer = await server.call("GET", sample.path(), labelSelector=f"case={first}")
    assert [item["metadata"]["namespace"] for item in answer.json["items"]] == [longer, first]


async def test_an_empty_list_has_a_version_and_no_items(server, namespace, sample):
    """An empty list is a list: `items` is present, and `metadata` has no continue token."""
    answer = await server.call("GET", sample.path(namespace))
    version = answer.json["metadata"]["resourceVersion"]
    assert version.isdecimal()
    assert answer.json == {
        "kind": f"{sample.kind}List",
        "apiVersion": sample.api_version,
        "metadata": whole(sample, version),
        "items": [],
    }


async def test_a_namespace_that_is_not_there_lists_as_empty(server, sample):
    """Lists do not ask whether their namespace exists."""
    assert names(await server.call("GET", sample.path(server.fresh_name("absent")))) == []


async def test_items_of_kubernetes_own_kinds_do_not_say_their_type(server, namespace):
    """The list has it for all of them."""
    await LEASE.create(server, namespace, "a")
    (item,) = (await server.call("GET", LEASE.path(namespace))).json["items"]
    assert "kind" not in item
    assert "apiVersion" not in item


async def test_items_of_custom_kinds_say_their_type(server, namespace):
    """Custom objects are kept as they are written, type included, in the requested version."""
    await LOCAL_QUEUE.create(server, namespace, "a")
    for version in ("v1beta2", "v1beta1"):
        (item,) = (await server.call("GET", LOCAL_QUEUE.path(namespace, version=version))).json["items"]
        assert (item["kind"], item["apiVersion"]) == ("LocalQueue", f"kueue.x-k8s.io/{version}")


async def test_the_version_of_a_list_is_at_least_that_of_every_write_before(server, namespace, sample):
    """A list without a version is consistent: it shows every write that was answered before the request."""
    (made,) = await sample.create(server, namespace, "a")
    listed = await server.call("GET", sample.path(namespace))
    assert names(listed) == ["a"]
    assert version_of(listed.json) >= version_of(made)
    await sample.delete(server, namespace, "a")
    again = await server.call("GET", sample.path(namespace))
    assert names(again) == []
    assert version_of(again.json) > version_of(listed.json)


# --- pages


async def test_pages_show_one_version_while_objects_change(server, namespace, sample):
    """What is created, changed and deleted between two pages shows on neither; the count of what remains is exact."""
    await sample.create(server, namespace, "a", "b", "c", "d", "e")
    first = await server.call("GET", sample.path(namespace), limit="2")
    meta = first.json["metadata"]
    assert names(first) == ["a", "b"]
    assert meta["remainingItemCount"] == 3
    await sample.create(server, namespace, "aa", "cc")
    await sample.delete(server, namespace, "c")
    await sample.label(server, namespace, "d", new="yes")
    second = await server.call("GET", sample.path(namespace), limit="2", **{"continue": meta["continue"]})
    assert names(second) == ["c", "d"]
    assert "labels" not in second.json["items"][1]["metadata"]
    assert second.json["metadata"]["resourceVersion"] == meta["resourceVersion"]
    assert second.json["metadata"]["remainingItemCount"] == 1
    third = await server.call(
        "GET", sample.path(namespace), limit="2", **{"continue": second.json["metadata"]["continue"]}
    )
    assert names(third) == ["e"]
    assert third.json["metadata"] == whole(sample, meta["resourceVersion"])


async def test_a_page_that_holds_everything_has_no_continue_token(server, namespace, sample):
    """A limit that is just reached ends the list."""
    await sample.create(server, namespace, "a", "b")
    answer = await server.call("GET", sample.path(namespace), limit="2")
    assert names(answer) == ["a", "b"]
    assert answer.json["metadata"] == whole(sample, answer.json["metadata"]["resourceVersion"])


async def test_the_rest_may_be_taken_without_a_limit(server, namespace, sample):
    """A continue token goes with any limit, also none."""
    await sample.create(server, namespace, "a", "b", "c", "d")
    first = await server.call("GET", sample.path(namespace), limit="1")
    rest = await server.call("GET", sample.path(namespace), **{"continue": first.json["metadata"]["continue"]})
    assert names(rest) == ["b", "c", "d"]


async def test_pages_of_a_selection_do_not_count_what_remains(server, namespace, sample):
    """With a selector the pages are of matching objects, without a count of the remaining ones."""
    await sample.create(server, namespace, "a", "c", "e", labels={"odd": "yes"})
    await sample.create(server, namespace, "b", "d")
    first = await server.call("GET", sample.path(namespace), limit="2", labelSelector="odd=yes")
    assert names(first) == ["a", "c"]
    assert set(first.json["metadata"]) == {"resourceVersion", "continue"}
    token = first.json["metadata"]["continue"]
    second = await server.call("GET", sample.path(namespace), limit="2", labelSelector="odd=yes", **{"continue": token})
    assert names(second) == ["e"]


@pytest.mark.parametrize("limit", ["0", "-1"])
async def test_a_limit_that_is_not_positive_is_none(server, namespace, sample, limit):
    """Zero and less ask for everything."""
    await sample.create(server, namespace, "a", "b")
    assert names(await server.call("GET", sample.path(namespace), limit=limit)) == ["a", "b"]


async def test_a_continue_token_says_the_version_and_the_key_it_goes_on_after(server, namespace):
    """The token is base64 without padding of the version and the last key; clients of other servers read it too."""
    await LEASE.create(server, namespace, "a", "b")
    first = await server.call("GET", LEASE.path(namespace), limit="1")
    token = first.json["metadata"]["continue"]
    assert "=" not in token
    held = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert held == {"v": "meta.k8s.io/v1", "rv": version_of(first.json), "start": "/a\u0000"}


def token_of(value: object) -> str:
    """A continue token that the server did not issue."""
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("x", "continue key is not valid: illegal base64 data at input byte 0"),
        (token_of({"v": "v9", "rv": 1, "start": "a"}), "continue key is not valid: server does not recognize this encoded version v9"),  # noqa: E501
        (token_of({"v": "meta.k8s.io/v1", "start": "a"}), "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),  # noqa: E501
        (token_of({"v": "meta.k8s.io/v1", "rv": 1}), "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"),  # noqa: E501
        (token_of({"v": "meta.k8s.io/v1", "rv": 1, "start": "../a"}), "continue key is not valid: ../a"),
    ],
    ids=["no base64", "version", "no rv", "no start", "outside"],
)  # fmt: skip
async def test_a_token_that_nobody_gave_out_is_refused(server, namespace, sample, token, why):
    """400 BadRequest names the fault."""
    answer = await server.call("GET", sample.path(namespace), **{"continue": token})
    assert answer.json == status(400, "BadRequest", f"invalid continue token: {why}")


async def test_a_token_goes_with_no_version(server, namespace, sample):
    """The token holds the version; another one beside it is refused, 0 is taken for none."""
    await sample.create(server, namespace, "a", "b")
    first = await server.call("GET", sample.path(namespace), limit="1")
    meta = first.json["metadata"]
    again = await server.call("GET", sample.path(namespace), **{"continue": meta["continue"], "resourceVersion": "0"})
    assert names(again) == ["b"]
    refused = await server.call(
        "GET", sample.path(namespace), **{"continue": meta["continue"], "resourceVersion": meta["resourceVersion"]}
    )
    assert refused.json == status(400, "BadRequest", "specifying resource version is not allowed when using continue")


# --- versions


async def test_a_cached_list_takes_no_notice_of_the_limit(server, namespace, sample):
    """A list from 0 is answered whole from memory, at whatever version that is."""
    await sample.create(server, namespace, "a", "b", "c")
    # A consistent read first: memory then holds what was written.
    await server.call("GET", sample.path(namespace))
    answer = await server.call("GET", sample.path(namespace), resourceVersion="0", limit="1")
    assert names(answer) == ["a", "b", "c"]
    assert answer.json["metadata"] == whole(sample, answer.json["metadata"]["resourceVersion"])


async def test_an_exact_list_shows_that_version(server, namespace, sample):
    """With Exact it goes back to a version; NotOlderThan and no match at all show at least that."""
    await sample.create(server, namespace, "a", "b")
    version = (await server.call("GET", sample.path(namespace))).json["metadata"]["resourceVersion"]
    await sample.delete(server, namespace, "a")
    (last,) = await sample.create(server, namespace, "c")
    exact = await server.call("GET", sample.path(namespace), resourceVersion=version, resourceVersionMatch="Exact")
    assert names(exact) == ["a", "b"]
    assert exact.json["metadata"] == whole(sample, version)
    for match in ({}, {"resourceVersionMatch": "NotOlderThan"}):
        newer = await server.call("GET", sample.path(namespace), resourceVersion=str(version_of(last)), **match)
        assert names(newer) == ["b", "c"]
        assert version_of(newer.json) >= version_of(last)


async def test_a_limit_makes_a_version_exact(server, namespace, sample):
    """A version with a limit and no match is that version; with NotOlderThan it is not."""
    await sample.create(server, namespace, "a", "b", "c")
    version = (await server.call("GET", sample.path(namespace))).json["metadata"]["resourceVersion"]
    (last,) = await sample.create(server, namespace, "aa")
    exact = await server.call("GET", sample.path(namespace), resourceVersion=version, limit="2")
    assert names(exact) == ["a", "b"]
    assert exact.json["metadata"]["remainingItemCount"] == 1
    newer = await server.call(
        "GET",
        sample.path(namespace),
        resourceVersion=str(version_of(last)),
        resourceVersionMatch="NotOlderThan",
        limit="2",
    )
    assert names(newer) == ["a", "aa"]
    assert newer.json["metadata"]["remainingItemCount"] == 2


async def test_a_version_from_the_future_times_out(server, namespace):
    """504 Timeout with its cause, and after how many seconds to retry, for every way to request the version."""
    asked = [
        (sample.path(namespace, *rest), query)
        for sample in (LEASE, LOCAL_QUEUE)
        for rest, query in (
            ((), {}),
            ((), {"resourceVersionMatch": "NotOlderThan"}),
            ((), {"resourceVersionMatch": "Exact"}),
            (("a",), {}),
        )
    ]
    answers = await asyncio.gather(
        *(server.call("GET", path, resourceVersion="99999999", **query) for path, query in asked)
    )
    for answer in answers:
        current = int(answer.json["message"].rpartition(" ")[2])
        assert answer.json == too_large(99999999, current)
        assert answer.headers["retry-after"] == "1"


async def test_an_object_may_be_asked_for_at_a_version(server, namespace, sample):
    """A get takes a version as "not older than", 0 as any; what is no version is an error without a reason."""
    (made,) = await sample.create(server, namespace, "a")
    path = sample.path(namespace, "a")
    assert (await server.call("GET", path, resourceVersion=str(version_of(made)))).json == made
    assert (await server.call("GET", path, resourceVersion="0")).json == made
    wrong = await server.call("GET", path, resourceVersion="x")
    assert wrong.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax',
        "code": 500,
    }


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("resourceVersionMatch=Exact", "F resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=NotOlderThan", "F resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=Exact&resourceVersion=0", 'F resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),  # noqa: E501
        ("resourceVersionMatch=Other&resourceVersion=5", "N Other"),
        ("resourceVersionMatch=Exact&continue=x", "F resourceVersionMatch is forbidden unless resourceVersion is provided|F resourceVersionMatch is forbidden when continue is provided"),  # noqa: E501
        ("resourceVersionMatch=Exact&continue=x&resourceVersion=5", "F resourceVersionMatch is forbidden when continue is provided"),  # noqa: E501
        ("sendInitialEvents=true", "S sendInitialEvents is forbidden for list"),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "F resourceVersionMatch is forbidden unless resourceVersion is provided|S sendInitialEvents is forbidden for list"),  # noqa: E501
    ],
)  # fmt: skip
async def test_list_options_that_do_not_go_together_are_refused(server, namespace, sample, query, causes):
    """422 Invalid names each of them; the same of a list as of a deletion of the collection."""
    found = []
    for cause in causes.split("|"):
        code, _, text = cause.partition(" ")
        if code == "N":
            message = f'Unsupported value: "{text}": supported values: "Exact", "NotOlderThan", ""'
            found.append(("FieldValueNotSupported", "resourceVersionMatch", message))
        else:
            field = "sendInitialEvents" if code == "S" else "resourceVersionMatch"
            found.append(("FieldValueForbidden", field, f"Forbidden: {text}"))
    given = dict(part.split("=") for part in query.split("&"))
    answer = await server.call("GET", sample.path(namespace), **given)
    assert answer.json == list_error(*found)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("timeoutSeconds=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("resourceVersion=x", 'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'),  # noqa: E501
        ("resourceVersion=-1", 'invalid resource version: resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax'),  # noqa: E501
    ],
)  # fmt: skip
async def test_numbers_that_are_none_are_refused(server, namespace, sample, query, message):
    """400 BadRequest repeats what was given."""
    name, _, value = query.partition("=")
    answer = await server.call("GET", sample.path(namespace), **{name: value})
    assert answer.json == status(400, "BadRequest", message)
