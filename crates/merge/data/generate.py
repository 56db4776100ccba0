#!/usr/bin/env python3
"""Make `schemas.json` and `definitions.json` from the OpenAPI v3 documents of a Kubernetes release.

How to run, from anywhere:

    go mod download -json k8s.io/kubernetes@v1.36.3      # prints "Dir"
    python3 crates/merge/data/generate.py DIR/api/openapi-spec/v3 v1.36.3

Both outputs hold the same definitions, named and shaped as in OpenAPI v3 (`#/components/schemas/NAME`):

* `schemas.json` is what merging and validation need: fields, types, list and map types, keys, patch strategies, defaults.
* `definitions.json` is what a server shows to its clients: the same with the first sentence of each description.

The release's own documents are used, and not a repackaged JSON schema, because only they carry the defaults of list-map keys
(`protocol: TCP`), without which two spellings of one list item would be two items.
"""

import json
import pathlib
import re
import sys

# The kinds the sandbox serves, as (group, version, kind). Everything they refer to comes along.
KINDS = [
    ("", "v1", "Binding"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Endpoints"),
    ("", "v1", "Event"),
    ("", "v1", "Namespace"),
    ("", "v1", "Node"),
    ("", "v1", "PersistentVolume"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "Pod"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("", "v1", "ServiceAccount"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "v1", "APIService"),
    ("apps", "v1", "DaemonSet"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "StatefulSet"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview"),
    ("authentication.k8s.io", "v1", "TokenRequest"),
    ("authentication.k8s.io", "v1", "TokenReview"),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview"),
    ("autoscaling", "v1", "Scale"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("batch", "v1", "CronJob"),
    ("batch", "v1", "Job"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("events.k8s.io", "v1", "Event"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("policy", "v1", "Eviction"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
    ("storage.k8s.io", "v1", "StorageClass"),
]

# Definitions without a kind of their own path that clients send or get.
ALSO = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
]

# What `schemas.json` does not need: it decides how to merge, not whether a value is valid.
NOT_FOR_MERGING = {"description", "required", "enum", "x-kubernetes-unions", "x-kubernetes-validations"}
# The fields that the server's Go structs write even when nothing was set (`containers: null`, `status: {}`): the required ones, and the
# structs held by value, which have `{}` for a default.
ALWAYS_WRITTEN = "x-always-written"
# Held by value too, but left out when zero (`omitzero`).
LEFT_OUT_WHEN_ZERO = {"creationTimestamp"}
# Times held by value, which OpenAPI does not tell from times held by pointer: from the types.go files of the same release.
TIMES_BY_VALUE = {
    "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime", "expirationTimestamp", "finishedAt", "firstTimestamp",
    "lastHeartbeatTime", "lastObservedTime", "lastProbeTime", "lastTimestamp", "lastTransitionTime", "lastUpdateTime", "startedAt",
}
DESCRIPTION_LIMIT_CHARACTERS = 160


def gvks(definition):
    return [(g["group"], g["version"], g["kind"]) for g in definition.get("x-kubernetes-group-version-kind", [])]


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value.rsplit("/", 1)[1]
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def first_sentence(text):
    sentence = re.split(r"(?<=[a-z0-9\"')])\.(?:\s|$)", text.strip().replace("\n", " "), maxsplit=1)[0].strip()
    if len(sentence) > DESCRIPTION_LIMIT_CHARACTERS:
        sentence = sentence[:DESCRIPTION_LIMIT_CHARACTERS].rsplit(" ", 1)[0] + " ..."
    return sentence


def shorten(node):
    if isinstance(node, dict):
        return {
            key: first_sentence(value) if key == "description" and isinstance(value, str) else shorten(value)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [shorten(value) for value in node]
    return node


def for_merging(node, inside_properties=False):
    if isinstance(node, list):
        return [for_merging(value) for value in node]
    if not isinstance(node, dict):
        return node
    if inside_properties:
        return {key: for_merging(value) for key, value in node.items()}
    slim = {
        key: for_merging(value, key == "properties") for key, value in node.items() if key not in NOT_FOR_MERGING
    }
    by_value = [name for name, field in node.get("properties", {}).items() if field.get("default") == {}]
    times = TIMES_BY_VALUE.intersection(node.get("properties", {}))
    always = set(node.get("required", [])).union(by_value, times) - LEFT_OUT_WHEN_ZERO
    if always:
        slim[ALWAYS_WRITTEN] = sorted(always)
    return slim


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: generate.py DIRECTORY_OF_OPENAPI_V3_DOCUMENTS RELEASE (see the text at the top of this file)")
    source, release = pathlib.Path(sys.argv[1]), sys.argv[2]
    everything = {}
    for document in sorted(source.glob("*_openapi.json")):
        everything.update(json.loads(document.read_text())["components"].get("schemas", {}))
    by_kind = {gvk: name for name, definition in everything.items() for gvk in gvks(definition)}
    missing = [kind for kind in KINDS if kind not in by_kind]
    if missing:
        sys.exit(f"{source} has no definition for {missing}; is it the directory of a release that serves them?")

    wanted, queue = set(), [by_kind[kind] for kind in KINDS] + ALSO
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue.extend(references(everything[name]))

    definitions = {}
    for name in sorted(wanted):
        definition = dict(everything[name])
        listed = [g for g in definition.get("x-kubernetes-group-version-kind", [])]
        if len(listed) > 1:
            # DeleteOptions and its like belong to every group; only the core group's entry is worth its bytes here.
            definition["x-kubernetes-group-version-kind"] = [g for g in listed if g["group"] == ""] or listed[:1]
        definitions[name] = definition

    here = pathlib.Path(__file__).parent
    for file, table in (
        ("schemas.json", {name: for_merging(value) for name, value in definitions.items()}),
        ("definitions.json", {name: shorten(value) for name, value in definitions.items()}),
    ):
        lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}" for name, value in table.items())
        (here / file).write_text("{\n" + lines + "\n}\n")
    (here / "RELEASE").write_text(release + "\n")


if __name__ == "__main__":
    main()
