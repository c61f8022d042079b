"""Numbers with currency, percent and thousands marks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricgrad import Recipe, TableClassifier, load, save
from metricgrad.tabular.cells import BLANKS, CURRENCY, DECIMALS, NumberFormat, numbers
from metricgrad.tabular.io import read_table
from metricgrad.tabular.schema import Column, infer_columns

GROUPS = {"decimal point": ["", ",", "'", "’", *BLANKS], "decimal comma": ["", ".", "'", "’", *BLANKS]}
UNITS = ["", "percent", "$", "€", "CHF", "US$", "Fr.", "kr"]


def parsed(form: str, *texts: str | None) -> list[float]:
    return NumberFormat.from_text(form).parse(pa.array(texts, pa.large_string())).tolist()


@st.composite
def written(draw: st.DrawFn) -> tuple[str, list[float], list[str]]:
    """A format, numbers, and the numbers written in it, with any separator of thousands and any sign style."""
    decimal, unit, places = draw(st.sampled_from(DECIMALS)), draw(st.sampled_from(UNITS)), draw(st.integers(0, 6))
    group, style = draw(st.sampled_from(GROUPS[decimal])), draw(st.sampled_from(["-1", "\u22121", "(1)", "unit -1"]))
    before, blank = draw(st.booleans()), draw(st.sampled_from(["", " ", "\u00a0"]))
    values, texts = [], []
    for units in draw(st.lists(st.integers(-(10**13), 10**13), min_size=1, max_size=20)):
        body = f"{abs(units) / 10**places:,.{places}f}"
        values.append(float(body.replace(",", "")) * (-1 if units < 0 else 1))
        texts.append(_text(body, units < 0, decimal, group, unit, style, before, blank))
    return str(NumberFormat(decimal, unit)), values, texts


def _text(body: str, negative: bool, decimal: str, group: str, unit: str, style: str, before: bool, blank: str) -> str:
    body = body.translate({ord(","): group, ord("."): "." if decimal == "decimal point" else ","})
    minus = "" if not negative or style == "(1)" else style.removeprefix("unit ")[0]
    if unit == "percent":
        body = f"{minus}{body}{blank}%"
    elif unit and before:
        body = f"{unit}{blank}{minus}{body}" if style == "unit -1" else f"{minus}{unit}{blank}{body}"
    else:
        body = f"{minus}{body}{blank}{unit}"
    return f"({body})" if negative and style == "(1)" else body


@settings(deadline=None)
@given(written())
def test_numbers_written_in_a_format_are_read_back_equal(case: tuple[str, list[float], list[str]]) -> None:
    form, values, texts = case
    assert parsed(form, *texts) == values


@settings(deadline=None)
@given(written())
def test_numbers_are_read_back_equal_from_cells_of_any_string_type(case: tuple[str, list[float], list[str]]) -> None:
    form, values, texts = case
    for cells in (pd.Series(texts, dtype="str"), pd.Series(texts, dtype=object), pd.Series(texts, dtype="category")):
        np.testing.assert_array_equal(numbers(cells, form), values)
    twice = pd.concat([pd.Series(texts, dtype="str"), pd.Series(texts, dtype="str")], ignore_index=True)
    np.testing.assert_array_equal(numbers(twice, form), values + values)
    np.testing.assert_array_equal(numbers(pd.Series(values), form), values)
    np.testing.assert_array_equal(numbers(pd.Series([*values, None], dtype=object), form), [*values, np.nan])


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        ("decimal point, $", "$12,345.67", 12345.67),
        ("decimal comma, €", "€ 1.234,56", 1234.56),
        ("decimal point, percent", "12.3%", 12.3),
        ("decimal comma", "1.234,56", 1234.56),
        ("decimal point", "1,234", 1234),
        ("decimal comma", "1,234", 1.234),
        ("decimal point", "(123.45)", -123.45),
        ("decimal comma", "1 234,5", 1234.5),
        ("decimal comma", "1\u00a0234,5", 1234.5),
        ("decimal comma", "1\u2009234,5", 1234.5),
        ("decimal point", "1'234.5", 1234.5),
        ("decimal point", " 12,34,567 ", 1234567),
        ("decimal point, $", "$(5.00)", -5),
        ("decimal point, $", "-$.5", -0.5),
        ("decimal point, Fr.", "Fr.5", 5),
        ("decimal point, Fr.", "Fr. -5", -5),
        ("decimal comma", "1,5E-05", 1.5e-5),
        ("decimal comma", "1,5e\u22122", 0.015),
    ],
)
def test_a_cell_is_the_number_it_stands_for(form: str, text: str, value: float) -> None:
    assert parsed(form, text) == [value]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("decimal comma", "1234.56"),
        ("decimal comma", "1.23"),
        ("decimal point", "1,23"),
        ("decimal point", "1,234 567"),
        ("decimal point", "0,123"),
        ("decimal point", "01,234"),
        ("decimal point", "01234"),
        ("decimal comma", "1.2.3"),
        ("decimal point, $", "€5"),
        ("decimal point", "$5"),
        ("decimal point", "5%"),
        ("decimal point, percent", "0.05"),
        ("decimal point", "--5"),
        ("decimal point", "(-5)"),
        ("decimal point", "5)"),
        ("decimal point", "1e999"),
        ("decimal point", "9" * 400),
        ("decimal point", "nan"),
        ("decimal point", ""),
        ("decimal point", None),
    ],
)
def test_a_cell_in_another_format_is_missing_never_guessed(form: str, text: str | None) -> None:
    assert np.isnan(parsed(form, text)).all()


@settings(deadline=None)
@given(st.text(max_size=12), st.sampled_from(DECIMALS), st.sampled_from(UNITS))
def test_any_text_is_a_finite_number_or_missing(text: str, decimal: str, unit: str) -> None:
    [value] = parsed(str(NumberFormat(decimal, unit)), text)
    assert np.isfinite(value) or np.isnan(value)
    if np.isfinite(value):
        assert re.search(r"\d", text)


@pytest.mark.parametrize("decimal", DECIMALS)
@pytest.mark.parametrize("unit", ["", "percent", *(unit.replace("\\", "") for unit in CURRENCY.split("|"))])
def test_a_format_comes_back_from_its_text(decimal: str, unit: str) -> None:
    form = NumberFormat(decimal, unit)
    assert NumberFormat.from_text(str(form)) == form


@pytest.mark.parametrize("text", ["", "decimal", "decimal comma, ", "decimal comma,€", "decimal comma, .*", "%d.%m"])
def test_a_text_that_is_no_format_is_refused(text: str) -> None:
    if text == "decimal comma, ":
        assert str(NumberFormat.from_text(text)) == "decimal comma"
        return
    with pytest.raises(ValueError, match=f"expected a number format such as 'decimal comma, €', got {text!r}"):
        NumberFormat.from_text(text)


# ---- the format of a column ----------------------------------------------------------------------------------------


def column(cells: list[str | None], name: str = "x") -> Column:
    return infer_columns(pd.DataFrame({name: pd.Series(cells, dtype="str")})).columns[0]


def money(pattern: str, n: int = 100) -> list[str]:
    amounts = np.random.default_rng(0).lognormal(7, 2, n)
    swapped = [f"{amount:,.2f}".translate({44: ".", 46: ","}) for amount in amounts]
    return [pattern.format(us=f"{amount:,.2f}", de=de) for amount, de in zip(amounts, swapped, strict=True)]


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (money("${us}"), "decimal point, $"),
        (money("{us} USD"), "decimal point, USD"),
        (money("€ {de}"), "decimal comma, €"),
        (money("{de}\u00a0€"), "decimal comma, €"),
        (money("{de}"), "decimal comma"),
        (money("({us})"), "decimal point"),
        ([f"{i / 7:.1f}%" for i in range(100)], "decimal point, percent"),
        ([f"{i / 7:.1f} %".replace(".", ",") for i in range(100)], "decimal comma, percent"),
        ([f"{i * 37:,}" for i in range(100)], "decimal point"),
        ([f"{i * 37:,}".replace(",", " ") for i in range(100)], "decimal point"),
        ([f"{i * 37:,}.5".replace(",", "'") for i in range(100)], "decimal point"),
        ([str(i * 7) for i in range(250)] + ["1,750", "1,757"], "decimal point"),
        ([str(i) for i in range(300)] + [f"{i * 1000:,}" for i in range(1, 300)], "decimal point"),
        (["1.234", "2.500", "999", "1.234.567"] * 10, "decimal comma"),
        (["1,234", "2,500", "0,999"] * 10, "decimal comma"),
        (["$5", "10", None] * 10, "decimal point, $"),
        (["1.234", "2.5"] * 10, ""),
    ],
)
def test_a_column_of_written_numbers_is_of_numbers_in_one_format(cells: list[str | None], form: str) -> None:
    found = column(cells)
    assert (found.kind, found.form, found.stray) == ("number", form, 0)


def test_a_column_that_says_nothing_of_its_decimal_mark_has_commas_between_thousands_and_says_so() -> None:
    frame = pd.DataFrame({"visits": ["1,234", "2,500", "12,345", "987"] * 10, "fee": ["€ 1,50", "€ 2,75"] * 20})
    schema = infer_columns(frame)
    np.testing.assert_array_equal(numbers(frame["visits"], schema.columns[0].form)[:4], [1234, 2500, 12345, 987])
    assert schema.describe() == [
        "numbers: visits, fee",
        "visits: read as numbers with decimal point (1,234 is 1234)",
        "fee: read as money (€) with decimal comma (1,234 is 1.234)",
    ]


def test_cells_that_are_no_numbers_in_the_format_are_counted() -> None:
    schema = infer_columns(pd.DataFrame({"price": [*money("${us}"), "on request", "€5.00"]}))
    assert schema.columns[0] == Column("price", "number", "decimal point, $", 2)
    assert schema.describe()[1:] == [
        "price: read as money ($) with decimal point (1,234 is 1234)",
        "price: 2 cells could not be parsed as numbers and are treated as missing",
    ]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([f"+49 170 {i:03} {i * 7 % 1000:03}" for i in range(100)], "id"),
        ([f"6{i:02} {i:03} {i * 7 % 1000:03}" for i in range(100)], "id"),
        ([f"555-{i:03}-{i:04}" for i in range(100)], "id"),
        ([f"(0{i:02}) {i:03} {i:04}" for i in range(100)], "id"),
        ([f"192.168.{100 + i}.{200 - i}" for i in range(100)], "id"),
        ([f"{i}.2.3" for i in range(100)], "id"),
        ([f"1.{i}.{i}" for i in range(100)], "id"),
        ([f"{i:03},{i:03}" for i in range(100)], "id"),
        ([f"0{i:02},123" for i in range(100)], "id"),
        ([f"{1 + i % 28:02}.{1 + i % 12:02}.2020" for i in range(100)], "date"),
        ([f"Jan {1 + i % 28}, 2020" for i in range(100)], "date"),
        (["18-25", "26-35", "36,99+"] * 30, "category"),
        (["$5", "€5", "£5"] * 30, "category"),
        (["5%", "0.05"] * 30, "category"),
        (["5'10", "6'2"] * 30, "category"),
        (["a 5", "b 6"] * 30, "category"),
    ],
)
def test_codes_phones_versions_addresses_and_dates_are_no_numbers(cells: list[str], kind: str) -> None:
    assert column(cells).kind == kind


def test_formatted_integers_that_identify_rows_are_an_id() -> None:
    assert column([f"{i * 37 % 9973:,}" for i in range(100)], "customer_id") == Column("customer_id", "id")


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(["${us}", "{us} kr", "CHF {us}", "{de} €", "{de}"]), st.integers(5, 400), st.integers(0, 9))
def test_the_inferred_format_reads_every_cell_as_the_number_it_was(pattern: str, n: int, seed: int) -> None:
    amounts = np.round(np.random.default_rng(seed).lognormal(6, 3, n), 2)
    texts = [pattern.format(us=f"{a:,.2f}", de=f"{a:,.2f}".translate({44: ".", 46: ","})) for a in amounts]
    found = column(texts)
    assert found.kind == "number"
    np.testing.assert_array_equal(numbers(pd.Series(texts), found.form), amounts)


def test_a_saved_model_scores_formatted_cells_as_the_numbers_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    amount, rate = np.round(rng.lognormal(6, 2, 300), 2), np.round(rng.uniform(0, 30, 300), 1)
    churn = np.where(amount / 1000 + rate / 30 + rng.normal(0, 0.5, 300) > 1.2, "left", "stayed")
    plain = pd.DataFrame({"amount": amount, "rate": rate, "churn": churn})
    as_text = plain.assign(
        amount=[f"{a:,.2f} €".translate({44: ".", 46: ","}) for a in amount], rate=[f"{r} %" for r in rate]
    )
    as_text.to_csv(tmp_path / "text.csv", index=False, sep=";")
    quick = Recipe(warmup=30, rounds=0, learning_rate=0.05)
    model = TableClassifier("f1", method="cross-entropy", model="linear", recipe=quick)
    model.fit(read_table(tmp_path / "text.csv"), "churn")
    assert "amount: read as money (€) with decimal comma (1,234 is 1.234)" in model.notes_
    assert "rate: read as percentages (12% is 12) with decimal point (1,234 is 1234)" in model.notes_
    loaded = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.decision_function(as_text[:1]), model.decision_function(plain[:1]))
    np.testing.assert_array_equal(loaded.decision_function(as_text), model.decision_function(plain))
