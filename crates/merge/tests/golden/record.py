#!/usr/bin/env python3
"""Ask a real API server what it does, and write the answers down for `tests/golden.rs`.

    KUBEBUILDER_ASSETS=DIRECTORY_WITH_etcd_AND_kube-apiserver python3 crates/merge/tests/golden/record.py [--random N] [--seed S] [--out FILE]

Without options the stories below are recorded into `stories.json` beside this file. With `--random N`, N random sequences against a custom
resource with every list and map type, and against ConfigMaps, Services and Deployments, go to FILE; a handful is committed as `random.json`.
Everything listens on 127.0.0.1, on free ports, in a temporary directory, and is stopped at the end.
"""

import argparse
import copy
import json
import os
import pathlib
import random
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
TOKEN = "recorder"
START_LIMIT_SECONDS = 90

THING = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "scope": "Namespaced",
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "number": {"type": "integer"},
                            "text": {"type": "string"},
                            "either": {"x-kubernetes-int-or-string": True},
                            "plain": {"type": "array", "items": {"type": "string"}},
                            "atoms": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
                            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                            "keyed": {
                                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "zone"],
                                "items": {"type": "object", "required": ["name"], "properties": {
                                    "name": {"type": "string"}, "zone": {"type": "string", "default": "here"},
                                    "size": {"type": "integer"}, "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                                }},
                            },
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
                            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "mixed": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": {"type": "integer"}}},
                            "nested": {"type": "object", "properties": {"deep": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}},
                        },
                    },
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}, "conditions": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                        "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}, "status": {"type": "string"}}},
                    }}},
                },
            }},
        }],
    },
}

PATHS = {
    "Thing": ("example.com/v1", "/apis/example.com/v1/namespaces/default/things"),
    "ConfigMap": ("v1", "/api/v1/namespaces/default/configmaps"),
    "Service": ("v1", "/api/v1/namespaces/default/services"),
    "Pod": ("v1", "/api/v1/namespaces/default/pods"),
    "Deployment": ("apps/v1", "/apis/apps/v1/namespaces/default/deployments"),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, assets):
        self.directory = tempfile.mkdtemp(prefix="record-")
        self.port, etcd_port, peer_port = free_port(), free_port(), free_port()
        key = f"{self.directory}/service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        pathlib.Path(f"{self.directory}/tokens").write_text(f"{TOKEN},{TOKEN},{TOKEN},system:masters\n")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": open(f"{self.directory}/log", "w")}
        etcd_url = f"http://127.0.0.1:{etcd_port}"
        self.processes = [subprocess.Popen([
            f"{assets}/etcd", f"--data-dir={self.directory}/etcd", f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}", "--unsafe-no-fsync"], **quiet)]
        self.processes.append(subprocess.Popen([
            f"{assets}/kube-apiserver", f"--etcd-servers={etcd_url}", f"--secure-port={self.port}", "--bind-address=127.0.0.1",
            f"--cert-dir={self.directory}/certificates", f"--token-auth-file={self.directory}/tokens", "--authorization-mode=AlwaysAllow",
            "--service-account-issuer=https://recorder", f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/16", "--disable-admission-plugins=ServiceAccount,Priority,DefaultTolerationSeconds"], **quiet))
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.wait()

    def wait(self):
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while time.monotonic() < deadline:
            try:
                if self.request("GET", "/api/v1/namespaces/default")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise SystemExit(f"the server did not start in {START_LIMIT_SECONDS} s; its log is {self.directory}/log")

    def stop(self):
        # Killed, not asked: a server whose storage is gone first waits for it, and nothing here is worth keeping.
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def request(self, method, path, body=None, content_type="application/json", agent="recorder"):
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", method=method, data=json.dumps(body).encode() if body is not None else None)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", content_type)
        request.add_header("User-Agent", agent)
        try:
            with urllib.request.urlopen(request, context=self.context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            text = error.read()
            try:
                return error.code, json.loads(text)
            except ValueError:
                return error.code, {"message": text.decode(errors="replace")}


TYPES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


def perform(server, kind, name, step):
    api_version, collection = PATHS[kind]
    body = copy.deepcopy(step["body"])
    path = f"{collection}/{name}" + (f"/{step['subresource']}" if step.get("subresource") else "")
    if step["op"] in ("apply", "create", "replace"):
        body = {"apiVersion": api_version, "kind": kind, **body}
        body["metadata"] = {"name": name, "namespace": "default", **body.get("metadata", {})}
    query = f"?fieldManager={step['manager']}"
    if step["op"] == "create":
        code, answer = server.request("POST", collection + query, body)
    elif step["op"] == "replace":
        body["metadata"]["resourceVersion"] = server.request("GET", f"{collection}/{name}")[1].get("metadata", {}).get("resourceVersion", "")
        code, answer = server.request("PUT", path + query, body)
    else:
        if step["op"] == "apply" and step.get("force"):
            query += "&force=true"
        code, answer = server.request("PATCH", path + query, body, TYPES[step["op"]])
    if step["op"] in ("apply", "create", "replace"):
        body["metadata"].pop("resourceVersion", None)
        step = {**step, "body": body}
    if code >= 400:
        causes = answer.get("details", {}).get("causes") if isinstance(answer.get("details"), dict) else None
        return {**step, "code": code, "message": answer["message"], **({"causes": causes} if causes else {})}, code
    return {**step, "code": code, "object": tidy(answer)}, code


def tidy(answer):
    """What cannot be the same twice becomes the same; a time is `-`, so that its presence still shows."""
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        if field in answer["metadata"]:
            answer["metadata"][field] = "-"
    for entry in answer["metadata"].get("managedFields", []):
        if "time" in entry:
            entry["time"] = "-"
    return answer


def tell(server, title, kind, steps):
    name = "story-" + "".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(8))
    told = []
    for step in steps:
        step, _ = perform(server, kind, name, step)
        told.append(step)
    server.request("PATCH", f"{PATHS[kind][1]}/{name}", {"metadata": {"finalizers": None}}, TYPES["merge"])
    server.request("DELETE", f"{PATHS[kind][1]}/{name}?gracePeriodSeconds=0")
    text = json.dumps({"title": title, "kind": kind, "steps": told}, sort_keys=True).replace(name, "thing")
    return json.loads(text)


def apply(manager, body, force=False, subresource=""):
    return {"op": "apply", "manager": manager, "body": body, **({"force": True} if force else {}), **({"subresource": subresource} if subresource else {})}


def other(op, manager, body, subresource=""):
    return {"op": op, "manager": manager, "body": body, **({"subresource": subresource} if subresource else {})}


def deployment(containers, **spec):
    return {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}}, **spec}}


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def stories():
    yield "a keyed list is shared item by item", "Thing", [
        apply("A", {"spec": {"keyed": [{"name": "x", "size": 1}, {"name": "y", "size": 2}]}}),
        apply("B", {"spec": {"keyed": [{"name": "y", "size": 2}, {"name": "z", "size": 3}]}}),
        apply("B", {"spec": {"keyed": [{"name": "y", "size": 9}]}}),
        apply("B", {"spec": {"keyed": [{"name": "y", "size": 9}]}}, force=True),
        apply("A", {"spec": {"keyed": [{"name": "x", "size": 1}]}}),
        apply("A", {"spec": {}}),
        apply("A", {}),
    ]
    yield "the default of a key field is part of the key", "Thing", [
        apply("A", {"spec": {"keyed": [{"name": "x"}]}}),
        apply("B", {"spec": {"keyed": [{"name": "x", "zone": "here", "size": 1}, {"name": "x", "zone": "there"}]}}),
        apply("A", {"spec": {"keyed": [{"name": "x"}, {"name": "x", "zone": "here"}]}}),
        apply("A", {"spec": {"keyed": [{"size": 1}]}}),
    ]
    yield "sets, atomic lists and atomic maps", "Thing", [
        apply("A", {"spec": {"set": ["a", "b"], "atoms": [{"a": 1}], "whole": {"a": 1}, "plain": ["x"]}}),
        apply("B", {"spec": {"set": ["b", "c"]}}),
        apply("A", {"spec": {"set": ["a"], "atoms": [{"a": 1}, {"a": 2}], "whole": {"a": 1, "b": 2}, "plain": ["x"]}}),
        apply("B", {"spec": {"atoms": [{"a": 1}], "whole": {"b": 2}, "plain": ["x", "y"]}}),
        apply("B", {"spec": {"atoms": [{"a": 1}], "whole": {"b": 2}, "plain": ["x", "y"]}}, force=True),
        apply("A", {"spec": {"set": ["b", "a", "b"]}}),
        apply("A", {"spec": {"set": ["z", "a"]}}),
    ]
    yield "order of merged lists", "Thing", [
        apply("A", {"spec": {"set": ["a", "b", "c", "d"]}}),
        apply("B", {"spec": {"set": ["d", "x", "b"]}}),
        apply("C", {"spec": {"set": ["q", "a"]}}),
        apply("A", {"spec": {"set": ["d", "c", "b", "a"]}}),
        apply("D", {"spec": {"set": ["c", "m", "d", "n", "x"]}}),
    ]
    yield "fields of any type", "Thing", [
        apply("A", {"spec": {"free": {"a": {"b": 1, "c": [1, 2]}, "l": [{"x": 1}]}, "mixed": {"known": 1, "other": {"deep": True}}, "either": 1}}),
        apply("B", {"spec": {"free": {"a": {"d": 2}}, "either": "one"}}),
        apply("B", {"spec": {"free": {"a": {"d": 2}}}}),
        apply("A", {"spec": {"free": {"a": "scalar now"}}}),
        apply("A", {"spec": {"free": {"a": "scalar now"}}}, force=True),
        apply("C", {"spec": {"free": {"e": {}, "f": None, "g": []}}}),
        apply("C", {"spec": {"free": {"e": {"x": 1}}}}),
    ]
    yield "updates take what they change", "Thing", [
        apply("A", {"spec": {"number": 1, "labels": {"a": "1", "b": "2"}, "keyed": [{"name": "x", "size": 1}]}}),
        other("merge", "B", {"spec": {"number": 2, "labels": {"c": "3"}}}),
        apply("A", {"spec": {"number": 1, "labels": {"a": "1"}}}),
        other("merge", "B", {"spec": {"number": 1}}),
        apply("A", {"spec": {"number": 1, "labels": {"a": "1"}}}),
        other("merge", "C", {"spec": {"labels": None}}),
        other("merge", "C", {"spec": {"text": "t"}}),
        other("merge", "C", {"spec": {"text": "t"}}),
        other("replace", "D", {"spec": {"keyed": [{"name": "x", "size": 5}, {"name": "y"}]}}),
        other("merge", "D", {"metadata": {"managedFields": [{}]}}),
        other("merge", "D", {"spec": {"number": 7}}),
        apply("A", {"spec": {"number": 8}}),
        apply("A", {"spec": {"number": 8}}, force=True),
    ]
    yield "a created custom resource", "Thing", [
        other("create", "A", {"metadata": {"labels": {"l": "1"}, "annotations": {"n": "1"}, "finalizers": ["example.com/f"]}, "spec": {"nested": {"deep": {"a": 1}}, "set": ["a"], "free": {}}}),
        other("merge", "B", {"spec": {"nested": {"deep": {"b": 1}}}, "metadata": {"finalizers": ["example.com/f", "example.com/g"]}}),
        other("merge", "B", {"metadata": {"labels": {"l": None}}}),
        apply("C", {"metadata": {"finalizers": ["example.com/g", "example.com/h"], "labels": {"m": "2"}}}),
        other("merge", "B", {"metadata": {"finalizers": None}}),
    ]
    yield "status is another endpoint", "Thing", [
        apply("A", {"spec": {"number": 1}, "status": {"phase": "ignored"}}),
        apply("S", {"status": {"phase": "New", "conditions": [{"type": "Ready", "status": "False"}]}, "spec": {"number": 9}}, subresource="status"),
        other("merge", "S", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "metadata": {"labels": {"no": "way"}}}, subresource="status"),
        apply("T", {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "True"}]}}, subresource="status"),
        apply("T", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, subresource="status"),
        other("merge", "A", {"spec": {"number": 2}, "status": {"phase": "ignored"}}),
    ]
    yield "what does not fit the schema", "Thing", [
        apply("A", {"spec": {"junk": 1}}),
        apply("A", {"spec": {"number": "one"}}),
        apply("A", {"spec": {"text": 1, "set": "x"}}),
        apply("A", {"spec": {"set": ["a", "a"]}}),
        apply("A", {"spec": {"keyed": [{"size": 1}]}}),
        apply("A", {"spec": []}),
    ]
    yield "ports of a service", "Service", [
        apply("A", {"spec": {"ports": [{"port": 80, "name": "web"}, {"port": 53, "protocol": "UDP", "name": "dns"}], "selector": {"app": "x"}}}),
        apply("B", {"spec": {"ports": [{"port": 80, "name": "web", "protocol": "TCP"}, {"port": 53, "protocol": "TCP", "name": "dns-tcp"}]}}),
        apply("B", {"spec": {"ports": [{"port": 80, "name": "other"}]}}),
        apply("C", {"spec": {"selector": {"app": "y"}}}),
        apply("A", {"spec": {"ports": [{"port": 80, "name": "web"}], "selector": {"app": "x"}}}),
        other("strategic", "D", {"spec": {"ports": [{"port": 443, "name": "tls"}]}}),
        other("strategic", "D", {"spec": {"ports": [{"port": 53, "$patch": "delete"}]}}),
        other("strategic", "D", {"spec": {"$setElementOrder/ports": [{"port": 443}, {"port": 80}], "ports": [{"port": 443, "targetPort": 8443}]}}),
        other("strategic", "D", {"spec": {"ports": [{"$patch": "replace"}, {"port": 1, "name": "one"}]}}),
        other("strategic", "D", {"spec": {"ports": [{"name": "no key"}]}}),
    ]
    yield "containers of a deployment", "Deployment", [
        other("create", "A", deployment([{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 80}]}])),
        apply("B", {"spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "b", "image": "j"}]}}}}),
        apply("B", {"spec": {"replicas": 1}}),
        apply("B", {"spec": {"template": {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}}}),
        apply("B", {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "k"}]}}}}),
        other("strategic", "C", {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        other("strategic", "C", {"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "a", "volumeMounts": [{"mountPath": "/v", "name": "v"}]}]}}}}),
        other("strategic", "C", {"spec": {"template": {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}}}}),
        other("strategic", "C", {"spec": {"template": {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]}}}}),
        other("strategic", "C", {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}),
        other("strategic", "C", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}),
        other("strategic", "C", {"metadata": {"$setElementOrder/finalizers": ["example.com/c", "example.com/b"], "finalizers": ["example.com/c"]}}),
        other("strategic", "C", {"metadata": {"finalizers": None}}),
        other("strategic", "C", {"spec": {"template": {"spec": {"nodeSelector": {"a": "1", "b": "2"}}}}}),
        other("strategic", "C", {"spec": {"template": {"spec": {"nodeSelector": {"$patch": "replace", "c": "3"}}}}}),
        other("strategic", "C", {"spec": {"template": {"spec": {"nodeSelector": {"$patch": "delete"}}}}}),
        other("strategic", "C", {"spec": {"template": {"spec": {"nodeSelector": {"$patch": "maybe"}}}}}),
        other("merge", "C", {"status": {"replicas": 4}, "spec": {"paused": True}}),
        other("merge", "S", {"status": {"replicas": 4, "conditions": [{"type": "Available", "status": "True"}]}}, subresource="status"),
        apply("S", {"status": {"conditions": [{"type": "Progressing", "status": "True"}]}}, subresource="status"),
    ]
    yield "a pod from its creation", "Pod", [
        other("create", "A", {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}], "command": ["x"], "resources": {"limits": {"cpu": "1"}}}], "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "k", "operator": "Exists"}]}}),
        other("merge", "S", {"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status"),
        apply("B", {"metadata": {"annotations": {"x": "1"}}, "spec": {"containers": [{"name": "c", "image": "j"}]}}),
        apply("B", {"metadata": {"annotations": {"x": "1"}}, "spec": {"containers": [{"name": "c", "image": "j"}]}}, force=True),
    ]
    yield "from client-side to server-side apply with kubectl", "ConfigMap", [
        other("create", "kubectl-client-side-apply", {"metadata": {"annotations": {LAST_APPLIED: json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default", "annotations": {}}, "data": {"a": "1", "b": "2"}})}}, "data": {"a": "1", "b": "2"}}),
        apply("kubectl", {"data": {"a": "2", "b": "2"}}),
        apply("kubectl", {"data": {"b": "3", "c": "4"}}),
        other("merge", "B", {"data": {"c": "9"}}),
        apply("kubectl", {"data": {"b": "3", "c": "4"}}),
    ]
    yield "more writers than are remembered", "ConfigMap", [
        other("create", "w00", {"data": {"k00": "v"}}), *(other("merge", f"w{n:02}", {"data": {f"k{n:02}": "v"}}) for n in range(1, 14)),
    ]
    yield "a config map", "ConfigMap", [
        apply("A", {"data": {"a": "1"}, "binaryData": {"b": "AAAA"}, "immutable": False}),
        apply("A", {"data": {"a": None}}),
        apply("A", {"data": {}}),
        apply("B", {"metadata": {"labels": {"x": "1"}, "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"}]}}),
        apply("C", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"}, {"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "u2"}]}}),
        apply("C", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "q", "uid": "u1"}]}}),
        apply("C", {"datta": {}}),
        apply("C", {"data": {"a": 1}}),
    ]


def random_thing(dice):
    spec = {}
    some = lambda items: [item for item in items if dice.random() < 0.5]
    for field, make in {
        "number": lambda: dice.randint(0, 2),
        "either": lambda: dice.choice([1, "one"]),
        "plain": lambda: some(["a", "b"]),
        "atoms": lambda: [{"a": dice.randint(0, 1)} for _ in range(dice.randint(0, 2))],
        "set": lambda: dice.sample(["a", "b", "c", "d", "e"], dice.randint(0, 4)),
        "keyed": lambda: [{"name": name, **({"size": dice.randint(0, 1)} if dice.random() < 0.6 else {}), **({"zone": dice.choice(["here", "there"])} if dice.random() < 0.3 else {}), **({"labels": {key: dice.choice("12") for key in some("ab")}} if dice.random() < 0.4 else {})} for name in dice.sample("wxyz", dice.randint(0, 3))],
        "labels": lambda: {key: dice.choice("12") for key in some("abc")},
        "whole": lambda: {key: dice.randint(0, 1) for key in some("ab")},
        "free": lambda: {key: dice.choice([1, "s", {"n": 1}, {"m": 2, "n": 2}, [1], {}, []]) for key in some("abc")},
        "mixed": lambda: {key: 1 for key in some(["known", "other"])},
        "nested": lambda: {"deep": {key: dice.randint(0, 1) for key in some("ab")}} if dice.random() < 0.8 else {},
    }.items():
        if dice.random() < 0.35:
            spec[field] = make() if dice.random() < 0.95 else None
    return {"spec": spec} if dice.random() < 0.9 else {}


def random_deployment(dice, may_repeat=False):
    names = lambda: [dice.choice("XYZ") for _ in range(3)] if may_repeat and dice.random() < 0.3 else dice.sample("XYZ", dice.randint(1, 3))
    container = lambda name: {"name": name, "image": dice.choice("ij"), **({"env": [{"name": key, "value": dice.choice("12")} for key in names()]} if dice.random() < 0.5 else {}), **({"ports": [{"containerPort": port, **({"protocol": dice.choice(["TCP", "UDP"])} if dice.random() < 0.5 else {})} for port in dice.sample([80, 81, 82], dice.randint(1, 2))]} if dice.random() < 0.4 else {}), **({"args": dice.sample("abc", 2)} if dice.random() < 0.3 else {})}
    return deployment([container(name) for name in dice.sample("abc", dice.randint(1, 2))], **({"replicas": dice.randint(1, 3)} if dice.random() < 0.5 else {}))


def random_strategic(dice):
    """A strategic merge patch of a Deployment, with directives wherever they may stand."""
    def merged_list(name, key, values, item):
        chosen = dice.sample(values, dice.randint(0, len(values)))
        items = [{key: value, **item()} for value in chosen]
        for entry in items:
            if dice.random() < 0.25:
                entry.clear()
                entry.update({key: dice.choice(values), "$patch": "delete"})
        if dice.random() < 0.08:
            items.append({"$patch": "replace"})
        patch = {name: items} if dice.random() < 0.8 else {}
        if dice.random() < 0.4:
            order = chosen + [value for value in values if value not in chosen]
            if dice.random() < 0.2:
                dice.shuffle(order)
            patch[f"$setElementOrder/{name}"] = [{key: value} for value in order[: dice.randint(0, len(order))] or order]
        return patch

    env = lambda: merged_list("env", "name", ["X", "Y", "Z"], lambda: {"value": dice.choice("12")}) if dice.random() < 0.5 else {}
    container = lambda: {"image": dice.choice("ij"), **env(), **({"args": dice.choice([None, ["a"], []])} if dice.random() < 0.2 else {})}
    spec = merged_list("containers", "name", ["a", "b", "c"], container)
    if dice.random() < 0.5:
        spec.update(merged_list("volumes", "name", ["v", "w"], lambda: {"$retainKeys": ["name", "emptyDir"], "emptyDir": {}} if dice.random() < 0.5 else {"emptyDir": {"medium": "Memory"}}))
    if dice.random() < 0.4:
        spec["nodeSelector"] = dice.choice([None, {"a": "1"}, {"b": "2", "a": None}, {"$patch": "replace", "c": "3"}, {"$patch": "delete"}])
    metadata = {}
    if dice.random() < 0.4:
        names = ["example.com/a", "example.com/b", "example.com/c"]
        metadata = dice.choice([
            {"finalizers": dice.sample(names, 2)},
            {"$deleteFromPrimitiveList/finalizers": dice.sample(names, 1)},
            {"$setElementOrder/finalizers": dice.sample(names, 3)},
            {"finalizers": None},
        ])
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


def random_story(dice, number):
    kind = dice.choice(["Thing", "Deployment"])
    make = random_thing if kind == "Thing" else random_deployment
    steps = [apply(dice.choice("AB"), make(dice)) if dice.random() < 0.5 else other("create", dice.choice("AB"), make(dice))]
    for _ in range(dice.randint(3, 7)):
        op = dice.choice(["apply", "apply", "apply", "merge", "replace"] if kind == "Thing" else ["apply", "merge", "replace", "strategic", "strategic", "strategic"])
        if op == "apply":
            steps.append(apply(dice.choice("ABC"), make(dice), force=dice.random() < 0.5))
        elif op == "strategic":
            steps.append(other(op, dice.choice("ABU"), random_strategic(dice)))
        else:
            steps.append(other(op, dice.choice("ABU"), random_thing(dice) if kind == "Thing" else random_deployment(dice, may_repeat=True)))
    return f"random {number}", kind, steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=str(HERE / "stories.json"))
    options = parser.parse_args()
    server = Server(os.environ["KUBEBUILDER_ASSETS"])
    try:
        server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", THING)
        while server.request("GET", PATHS["Thing"][1])[0] != 200:
            time.sleep(0.2)
        time.sleep(2)  # The schema reaches the field manager a moment after the path is there; nothing announces it.
        dice = random.Random(options.seed)
        plots = [random_story(dice, number) for number in range(options.random)] if options.random else stories()
        told = [tell(server, *plot) for plot in plots]
    finally:
        server.stop()
    lines = ",\n".join(json.dumps(story, sort_keys=True) for story in told)
    schema = json.dumps(THING["spec"]["versions"][0]["schema"]["openAPIV3Schema"], sort_keys=True)
    pathlib.Path(options.out).write_text('{"schema": ' + schema + ', "stories": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
