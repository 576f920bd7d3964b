"""Evaluated mask_mods: everything that a function reads may change between calls."""

import collections
import contextvars
import ctypes
import dataclasses
import functools
import os
import types
import warnings
import weakref

import numpy
import pytest
import torch

from comparing import DEVICE
from flexing import pairs, torch_pairs
from stof.compat.flex import TraceWarning, and_masks, create_block_mask
from stof.compat.flex.captured import captured_values
from zoo import Case, causal_mod, on_device

pytestmark = pytest.mark.filterwarnings("ignore::stof.compat.flex.TraceWarning")

config = types.SimpleNamespace(factor=0.5, nested=types.SimpleNamespace(factor=0.5))
table_of_numbers = {"factor": 0.5}
module = types.ModuleType("settings_of_a_user")


class Scaled:
    shared = 0.5

    def __init__(self):
        self.factor = 0.5

    def __call__(self, b, h, q, kv):
        return q * self.factor >= kv

    def method(self, b, h, q, kv):
        return q * self.factor >= kv

    def by_class(self, b, h, q, kv):
        return q * self.shared >= kv

    def by_property(self, b, h, q, kv):
        return q * self.doubled >= kv

    @property
    def doubled(self):
        return 2 * self.factor


class Slotted:
    __slots__ = ("factor",)


@dataclasses.dataclass
class Comparable:
    """Equal to others and without a hash."""

    factor: float = 0.5

    def __call__(self, b, h, q, kv):
        return q * self.factor >= kv


def by_global(b, h, q, kv):
    return q * config.factor >= kv


def by_nested(b, h, q, kv):
    return q * config.nested.factor >= kv


def by_dict(b, h, q, kv):
    return q * table_of_numbers["factor"] >= kv


def by_module(b, h, q, kv):
    return q * module.factor >= kv


def by_module_of_a_helper(b, h, q, kv):
    return module.helper(q) >= kv


def helper(q):
    return q * module.factor


module.helper = helper


def by_inner(b, h, q, kv):
    return all_of(lambda: q * config.factor >= kv)


def all_of(function):
    return function()


def by_default(b, h, q, kv, factor=0.5):
    return q * factor >= kv


def by_keyword(b, h, q, kv, *, factor=0.5):
    return q * factor >= kv


def change(owner, name="factor"):
    def set_to(value):
        setattr(owner, name, value)

    return set_to


def attribute_of_a_callable():
    scaled = Scaled()
    return scaled, change(scaled)


def attribute_of_a_dataclass():
    scaled = Comparable()
    return scaled, change(scaled)


def attribute_of_a_bound_method():
    scaled = Scaled()
    return scaled.method, change(scaled)


def attribute_of_a_class():
    return Scaled().by_class, change(Scaled, "shared")


def what_a_property_reads():
    scaled = Scaled()
    return scaled.by_property, change(scaled)


def attribute_of_a_slot():
    slotted = Slotted()
    return lambda b, h, q, kv: q * slotted.factor >= kv, change(slotted)


def attribute_of_a_module_of_torch():
    network = torch.nn.Linear(2, 2)
    network.factor = 0.5
    return lambda b, h, q, kv: q * network.factor >= kv, change(network)


def inside_and_masks():
    scaled = Scaled()
    return and_masks(causal_mod, scaled), change(scaled)


def inside_a_partial():
    scaled = Scaled()
    return functools.partial(by_object, scaled), change(scaled)


def by_object(scaled, b, h, q, kv):
    return q * scaled.factor >= kv


def element_of_a_list():
    numbers = [0.5]

    def set_to(value):
        numbers[0] = value

    return lambda b, h, q, kv: q * numbers[0] >= kv, set_to


def element_of_an_array():
    numbers = numpy.array([0.5])

    def set_to(value):
        numbers[0] = value

    return lambda b, h, q, kv: q * float(numbers[0]) >= kv, set_to


def item_of_a_dict():
    return by_dict, lambda value: table_of_numbers.update(factor=value)


def a_default():
    return by_default, lambda value: setattr(by_default, "__defaults__", (value,))


def a_default_of_a_keyword():
    return by_keyword, lambda value: by_keyword.__kwdefaults__.update(factor=value)


def by_environment(b, h, q, kv):
    return q * float(os.environ["STOF_TEST_FACTOR"]) >= kv


def by_imported_environment(b, h, q, kv):
    import os as system

    return q * float(system.getenv("STOF_TEST_FACTOR")) >= kv


def by_default_dtype(b, h, q, kv):
    return q * (0.25 if torch.get_default_dtype() == torch.float64 else 1.0) >= kv


def by_constant(b, h, q, kv):
    """1/3 in float32 is more than in float64."""
    return torch.tensor(1.0 / 3.0).double() * 3 * (q + 1) > kv + 1


def set_environment(value):
    os.environ["STOF_TEST_FACTOR"] = str(value)


def set_dtype(value):
    torch.set_default_dtype(torch.float64 if value == 0.25 else torch.float32)


class Numbers(collections.deque):
    """Has attributes as well as what deque keeps out of sight."""


context = contextvars.ContextVar("context")


def _of_deque(kind):
    numbers = kind([0.5])
    return lambda b, h, q, kv: q * numbers[0] >= kv, lambda x: numbers.__setitem__(0, x)


def _of_ctypes():
    number = ctypes.c_float(0.5)
    return lambda b, h, q, kv: q * number.value >= kv, change(number, "value")


def _of_a_reference():
    numbers = Scaled()
    reference = weakref.ref(numbers)
    return lambda b, h, q, kv: q * reference().factor >= kv, change(numbers)


def _of_a_captured_function(get):
    return lambda b, h, q, kv: q * float(get("STOF_TEST_FACTOR")) >= kv, set_environment


OUT_OF_SIGHT = {
    "deque": lambda: _of_deque(collections.deque),
    "derived": lambda: _of_deque(Numbers),
    "ctypes": _of_ctypes,
    "weakref": _of_a_reference,
    "context": lambda: (lambda b, h, q, kv: q * context.get() >= kv, context.set),
    "environment": lambda: (by_environment, set_environment),
    "imported": lambda: (by_imported_environment, set_environment),
    "getenv": lambda: _of_a_captured_function(os.getenv),
    "method": lambda: _of_a_captured_function(os.environ.get),
    "dtype": lambda: (by_default_dtype, set_dtype),
    "constant": lambda: (by_constant, set_dtype),
}


@pytest.fixture
def same_defaults(monkeypatch):
    monkeypatch.setenv("STOF_TEST_FACTOR", "0.5")
    yield
    torch.set_default_dtype(torch.float32)


SEEN = {
    "global": lambda: (by_global, change(config)),
    "nested": lambda: (by_nested, change(config.nested)),
    "module": lambda: (by_module, change(module)),
    "helper_in_a_module": lambda: (by_module_of_a_helper, change(module)),
    "inner_function": lambda: (by_inner, change(config)),
}
for _make in (
    attribute_of_a_callable,
    attribute_of_a_dataclass,
    attribute_of_a_bound_method,
    attribute_of_a_class,
    what_a_property_reads,
    attribute_of_a_slot,
    attribute_of_a_module_of_torch,
    inside_and_masks,
    inside_a_partial,
    element_of_a_list,
    element_of_an_array,
    item_of_a_dict,
    a_default,
    a_default_of_a_keyword,
):
    SEEN[_make.__name__] = _make


@pytest.mark.parametrize("name", [*SEEN, *OUT_OF_SIGHT])
def test_changes_are_seen(name, same_defaults):
    mod, set_to = (SEEN.get(name) or OUT_OF_SIGHT[name])()
    set_to(0.5)
    block_mask = create_block_mask(mod, None, None, 20, 20, device=DEVICE)
    for factor in (0.5, 1.0, 0.25):
        set_to(factor)
        # torch's create_mask takes a bound method's self for an argument.
        expected = torch_pairs(lambda b, h, q, kv: mod(b, h, q, kv), None, None, 20, 20)
        assert torch.equal(pairs(block_mask), expected)


@pytest.mark.parametrize("name", SEEN)
def test_evaluated_once_while_nothing_changes(name):
    mod, set_to = SEEN[name]()
    set_to(0.5)
    block_mask = create_block_mask(mod, None, None, 20, 20, device=DEVICE)
    pairs(block_mask)
    first = block_mask.resolver.current
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceWarning)
        pairs(block_mask)
    assert block_mask.resolver.current is first


class Listed(list):
    pass


def by_functions(b, h, q, kv):
    wide = torch.nn.functional.relu(q.to(torch.float32)) * numpy.sin(1.0)
    return (wide >= kv) | torch.is_tensor(q) & (kv == len(Listed([1, 2])))


@pytest.mark.parametrize(
    "held",
    [
        {"a": [1], "b": {2}}, Listed([1]), collections.OrderedDict(a=1), torch.Size([2]), object(),
        collections.defaultdict(list, a=[1]), torch.finfo(torch.float32), numpy.dtype("int32"),
        collections.namedtuple("Pair", "first second")(1, [2]), torch.nn.Linear(2, 2), numpy.sin,
        torch.sin, torch.Tensor.sum, "ab".join, types.SimpleNamespace(a=1), by_functions, torch, len,
    ],
    ids=lambda held: type(held).__name__,
)  # fmt: skip
def test_what_is_known_to_stay(held):
    mod = lambda b, h, q, kv: (q * 0.5 >= kv) | (held is None)  # noqa: E731
    assert captured_values(mod) == captured_values(mod)


def test_objects_that_hold_each_other():
    one, other = Scaled(), Scaled()
    one.other, other.other = other, one
    case = Case(lambda b, h, q, kv: q * one.other.factor >= kv, None, None, 20, 20)
    block_mask = create_block_mask(*case, device=DEVICE)
    for factor in (0.5, 1.0):
        other.factor = factor
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_tensors_of_objects_change():
    scaled = Scaled()
    scaled.factor = on_device(0.5)
    case = Case(scaled, None, None, 20, 20)
    block_mask = create_block_mask(*case, device=DEVICE)
    for factor in (0.5, 1.0):
        scaled.factor.fill_(factor)
        assert torch.equal(pairs(block_mask), torch_pairs(*case))
    scaled.factor = on_device(0.25)
    assert torch.equal(pairs(block_mask), torch_pairs(*case))
