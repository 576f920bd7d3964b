"""Evaluated mask_mods: what they read by attributes of functions, tensors and classes, and what
runs when they use an object."""

import abc
import builtins
import collections
import dataclasses
import enum
import functools
import types
import warnings

import pytest
import torch

from comparing import DEVICE
from flexing import pairs, torch_pairs
from stof.compat.flex import TraceWarning, create_block_mask
from stof.compat.flex.captured import captured_values
from zoo import on_device

pytestmark = pytest.mark.filterwarnings("ignore::stof.compat.flex.TraceWarning")

factor = 0.5


def set_global(value):
    global factor
    factor = value


def change(owner, name="factor"):
    return lambda value: setattr(owner, name, value)


def of(read):
    """A mask_mod that has no expression."""
    return lambda b, h, q, kv: q * read() >= kv


def of_object(thing):
    return of(lambda: thing.factor), change(thing)


def a_function():
    def mod(b, h, q, kv):
        return q * mod.factor >= kv

    return mod, change(mod)


def a_partial():
    made = functools.partial(lambda b, h, q, kv: q * made.factor >= kv)
    return made, change(made)


class OfPartial(functools.partial):
    pass


def a_derived_partial():
    return of(lambda: made.factor), change(OfPartial)


made = OfPartial(len, "")


class OfTensor(torch.Tensor):
    pass


def a_class_of_tensors():
    tensor = on_device([0.5]).as_subclass(OfTensor)
    return of(lambda: tensor.factor), change(OfTensor)


def a_gradient():
    tensor = on_device([0.5]).requires_grad_()

    def set_to(value):
        tensor.grad = on_device([value])

    return of(lambda: tensor.grad[0]), set_to


def a_gradient_in_place():
    tensor = on_device([0.5]).requires_grad_()
    tensor.grad = on_device([0.5])
    return of(lambda: tensor.grad[0]), tensor.grad.fill_


class Kind(enum.Enum):
    ONE = 1


OfFields = dataclasses.make_dataclass("OfFields", ["number"])


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    pass


class Dunders:
    def __init__(self):
        self.at_start = factor

    def __getitem__(self, index):
        return factor

    def __getattr__(self, name):
        if name == "computed":
            return factor
        raise AttributeError(name)

    def __bool__(self):
        return factor > 0.5

    def __len__(self):
        return int(4 * factor)

    def __enter__(self):
        return factor

    def __exit__(self, *error):
        pass


class Descriptor:
    def __get__(self, owner, kind):
        return factor


class Described:
    factor = Descriptor()


class Calls(type):
    def __call__(cls):
        return factor


class Called(metaclass=Calls):
    pass


thing = Dunders()


def entered():
    with thing as value:
        return value


def a_default_factory():
    numbers = collections.defaultdict(lambda: factor)

    def read():
        numbers.clear()
        return numbers[0]

    return of(read), set_global


def a_name_of_builtins():
    return of(lambda: factor_of_builtins), change(builtins, "factor_of_builtins")  # noqa: F821


def module(text=""):
    made = types.ModuleType("settings_of_a_user")
    exec(text, vars(made))
    return made


def a_function_of_a_module():
    """PEP 562."""
    settings = module("value = 0.5\ndef __getattr__(name): return value")
    return of(lambda: settings.factor), change(settings, "value")


class Settings(types.ModuleType):
    @property
    def factor(self):
        return factor


def a_class_of_a_module():
    settings = Settings("settings_of_a_user")
    return of(lambda: settings.factor), set_global


def by_name(read):
    settings = module()
    return of(lambda: read(settings)), change(settings)


def wrapped():
    def mod(b, h, q, kv):
        return q * 0.5 >= kv

    @functools.wraps(mod)
    def wrapper(*indices):
        return wrapper.__wrapped__(*indices)

    def set_to(value):
        wrapper.__wrapped__ = lambda b, h, q, kv: q * value >= kv

    return wrapper, set_to


SEEN = {
    "function": a_function,
    "partial": a_partial,
    "derived_partial": a_derived_partial,
    "wrapped": wrapped,
    "tensor": lambda: of_object(on_device([1.0])),
    "parameter": lambda: of_object(torch.nn.Parameter(on_device([1.0]))),
    "class_of_tensors": a_class_of_tensors,
    "gradient": a_gradient,
    "gradient_in_place": a_gradient_in_place,
    "member": lambda: of_object(Kind.ONE),
    "enumeration": lambda: (of(lambda: Kind.ONE.shared), change(Kind, "shared")),
    "made_class": lambda: (of(lambda: OfFields(1).factor), change(OfFields)),
    "metaclass": lambda: (of(lambda: OfMeta.factor), change(Meta)),
    "called_class": lambda: (of(lambda: Called()), set_global),
    "item": lambda: (of(lambda: thing[0]), set_global),
    "attribute": lambda: (of(lambda: thing.computed), set_global),
    "truth": lambda: (of(lambda: 1.0 if thing else 0.5), set_global),
    "length": lambda: (of(lambda: len(thing) / 4), set_global),
    "with": lambda: (of(entered), set_global),
    "new_object": lambda: (of(lambda: Dunders().at_start), set_global),
    "descriptor": lambda: (of(lambda: Described.factor), set_global),
    "default_factory": a_default_factory,
    "builtins": a_name_of_builtins,
    "module_function": a_function_of_a_module,
    "module_class": a_class_of_a_module,
    "getattr": lambda: by_name(lambda settings: getattr(settings, "fac" + chr(116) + "or")),
    "dict": lambda: by_name(lambda settings: settings.__dict__["fac" + chr(116) + "or"]),
    "vars": lambda: by_name(lambda settings: vars(settings)["fac" + chr(116) + "or"]),
    "globals": lambda: (of(lambda: entered.__globals__["fac" + chr(116) + "or"]), set_global),
}
ANEW = {"vars", "globals"}


@pytest.mark.parametrize("name", SEEN)
def test_changes_are_seen(name):
    mod, set_to = SEEN[name]()
    set_to(0.5)
    block_mask = create_block_mask(mod, None, None, 20, 20, device=DEVICE)
    for value in (0.5, 1.0, 0.25):
        set_to(value)
        expected = torch_pairs(lambda b, h, q, kv: mod(b, h, q, kv), None, None, 20, 20)
        assert torch.equal(pairs(block_mask), expected)


@pytest.mark.parametrize("name", sorted(SEEN.keys() - ANEW))
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


@dataclasses.dataclass(frozen=True)
class Annotated:
    number: "int | None" = None
    others: list[int] = dataclasses.field(default_factory=list)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def factor(self): ...


class Concrete(Abstract):
    def factor(self):
        return 0.5


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)


class Named(collections.namedtuple("Named", "first second")):
    pass


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    "held",
    [Annotated(), Concrete(), Network(), Named(1, 2), Level.LOW, Kind, thing, on_device([1.0])],
    ids=lambda held: type(held).__name__,
)
def test_what_is_known_to_stay(held):
    mod = lambda b, h, q, kv: (q * 0.5 >= kv) | (held is None)  # noqa: E731
    assert captured_values(mod) == captured_values(mod)


def test_names_of_libraries_that_are_computed():
    """They may be of what has state."""
    name = "get_num_threads"
    mod = lambda b, h, q, kv: q * 0.5 >= kv + getattr(torch, name)()  # noqa: E731
    assert captured_values(mod) != captured_values(mod)
