"""Reads files of Kubernetes objects, holds each object against its schema, and prints all as JSON: a list of objects for each file.

Objects of Kubernetes itself are held against the strict schemas of kubernetes-validate, for each release named by --release; others against the
schemas in the folder `crd` beside this file. A kind without a schema, an unknown key, and a key that stands twice are errors.
"""

import argparse
import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

CRD = pathlib.Path(__file__).parent / "crd"


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a key that stands twice, which YAML parsers take in silence."""


def mapping(loader, node):
    seen = set()
    for key, _ in node.value:
        if key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
        seen.add(key.value)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def wrong_with(thing, releases):
    """What is wrong with an object, or nothing."""
    group = thing["apiVersion"].split("/")[0]
    schema = CRD / f"{thing['kind'].lower()}.json"
    if schema.exists():
        rules = json.loads(schema.read_text())
        if rules["properties"]["apiVersion"]["const"] != thing["apiVersion"]:
            yield f"apiVersion is {thing['apiVersion']}, the schema has {rules['properties']['apiVersion']['const']}"
        for error in jsonschema.Draft202012Validator(rules).iter_errors(thing):
            yield f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        return
    for release in releases:
        try:
            kubernetes_validate.validate(thing, release, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"Kubernetes {release}: {'/'.join(map(str, error.absolute_path))}: {error.message}"
        except kubernetes_validate.SchemaNotFoundError:
            yield f"Kubernetes {release} has no {thing['kind']} in {group}"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--release", action="append", required=True)
    arguments.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = arguments.parse_args()
    out, wrong, known = [], [], {}
    for file in arguments.files:
        try:
            things = [thing for thing in yaml.load_all(file.read_text(), Loader) if thing is not None]
        except yaml.YAMLError as error:
            sys.exit(f"{file.name}: {error}")
        out.append(things)
        for thing in things:
            # The same object comes in many files; its schemas are asked once.
            text = json.dumps(thing, sort_keys=True)
            if text not in known:
                known[text] = list(wrong_with(thing, arguments.release))
            wrong += [f"{file.name}: {thing['kind']} {thing['metadata']['name']}: {what}" for what in known[text]]
    if wrong:
        sys.exit("\n".join(wrong))
    json.dump(out, sys.stdout)


main()
