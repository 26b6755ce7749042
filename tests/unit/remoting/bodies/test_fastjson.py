"""The fastjson dialect: decoding, encoding, refusals."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.fastjson import JsonLimits, ObjectKey
from rmq_remoting.bodies.fastjson_reader import MAX_DEPTH
from rmq_remoting.errors import JsonError
from rmq_remoting.message_queue import MessageQueue
from tests.support.golden import json_file
from tests.support.rows import each_row

BODIES = json_file("protocol/bodies.json")
EXAMPLES = [
    (name, example["json"])
    for name, body in BODIES.items()
    if not name.startswith("_")
    for example in body["examples"]
]
QUEUE_KEY = ObjectKey.of({"topic": "T", "queueId": 1})

_LONG = st.integers(-(2**63), 2**63 - 1)
Tree = st.recursive(
    st.none() | st.booleans() | _LONG | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text() | _LONG | st.dictionaries(st.text(), _LONG | st.text(), max_size=3).map(ObjectKey.of),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@each_row("text", [text for _, text in EXAMPLES if '"$ref"' not in text])
def test_every_example_is_decoded_and_encoded_unchanged(text: str) -> None:
    assert fastjson.dumps(fastjson.loads(text.encode())).decode() == text


@each_row("row", BODIES["_reader_tolerance"].values())
def test_fastjsons_examples_are_decoded(row: dict[str, Any]) -> None:
    assert row["result"]["accepted"]
    assert isinstance(fastjson.loads(row["input"].encode()), dict)


def test_text_is_escaped_as_by_fastjson() -> None:
    text = "".join(map(chr, BODIES["_string_escapes"]["input_code_points"]))
    assert fastjson.dumps(text).decode() == BODIES["_string_escapes"]["default"]
    assert fastjson.dumps_standard(text).decode() == BODIES["_string_escapes"]["browser_compatible"]
    assert fastjson.loads(fastjson.dumps(text)) == text
    assert json.loads(fastjson.dumps_standard(text)) == text


@each_row(("number", "text"), BODIES["_doubles"].items())
def test_doubles_are_encoded_as_in_java(number: str, text: str) -> None:
    assert fastjson.dumps(float(number)).decode() == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.5, "9999999.5"),
        (-1.5e300, "-1.5E300"),
        (5e-324, "5.0E-324"),
        (float("-inf"), "null"),
    ],
)
def test_extreme_doubles_are_encoded(number: float, text: str) -> None:
    assert fastjson.dumps(number).decode() == text


def test_keys_of_all_kinds_and_absent_members() -> None:
    tree: dict[object, object] = {0: "a", "b": None, QUEUE_KEY: [None, True], MessageQueue("T", "b", 2): {}}
    assert fastjson.dumps(tree) == (
        b'{0:"a",{"queueId":1,"topic":"T"}:[null,true],{"brokerName":"b","queueId":2,"topic":"T"}:{}}'
    )
    standard = json.loads(fastjson.dumps_standard(tree))
    assert list(standard) == [
        "0",
        '{"queueId":1,"topic":"T"}',
        '{"brokerName":"b","queueId":2,"topic":"T"}',
    ]


def test_values_without_a_json_form_are_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        fastjson.dumps({"a": [object()]})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{1:2,-3:4}", {1: 2, -3: 4}),
        ("{{topic:'T','queueId':1}:5}", {QUEUE_KEY: 5}),
        ("{ 'a' : [ 1 , 2 , ] , , }", {"a": [1, 2]}),
        ("\ufeff\b\f{\tx_$1: true}\r\n", {"x_$1": True}),
        ("{a:'\\x41\\v\\0\\'\\F'}", {"a": "A\v\0'\f"}),
        ('{a:"\\ud83d\\ude00 \\uD83D\\uDE00 \n"}', {"a": "😀 😀 \n"}),
        ("{a:-1.5e3,b:007,c:1E2}", {"a": -1500.0, "b": 7, "c": 100.0}),
        ("{1:{},{}:[]}", {1: {}, ObjectKey(): []}),
    ],
)
def test_the_dialect_is_decoded(text: str, value: object) -> None:
    assert fastjson.loads(text.encode()) == value


@each_row(
    ("text", "problem"),
    [
        (b"", r"ends too early \(at character 0\)"),
        (b"{0:", r"ends too early \(at character 3\)"),
        (b"{0:1", r"ends too early \(at character 4\)"),
        (b"{0:1}x", r"text after the end of the value, found 'x' \(at character 5\)"),
        (b"{0 1}", r"':' is expected after a key, found '1' \(at character 3\)"),
        (b"{0:1 1:2}", r"',' or '}' is expected, found '1' \(at character 5\)"),
        (b"{0:[1 2]}", r"',' or '\]' is expected, found '2' \(at character 6\)"),
        (b"{0:yes}", r"a value is expected, found 'y' \(at character 3\)"),
        (b"{1.5:1}", r"a key is expected"),
        (b"{[1]:1}", r"a key is expected .*found '\[' \(at character 1\)"),
        (b"{{0:1}:1}", r"an object that cannot be a key: 0 cannot be a name .* \(at character 1\)"),
        (b"{{a:[1]}:1}", r"an object that cannot be a key: list cannot be part .* \(at character 1\)"),
        (b"{0:'abc}", r"a string without an end \(at character 3\)"),
        (b"{0:'a\\q'}", r"an unknown escape \\q \(at character 5\)"),
        (b"{0:'\\ud83d'}", r"half of a surrogate pair \(at character 4\)"),
        (b"{0:" + b"9" * 5000 + b"}", r"an integer of more than 64 bits \(at character 3\)"),
        (b"{0:9223372036854775808}", r"an integer of more than 64 bits \(at character 3\)"),
        (b"{-9223372036854775809:0}", r"an integer of more than 64 bits \(at character 1\)"),
        (b"{0:\xff}", r"not UTF-8 text: .* \(at character 3\)"),
        (b"[" * (MAX_DEPTH + 1) + b"]", r"nested deeper than 128 levels"),
        (b"{a:" * 100_000, r"nested deeper than 128 levels"),
        (b"{" * 100_000, r"nested deeper than 128 levels"),
    ],
)
def test_broken_text_is_refused_with_its_position(text: bytes, problem: str) -> None:
    with pytest.raises(JsonError, match=problem):
        fastjson.loads(text)


def test_the_position_is_an_attribute() -> None:
    with pytest.raises(JsonError) as caught:
        fastjson.loads(b"{0:}")
    assert caught.value.position == 3


@each_row(
    "unit",
    [
        "'",
        "a",
        "\\'",
        " ",
        ",",
        "{a:",
        "[",
        "{{",
        "0",
        "-",
        "'a':1,",
        "{'q':1}:{},",
        "0:[1.5],",
        "/",
        "\u00e9",
    ],
)
@each_row("start", ["[", "{0:'", "{0:", "{"])
def test_long_broken_text_takes_linear_time(start: str, unit: str) -> None:
    text = (start + unit * (512 * 1024 // len(unit))).encode()
    started = time.process_time()
    with pytest.raises(JsonError):
        fastjson.loads(text)
    assert time.process_time() - started < 2


def test_text_as_long_as_the_largest_frame_takes_linear_time() -> None:
    text = (
        b"{" + b",".join(b"%d:'%060d'" % (number, number) for number in range(16 * 1024 * 1024 // 70)) + b"}"
    )
    started = time.process_time()
    value = fastjson.loads(text)
    assert isinstance(value, dict)
    assert len(value) == 16 * 1024 * 1024 // 70
    assert time.process_time() - started < 10


class TestLimits:
    _limits = JsonLimits(values=1000, dialect_values=100)

    @pytest.mark.parametrize(("begin", "end", "around"), [("[", "]", 1), ('[{"a":[', "]}]", 3)])
    def test_of_standard_text(self, begin: str, end: str, around: int) -> None:
        zeros = "0," * (999 - around)
        assert fastjson.loads(f"{begin}{zeros}0{end}".encode(), self._limits)
        with pytest.raises(JsonError, match="more than 1000 values"):
            fastjson.loads(f"{begin}{zeros}0,0{end}".encode(), self._limits)

    def test_commas_in_text_do_not_count(self) -> None:
        assert fastjson.loads(b'["' + b"," * 5000 + b'"]', self._limits) == ["," * 5000]

    def test_of_the_dialect(self) -> None:
        assert fastjson.loads(b"{1:[" + b"0," * 98 + b"]}", self._limits) == {1: [0] * 98}
        with pytest.raises(JsonError, match="more than 100 values"):
            fastjson.loads(b"{1:[" + b"0," * 99 + b"]}", self._limits)

    def test_of_references(self) -> None:
        text = b"[[%b]," + b'{"$ref":"$[0]"},' * 30 + b"0]"
        with pytest.raises(JsonError, match="the references expand to more than 1000 values"):
            fastjson.loads(text % b",".join([b"0"] * 40), self._limits)
        assert len(fastjson.loads(text % b"0", self._limits)) == 32  # type: ignore[arg-type]

    def test_a_request_is_decoded_in_little_time_at_its_limit(self) -> None:
        for text in (b"[" + b"0," * 2_000_000 + b"0]", b"{1:[" + b"0," * 2_000_000 + b"0]}"):
            started = time.process_time()
            with pytest.raises(JsonError, match="values"):
                fastjson.loads(text, fastjson.REQUEST_LIMITS)
            assert time.process_time() - started < 2


class TestReferences:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
            ('{"b":{"$ref":"$.a"},"a":{"x":1}}', {"b": {"x": 1}, "a": {"x": 1}}),
            ('{"a":[[1],{"$ref":"$.a[0]"}]}', {"a": [[1], [1]]}),
            ('{"a":{0:{},1:{"$ref":"$.a[0]"}}}', {"a": {0: {}, 1: {}}}),
            ('{"a":{0:{},1:{"$ref":"$.a.0"}}}', {"a": {0: {}, 1: {}}}),
            ('{"x.y-z":{},"b":{"$ref":"$.x\\\\.y\\\\-z"}}', {"x.y-z": {}, "b": {}}),
            (
                '{"b":{"$ref":"$.c.x"},"c":{"$ref":"$.d"},"d":{"x":{}}}',
                {"b": {}, "c": {"x": {}}, "d": {"x": {}}},
            ),
            (
                '{"a":{{"q":1}:2},"b":{{"$ref":"$.a.null"}:3}}',
                {"a": {ObjectKey.of({"q": 1}): 2}, "b": {ObjectKey.of({"q": 1}): 3}},
            ),
            ('{"a":{"$ref":5},"b":{"$ref":"$.a","c":1}}', {"a": {"$ref": 5}, "b": {"$ref": "$.a", "c": 1}}),
        ],
    )
    def test_resolve_to_earlier_objects(self, text: str, value: object) -> None:
        assert fastjson.loads(text.encode()) == value

    def test_share_one_object(self) -> None:
        value = fastjson.loads(b'{"a":{},"b":{"$ref":"$.a"}}')
        assert isinstance(value, dict)
        assert value["a"] is value["b"]

    @each_row(
        ("text", "problem"),
        [
            ('{"$ref":"$"}', "the whole text is a reference"),
            ('{"a":{"$ref":".."}}', "does not start at the root"),
            ('{"a":{"$ref":"@"}}', "does not start at the root"),
            ('{"a":{"$ref":"$"}}', "inside its own target"),
            ('{"a":{"b":{"$ref":"$.a"}}}', "inside its own target"),
            ('{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}', "through more than 16 others"),
            ('{"a":{"$ref":"$.c"}}', r"'\$\.c' has no target"),
            ('{"a":[{"$ref":"$.a[7]"}]}', "has no target"),
            ('{"a":{"$ref":"$a"}}', "is not a path"),
            ('{"a":{"$ref":"$.b["},"b":[]}', "is not a path"),
            ('{"a":[],"b":{{"$ref":"$.a"}:3}}', "cannot be a map key"),
        ],
    )
    def test_without_a_target_are_refused(self, text: str, problem: str) -> None:
        with pytest.raises(JsonError, match=problem):
            fastjson.loads(text.encode())

    def test_that_expand_to_an_endless_tree_are_refused(self) -> None:
        levels: list[object] = [[]]
        levels += [[{"$ref": f"$[{level}]"}] * 10 for level in range(20)]
        with pytest.raises(JsonError, match="expand to more than"):
            fastjson.loads(json.dumps(levels).encode())

    def test_that_expand_to_a_deep_tree_are_refused(self) -> None:
        levels: list[object] = [[]]
        levels += [[{"$ref": f"$[{level}]"}] for level in range(MAX_DEPTH + 1)]
        with pytest.raises(JsonError, match="nested deeper"):
            fastjson.loads(json.dumps(levels).encode())
        with pytest.raises(JsonError, match="nested deeper"):
            fastjson.loads(b'{"$ref":' + b"[" * 1000 + b"]" * 1000 + b"}")

    def test_with_paths_through_references_take_linear_time(self) -> None:
        path = "$" + ".a" * 10_000
        tree: dict[str, object] = {
            "a": {"$ref": "$.b"},
            "b": {},
            "c": [{"$ref": path + f".{number}"} for number in range(100)],
        }
        with pytest.raises(JsonError, match="has no target"):
            fastjson.loads(json.dumps(tree).encode())


@given(Tree)
def test_random_trees_round_trip(tree: object) -> None:
    assert fastjson.loads(fastjson.dumps(tree)) == _without_absent(tree)


@given(Tree)
def test_random_trees_are_written_as_standard_json(tree: object) -> None:
    json.loads(fastjson.dumps_standard(tree))


@given(Tree)
def test_random_trees_round_trip_in_pretty_form(tree: object) -> None:
    assert fastjson.loads(fastjson.dumps_pretty(tree)) == _without_absent(tree)


@given(st.binary())
def test_random_bytes_are_decoded_or_refused(data: bytes) -> None:
    with contextlib.suppress(JsonError):
        fastjson.loads(data)


@given(st.text(alphabet="{}[]:,'\"\\ $ref.@0123-+eE.xutrue \n"))
def test_random_json_characters_are_decoded_or_refused(text: str) -> None:
    with contextlib.suppress(JsonError):
        fastjson.loads(text.encode())


def _without_absent(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _without_absent(item) for key, item in tree.items() if item is not None}
    if isinstance(tree, list):
        return [_without_absent(item) for item in tree]
    return tree
