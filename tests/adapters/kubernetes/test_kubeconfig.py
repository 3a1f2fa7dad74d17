"""Which cluster: one clear answer, or one clear line about what is wrong."""

import pytest
import yaml

from headgate.adapters.kubernetes.errors import KubeConfigurationError
from headgate.adapters.kubernetes.kubeconfig import Authentication, resolve

USERS = {
    "nobody": {},
    "token": {"token": "t"},
    "file": {"tokenFile": "/t"},
    "both": {"token": "t", "tokenFile": "/t"},
    "basic": {"username": "u", "password": "p"},
    "cert": {"client-certificate-data": "Zm9v", "client-key-data": "Zm9v"},
    "exec": {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}},
    "oidc": {"auth-provider": {"name": "oidc", "config": {}}},
}


def config(user="nobody", server="http://127.0.0.1:8001", name="main", current="main"):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": f"c-{name}", "cluster": {"server": server}}],
        "contexts": [{"name": name, "context": {"cluster": f"c-{name}", "user": user, "namespace": "team-a"}}],
        "users": [{"name": key, "user": value} for key, value in USERS.items()],
    }


@pytest.fixture
def write(tmp_path):
    def write(file="config", **options):
        path = tmp_path / file
        path.write_text(yaml.safe_dump(config(**options)))
        return str(path)

    return write


def test_a_server_url_needs_nothing_else(tmp_path):
    """`--server` is used unchanged, without credentials and without the large configuration."""
    access = resolve(server="http://127.0.0.1:1234/", environ={}, home=tmp_path)
    assert (access.server, access.authentication) == ("http://127.0.0.1:1234", Authentication.NONE)
    assert not access.needs_configuration


@pytest.mark.parametrize(
    ("user", "authentication"),
    [
        ("nobody", Authentication.NONE),
        ("unknown", Authentication.NONE),
        ("token", Authentication.STATIC),
        ("file", Authentication.FILE),
        ("both", Authentication.STATIC),
        ("basic", Authentication.STATIC),
        ("cert", Authentication.STATIC),
        ("exec", Authentication.PLUGIN),
        ("oidc", Authentication.PLUGIN),
    ],
)
def test_each_kind_of_user_is_told_apart(write, user, authentication):
    """How a credential must be kept fresh follows from where it comes from."""
    access = resolve(kubeconfig=write(user=user), environ={})
    assert access.authentication is authentication
    assert access.needs_configuration is (authentication is not Authentication.NONE)
    assert (access.namespace, access.context) == ("team-a", "main")


def test_tls_from_a_kubeconfig_needs_its_certificates(write):
    """Even without a user, the file names the authority that signs the server."""
    assert resolve(kubeconfig=write(server="https://10.0.0.1:6443"), environ={}).needs_configuration


def test_the_sources_are_asked_in_order(write, tmp_path):
    """The flag, then the environment, then the pod, then the home folder."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "namespace").write_text("headgate-system\n")
    (tmp_path / ".kube").mkdir()
    write(".kube/config", name="home", current="home")
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    environ = pod | {"KUBECONFIG": write("env", name="env", current="env")}
    found = {"environ": environ, "home": tmp_path, "service_account": account}
    assert resolve(kubeconfig=write("flag", name="flag", current="flag"), **found).context == "flag"
    assert resolve(**found).context == "env"
    found["environ"] = pod
    access = resolve(**found)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "headgate-system")
    assert access.service_account == str(account)
    assert access.needs_configuration
    found["environ"] = {}
    assert resolve(**found).context == "home"


def test_several_files_are_merged_as_kubectl_does(write, tmp_path):
    """The first current context wins, names are found in any of the files, missing files are passed over."""
    first = write("one", name="one", current="two")
    second = write("two", name="two", current="one", server="http://two")
    access = resolve(environ={"KUBECONFIG": f"{tmp_path}/missing:{first}:{second}"})
    assert (access.context, access.server, access.kubeconfig) == ("two", "http://two", (first, second))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read .*: No such file"),
        ("{", "is not YAML"),
        ("clusters: 7", "is not a kubeconfig: .*clusters"),
        ("", "no current-context"),
        (yaml.safe_dump(config(current="other")), "no context 'other'; it has main"),
        (yaml.safe_dump(config() | {"clusters": []}), "cluster 'c-main', which has no server"),
        (yaml.safe_dump(config(server="127.0.0.1:8001")), "is not an http:// or https:// URL"),
        (yaml.safe_dump(config(server="http://user:secret@host")), "must not have credentials"),
    ],
)
def test_what_does_not_hold_together_is_one_clear_line(tmp_path, text, message):
    """The operator reads which file is wrong, and how."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KubeConfigurationError, match=message) as caught:
        resolve(kubeconfig=str(path), environ={})
    assert "\n" not in str(caught.value)


def test_contradictions_and_nothing_at_all_are_refused(tmp_path):
    """The message names the flags to use."""
    with pytest.raises(KubeConfigurationError, match="leave out"):
        resolve(server="http://x", context="y", environ={})
    with pytest.raises(KubeConfigurationError, match="give --server URL or --kubeconfig FILE"):
        resolve(environ={}, home=tmp_path, service_account=tmp_path)
