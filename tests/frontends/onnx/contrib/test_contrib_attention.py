# SPDX-License-Identifier: Apache-2.0
"""The attentions of ONNX Runtime's own domain give what ONNX Runtime does."""

import numpy as np
import pytest
from test_contrib_operators import GENERATOR, assert_same_of, contrib, normal

BATCH, ROWS, HEADS, WIDTH = 2, 6, 3, 8
ALL = HEADS * WIDTH
PAST = 4


def mask_of(kind, past=0):
    """A mask that hides the end of the second sequence."""
    columns = ROWS + past
    seen = np.ones((BATCH, columns), "int32")
    seen[1, -2:] = 0
    return {
        "raw": seen,
        "rows": np.repeat(seen[:, None], ROWS, 1),
        "lengths": seen.sum(1).astype("int32"),
        "bounds": np.concatenate([seen.sum(1), [0, 1]]).astype("int32"),
    }[kind]


@pytest.mark.parametrize("mask", [None, "raw", "rows", "lengths", "bounds"])
@pytest.mark.parametrize(
    "attributes", [{}, {"unidirectional": 1}, {"scale": 0.2, "mask_filter_value": -50.0}]
)
def test_attention(mask, attributes):
    fed, names = {"x": normal(BATCH, ROWS, 20)}, "x w b"
    if mask:
        fed["m"] = mask_of(mask)
        names += " m"
    made = contrib("Attention", names, num_heads=HEADS, **attributes)
    assert_same_of([made], fed, w=normal(20, 3 * ALL), b=normal(3 * ALL))


@pytest.mark.parametrize("mask", [None, "raw"])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_with_a_past(mask, unidirectional):
    fed = {"x": normal(BATCH, ROWS, 20), "p": normal(2, BATCH, HEADS, PAST, WIDTH)}
    names = "x w b  p"
    if mask:
        fed["m"] = mask_of(mask, PAST)
        names = "x w b m p"
    made = contrib("Attention", names, "y q", num_heads=HEADS, unidirectional=unidirectional)
    assert_same_of([made], fed, "y q", w=normal(20, 3 * ALL), b=normal(3 * ALL))


def test_attention_with_wider_values_and_a_bias():
    fed = {"x": normal(BATCH, ROWS, 20), "a": normal(1, HEADS, ROWS, ROWS)}
    made = contrib("Attention", "x w b   a", num_heads=HEADS, qkv_hidden_sizes=[ALL, ALL, 2 * ALL])
    assert_same_of([made], fed, w=normal(20, 4 * ALL), b=normal(4 * ALL))


def test_attention_in_bytes():
    fed = {"x": GENERATOR.integers(0, 256, (BATCH, ROWS, 20)).astype("uint8")}
    weight = GENERATOR.integers(-128, 128, (20, 3 * ALL)).astype("int8")
    constants = {"sx": np.float32(0.01), "zx": np.uint8(120), "sw": np.float32(0.002)}
    constants |= {"zw": np.int8(0), "m": mask_of("lengths")}
    made = contrib("QAttention", "x w b sx sw m zx zw", num_heads=HEADS)
    assert_same_of([made], fed, w=weight, b=normal(3 * ALL), **constants)


COLUMNS = 5
THREE = {
    "q": normal(BATCH, ROWS, ALL),
    "k": normal(BATCH, COLUMNS, ALL),
    "v": normal(BATCH, COLUMNS, ALL),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3}])
def test_multi_head_attention(bias, attributes):
    made = contrib(
        "MultiHeadAttention", "q k v b" if bias else "q k v", num_heads=HEADS, **attributes
    )
    assert_same_of([made], THREE, **({"b": normal(3 * ALL)} if bias else {}))


@pytest.mark.parametrize("kind", ["raw", "lengths", "packed"])
def test_multi_head_attention_of_padded_keys(kind):
    seen = np.ones((BATCH, COLUMNS), "int32")
    seen[1, 3:] = 0
    lengths = seen.sum(1).astype("int32")
    starts = [0, ROWS, 2 * ROWS, 0, COLUMNS, 2 * COLUMNS]
    packed = np.concatenate([lengths, starts]).astype("int32")
    mask = {"raw": seen, "lengths": lengths, "packed": packed}[kind]
    made = contrib("MultiHeadAttention", "q k v  m", num_heads=HEADS)
    assert_same_of([made], {**THREE, "m": mask})


def test_multi_head_attention_with_a_past_and_a_bias_of_scores():
    fed = {name: normal(BATCH, ROWS, ALL) for name in "qkv"}
    fed |= {name: normal(BATCH, HEADS, PAST, WIDTH) for name in ("pk", "pv")}
    fed["a"] = normal(1, HEADS, ROWS, PAST + ROWS)
    made = contrib(
        "MultiHeadAttention", "q k v   a pk pv", "y nk nv", num_heads=HEADS, unidirectional=1
    )
    assert_same_of([made], fed, "y nk nv")


@pytest.mark.parametrize("columns", [4, 6, 9])
def test_the_last_row_sees_all_columns(columns):
    """Also where there are more keys than queries, or fewer."""
    fed = {"q": normal(1, 6, ALL), "k": normal(1, columns, ALL), "v": normal(1, columns, ALL)}
    made = contrib("MultiHeadAttention", "q k v", num_heads=HEADS, unidirectional=1)
    assert_same_of([made], fed)


def test_rows_that_see_masked_columns_alone():
    """Both masks have the least number, of which two would be infinite."""
    least = float(np.finfo(np.float32).min)
    fed = {"x": normal(1, 4, 8), "m": np.array([[0, 0, 1, 1]], "int32")}
    made = contrib("Attention", "x w b m", num_heads=1, unidirectional=1, mask_filter_value=least)
    assert_same_of([made], fed, w=normal(8, 24), b=normal(24))


@pytest.mark.parametrize("is_interleaved", [0, 1])
@pytest.mark.parametrize("partial", [0, 4])
@pytest.mark.parametrize("ids", ["offset", "each"])
def test_rotary_embedding(is_interleaved, partial, ids):
    half = (partial or WIDTH) // 2
    angles = normal(32, half)
    made = contrib(
        "RotaryEmbedding",
        "x p c s",
        interleaved=is_interleaved,
        num_heads=HEADS,
        rotary_embedding_dim=partial,
    )
    places = np.array([3]) if ids == "offset" else GENERATOR.integers(0, 32, (BATCH, ROWS))
    fed = {"x": normal(BATCH, ROWS, ALL), "p": places.astype("int64")}
    assert_same_of([made], fed, c=np.cos(angles), s=np.sin(angles))


def test_rotary_embedding_of_one_row_at_an_offset():
    """What each step of a decoder computes."""
    angles = normal(32, WIDTH // 2)
    made = contrib("RotaryEmbedding", "x p c s", num_heads=HEADS)
    fed = {"x": normal(1, 1, ALL), "p": np.array([3])}
    assert_same_of([made], fed, c=np.cos(angles), s=np.sin(angles))


GROUPS, QUERIES, DEPTH = 2, 4, 16


def grouped(rows, past, total, lengths, batch=1, positions=None, **attributes):
    """Run a GroupQueryAttention of 4 heads of queries and 2 of keys."""
    fed = {
        "q": normal(batch, rows, QUERIES * DEPTH),
        "k": normal(batch, rows, GROUPS * DEPTH),
        "v": normal(batch, rows, GROUPS * DEPTH),
        "l": np.asarray(lengths, "int32"),
    }
    if past:
        fed |= {name: normal(batch, GROUPS, past, DEPTH) for name in ("pk", "pv")}
    if positions is not None:
        fed["p"] = np.array(positions)
    angles = normal(64, DEPTH // 2)
    made = contrib(
        "GroupQueryAttention",
        ("q k v pk pv l t c s" if past else "q k v   l t c s") + " p" * ("p" in fed),
        "y nk nv",
        num_heads=QUERIES,
        kv_num_heads=GROUPS,
        **attributes,
    )
    constants = {"t": np.array([total], "int32"), "c": np.cos(angles), "s": np.sin(angles)}
    assert_same_of([made], fed, "y nk nv", **constants)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"local_window_size": 4}],
)
@pytest.mark.parametrize("rows, past", [(1, 9), (6, 0), (3, 7)])
def test_grouped_attention(rows, past, attributes):
    total = rows + past
    grouped(rows, past, total, [total - 1], **attributes)


@pytest.mark.parametrize(
    ("rows", "past", "positions"),
    [
        (1, 9, [[30], [4]]),
        (4, 0, [[3, 4, 5, 6], [0, 1, 2, 3]]),
        (4, 0, [[5, 1, 7, 0], [2, 2, 9, 1]]),
    ],
)
def test_grouped_attention_at_positions_that_are_given(rows, past, positions):
    """Those of a prompt count on from the first one, whatever the others are."""
    total = rows + past
    grouped(rows, past, total, [total - 1] * 2, 2, positions, do_rotary=1)


def test_grouped_attention_with_a_cap_and_a_scale():
    grouped(1, 9, 10, [9], softcap=5.0, scale=0.2)


def test_grouped_attention_of_sequences_of_several_lengths():
    grouped(1, 9, 10, [9, 5, 7], batch=3, do_rotary=1)


@pytest.mark.parametrize("rows", [1, 3])
def test_grouped_attention_in_a_cache_that_is_not_full(rows):
    """The cache has room for the new rows; behind them lies nothing."""
    grouped(rows, 12, 8, [7], do_rotary=1)


def test_grouped_attention_takes_the_length_as_it_is_given():
    """One sequence whose cache grows, and is not full."""
    grouped(1, 9, 10, [4], do_rotary=1)


def test_grouped_attention_of_packed_heads():
    width = (QUERIES + 2 * GROUPS) * DEPTH
    fed = {"q": normal(1, 5, width), "l": np.array([4], "int32")}
    made = contrib(
        "GroupQueryAttention",
        "q     l t",
        "y nk nv",
        num_heads=QUERIES,
        kv_num_heads=GROUPS,
    )
    assert_same_of([made], fed, "y nk nv", t=np.array([5], "int32"))
