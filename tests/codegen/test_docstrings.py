"""Docstrings: wrapped, escaped, laid out."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_codegen.amqp_1_0.names import class_name, constant_name, field_name, local_name
from ferrymq_codegen.docs import docstring


def test_short_text_is_one_line() -> None:
    assert docstring("A thing.", 4, "") == '"""A thing."""'


def test_fallback() -> None:
    assert docstring("", 4, "AMQP type x.") == '"""AMQP type x."""'


def test_long_text_wraps_below_the_line_length() -> None:
    text = docstring("word " * 100, 4, "")
    assert text.endswith('\n    """')
    lines = text.splitlines()
    assert all(len(line) <= 96 for line in lines)
    assert len(lines[1]) > 80
    assert all(line.startswith("    word") for line in lines[1:-1])


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_any_text_gives_a_literal_that_says_the_same(text: str) -> None:
    literal = docstring(text, 0, "-")
    value = ast.literal_eval(literal)
    assert value.split() == (text or "-").split()


@pytest.mark.parametrize(
    ("name", "cls", "field", "constant"),
    [
        ("sasl-init", "SaslInit", "sasl_init", "SASL_INIT"),
        ("amqp-error", "AmqpErrorCondition", "amqp_error", "AMQP_ERROR"),
        ("from", "From", "from_", "FROM"),
        ("filter", "Filter", "filter", "FILTER"),
        ("bytes", "Bytes", "bytes_", "BYTES"),
        ("encode", "Encode", "encode_", "ENCODE"),
        ("a.b:c_d", "ABCD", "a_b_c_d", "A_B_C_D"),
        ("camelCase", "CamelCase", "camelcase", "CAMELCASE"),
        ("none", "None_", "none", "NONE"),
    ],
)
def test_names(name: str, cls: str, field: str, constant: str) -> None:
    assert (class_name(name), field_name(name), constant_name(name)) == (cls, field, constant)


@pytest.mark.parametrize("name", ["r", "w", "value", "count", "outer", "nulls", "mark", "id"])
def test_local_variables_do_not_hide_what_generated_functions_use(name: str) -> None:
    assert local_name(name) == name + "_"
