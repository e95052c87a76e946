# SPDX-License-Identifier: Apache-2.0
"""What a module changes is returned: buffers are inputs and outputs, inputs are outputs."""

import numpy as np
from compiling import compiled, torch

from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.model.decoding.in_place import GIVEN_AWAY


class Counter(torch.nn.Module):
    """Adds how often it was called."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


class Doubling(torch.nn.Module):
    """Changes its input."""

    def forward(self, x):
        x.mul_(2)
        return x.sum()


class Cache(torch.nn.Module):
    """Writes a row of keys and returns a product with all of them, as a decoder does."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(16, 8))

    def forward(self, x, position):
        self.keys.index_copy_(0, position, self.inner(x))
        return x @ self.keys.T


def both(module, *inputs):
    """The import, and what gives the outputs of the compiled one, which are the reference's."""
    imported = import_model((module.eval(), inputs))
    run = compiled(imported)

    def outputs(*arrays):
        found, expected = run(list(arrays)), imported.reference.run(list(arrays))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        return found

    return imported, outputs


def test_a_buffer_becomes_an_input_and_an_output():
    imported, result = both(Counter(), torch.zeros(4))
    assert any("'count'" in note for note in imported.notes)
    for count in (0, 7):
        found, after = result(np.ones(4, "float32"), np.array([count], "float32"))
        np.testing.assert_array_equal(found, np.full(4, 2 + count))
        np.testing.assert_array_equal(after, [count + 1])


def test_a_changed_input_is_an_output():
    _, result = both(Doubling(), torch.ones(4))
    given = np.array([1, 2, 3, 4], "float32")
    total, after = result(given)
    assert total == 20
    np.testing.assert_array_equal(after, [2, 4, 6, 8])
    np.testing.assert_array_equal(given, [1, 2, 3, 4])


def test_a_cache_is_handed_on_from_call_to_call():
    module = Cache()
    _, result = both(module, torch.zeros(1, 8), torch.tensor([3]))
    keys = np.zeros((16, 8), "float32")
    for position in (0, 1, 15):
        x = np.random.default_rng(position).standard_normal((1, 8)).astype("float32")
        place = np.array([position], "int64")
        found, keys = result(x, place, keys)
        with torch.no_grad():
            expected = module(torch.from_numpy(x), torch.from_numpy(place))
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(keys, module.keys.numpy(), rtol=1e-4, atol=1e-6)


class Referred(torch.nn.Module):
    """Writes its buffers through other references, as the cache of transformers does."""

    def __init__(self):
        super().__init__()
        self.rows = [torch.zeros(3, 4), torch.zeros(3, 4)]
        for number, row in enumerate(self.rows):
            self.register_buffer(f"row_{number}", row)

    def forward(self, x):
        self.rows[1].add_(x)
        self.rows[0].mul_(x)
        return self.rows[0].sum() + self.rows[1].sum()


def test_a_buffer_that_is_written_through_another_reference():
    """States are in the order of the buffers, whichever was written first."""
    imported, result = both(Referred(), torch.ones(3, 4))
    assert [spec.name for spec in imported.inputs][1:] == ["b_row_0", "b_row_1"]
    first, second = np.full((3, 4), 2, "float32"), np.full((3, 4), 5, "float32")
    total, *after = result(np.full((3, 4), 3, "float32"), first, second)
    assert total == 12 * (6 + 8)
    np.testing.assert_array_equal(after[0], np.full((3, 4), 6))
    np.testing.assert_array_equal(after[1], np.full((3, 4), 8))


class Namesakes(torch.nn.Module):
    """Changes a buffer and an input of one name."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, cache):
        self.cache.add_(1)
        cache.mul_(3)
        return self.cache + cache


def test_a_buffer_and_an_input_of_one_name():
    imported, result = both(Namesakes(), torch.ones(4))
    given, held = np.full(4, 2, "float32"), np.full(4, 5, "float32")
    total, of_buffer, of_input = result(given, held)
    np.testing.assert_array_equal(total, np.full(4, 12))
    np.testing.assert_array_equal(of_buffer, np.full(4, 6))
    np.testing.assert_array_equal(of_input, np.full(4, 6))
    assert list(imported.mod["main"].attrs[GIVEN_AWAY]) == ["b_cache", "cache"]
