"""Sends a service requests of all kinds, good and bad, made from the description that it shows. Called by api.rs.

    api.py ADDRESS ROUND USER DIGEST COUNT SEED

ADDRESS is where a proxy listens that speaks TLS to the service as the party that asks. ROUND, USER and DIGEST make some
of the requests fit the task, so that they get further than the first check. At least COUNT requests are made. One line
of JSON on standard output says what came back.
"""
import collections
import json
import math
import struct
import sys
import warnings

import hypothesis
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

address, this_round, user, digest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
count, seed = int(sys.argv[5]), int(sys.argv[6])
warnings.simplefilter("ignore")

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
OTHER_MEDIA = ["text/plain", "application/vnd.dphe.v2.result", "application/vnd.dphe.v2.close; charset=utf-8"]
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


session = requests.Session()
session.trust_env = False
base = f"http://{address}"
task = bytes.fromhex(session.get(f"{base}/v1/status", timeout=30).json()["task"])
description = session.get(f"{base}/openapi.json", timeout=30).json()

# type, and bytes of the fields without lists
KINDS = {"round-open": (1, 152), "upload": (3, 100), "freeze": (5, 77), "decrypt": (9, 68), "close": (12, 33)}


@st.composite
def messages(draw, kind):
    """Bytes of any kind, or the head of a message (docs/protocol.md, section 7) and then anything."""
    if draw(st.integers(0, 2)) == 0:
        return draw(st.binary(max_size=200))
    number, fields = KINDS[kind]
    own = (3, user) if kind == "upload" else (1, 0)
    role, sender = draw(st.sampled_from([own, own, own, (1, 0), (2, 0), (3, user), (3, 99), (0, 0)]))
    which = draw(st.sampled_from([this_round, this_round + 1, 0, 1, 2**64 - 1]))
    version = draw(st.sampled_from([1, 1, 1, 2]))
    of = draw(st.sampled_from([task, task, bytes(16)]))
    head = b"DPHE" + bytes([version, number]) + of + struct.pack(">QBI", which, role, sender)
    if draw(st.booleans()):
        return head + draw(st.binary(max_size=400))
    # as long as it should be: fields, and a signature that does not hold
    return head + draw(st.sampled_from([b"\0", b"\1", b"\xff"])) * fields + draw(st.binary(min_size=64, max_size=64))


for kind in KINDS:
    media = f"application/vnd.dphe.v2.{kind}"
    schemathesis.openapi.media_type(media, messages(kind))

    @schemathesis.serializer(media)
    def as_it_is(context, value):
        # negative cases may be anything that JSON can say
        return value if isinstance(value, bytes) else json.dumps(value, default=str).encode()


schema = schemathesis.openapi.from_dict(description)
schema.config.update(base_url=base)
made = unsent = 0
# bytes of the own upload that the service has, as far as its answers say
here = 0
statuses, codes, bare = collections.Counter(), collections.Counter(), collections.Counter()
failures = []


def ask(case, fitting, other_media):
    """One request, and whether its answer is one of those that were promised."""
    global made, here, unsent
    if fitting:
        fit(case)
    if other_media and case.media_type:
        case.media_type = None
        case.headers["content-type"] = other_media
    kwargs = {"session": session, "timeout": 60, "allow_redirects": False}
    try:
        response = case.call(**kwargs)
    except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError, ValueError):
        # what cannot be sent at all
        unsent += 1
        return
    made += 1
    here = int(response.headers.get("upload-offset", ["0"])[0])
    statuses[response.status_code] += 1
    if "x-request-id" not in response.headers:
        # not HTTP: no service has seen it
        if response.status_code not in (400, 414, 431) or response.content:
            raise AssertionError(f"an answer without a name: {response.status_code} {response.content!r}")
        bare[response.status_code] += 1
        return
    if response.headers.get("content-type") == ["application/problem+json"] and response.content:
        problem = json.loads(response.content)
        codes[problem["code"]] += 1
        assert [problem["request"]] == response.headers["x-request-id"], problem
        assert problem["status"] == response.status_code, problem
        assert problem["type"] == f"urn:dphe:error:{problem['code']}", problem
    case.validate_response(response, checks=CHECKS)


def fit(case):
    """Makes a request belong to the current task."""
    place = case.path_parameters or {}
    for key, value in (("round", this_round), ("user", user), ("digest", digest)):
        if key in place:
            place[key] = value
    query = case.query or {}
    if "after" in query:
        query["after"] = this_round
    if "total" in query and isinstance(case.body, bytes) and case.body:
        # mostly a last piece, so that there is an upload to judge
        more = 0 if len(case.body) % 8 else 100
        query["offset"], query["total"] = here, here + len(case.body) + more


def run(operation, mode, examples, number):
    strategy = operation.as_strategy(generation_mode=mode)

    @hypothesis.seed(number)
    @hypothesis.settings(
        max_examples=examples, database=None, deadline=None, derandomize=False,
        suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate], print_blob=False)
    @hypothesis.given(case=strategy, fitting=st.booleans(), other_media=st.sampled_from([None] * 9 + OTHER_MEDIA))
    def test(case, fitting, other_media):
        ask(case, fitting, other_media)

    test()


def weight(operation):
    """Where more can go wrong more is tried."""
    if operation.body:
        return 8
    return 4 if operation.path_parameters or operation.query else 1


operations = [found.ok() for found in schema.get_all_operations()]
skipped = set()
passes = 0
while made < count and passes < 60 and not failures:
    slots = len(MODES) * sum(map(weight, operations))
    share = min(25, math.ceil((count - made) / slots))
    for number, operation in enumerate(operations):
        for mode in MODES:
            examples = share * weight(operation)
            try:
                run(operation, mode, examples, seed + 1000 * passes + 2 * number + mode.is_negative)
            except hypothesis.errors.Unsatisfiable:
                skipped.add(f"{operation.label} {mode.value}")
            except BaseException as error:  # noqa: BLE001: groups of failures are none of Exception
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                parts = getattr(error, "exceptions", [error])
                what = [str(part)[:2000] for part in parts]
                failures.append({"operation": operation.label, "mode": mode.value, "what": what})
    passes += 1

print(json.dumps({
    "requests": made, "passes": passes, "statuses": statuses, "codes": codes, "bare": bare, "unsent": unsent,
    "skipped": sorted(skipped), "failures": failures,
}))
