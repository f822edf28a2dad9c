"""Find ACP's name for a model that the CLI lists, and the options that make it the variant that is wanted.

The CLI has `grok-4.6-high-fast`. ACP has the model `grok-4.6` with options (`effort`, `fast`, …), or, in older agents,
one variant of each model: `grok-4.6[effort=high,fast=true]`. Auto is `default`, `default[]` or `auto-smart[…]`.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cursor_gateway.sources.cursor.failures import nearest_names
from cursor_gateway.wire.payload import Fields

_THINKING_LEVEL = frozenset({"effort", "reasoning", "reasoning_effort"})  # its names differ between models
_AUTO = re.compile(r"auto|default|auto-smart")
_AUTO_ID = re.compile(r"(?:auto|default)(?:-.*)?")


class Option(Struct, frozen=True):
    id: str
    values: Mapping[str, str]  # value -> name
    current: str = ""

    @property
    def is_switch(self) -> bool:
        return self.values.keys() <= {"true", "false"}


class Choice(Struct):
    """What a session offers, and what is chosen in it."""

    model: str = ""
    names: Mapping[str, str] = {}  # of the models, by id
    options: Mapping[str, Option] = {}  # of the chosen model

    def learn(self, answer: Fields) -> None:
        """Reads `models` and `configOptions` of an answer."""
        models = answer.object("models")
        names = {model.text("modelId"): model.text("name") for model in models.objects("availableModels")}
        found = {option.id: option for option in map(_option, answer.objects("configOptions"))}
        model = found.pop("model", Option("", {}))
        self.model = model.current or models.text("currentModelId") or self.model
        self.names = {**names, **model.values} or self.names
        if "configOptions" in answer.all:
            self.options = {id: option for id, option in found.items() if id != "mode"}

    @property
    def label(self) -> str:
        return self.names.get(self.model, "")


def _option(option: Fields) -> Option:
    choices = [one for group in option.objects("options") for one in (group.objects("options") or [group])]
    values = {one.text("value"): one.text("name") for one in choices}
    return Option(option.text("id"), values, option.text("currentValue"))


def candidates(wanted: str, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The models that this may be, each with the rest of the name, which its options must match; best first."""
    base, _, parameters = wanted.partition("[")
    rest = f"[{parameters}"
    if wanted in names:
        return [(wanted, rest)]
    if _AUTO.fullmatch(base) and (auto := [id for id, name in names.items() if _is_auto(id, name)]):
        return [(id, rest) for id in sorted(auto, key=lambda auto_id: names[auto_id].casefold() != "auto")]
    found = [(id, base[len(_base(id)) + 1 :]) for id in names if f"{base}-".startswith(f"{_base(id)}-")]
    return [(id, words + rest) for id, words in sorted(found, key=lambda one: -len(_base(one[0])))]


def _is_auto(id: str, name: str) -> bool:
    return name.casefold() == "auto" or _AUTO_ID.fullmatch(_base(id)) is not None


def settings_for(id: str, rest: str, options: Mapping[str, Option]) -> dict[str, str] | None:
    """The values of the options that make a model the wanted variant; None if that cannot be had.

    A name without further words is the model's default variant; but the fast variant, which costs more, must be asked
    for.
    """
    options = {**options, **fixed_options(id)}
    words, _, parameters = rest.partition("[")
    is_auto = _AUTO_ID.fullmatch(_base(id)) is not None
    chosen: dict[str, str] = {}
    for name, _, value in (pair.strip().partition("=") for pair in parameters.removesuffix("]").split(",") if pair):
        option = _named(name, options)
        if option is None or value not in option.values:
            return None
        chosen[option.id] = value
    if words:
        spelled = _spelled(words, [option for option in options.values() if option.id not in chosen])
        if spelled is None:
            return None
        chosen |= spelled
    for option in options.values():
        if option.id in chosen or not option.is_switch or not (words or option.id == "fast") or is_auto:
            continue
        if "false" not in option.values:
            return None
        chosen[option.id] = "false"
    return chosen


def fixed_options(id: str) -> dict[str, Option]:
    """The parameters in a name such as `grok-4.6[effort=high,fast=true]`, which cannot be changed."""
    pairs = [pair.partition("=") for pair in id.partition("[")[2].removesuffix("]").split(",") if pair]
    return {name: Option(name, {value: value}, value) for name, _, value in pairs}


def nearest_variants(wanted: str, choice: Choice) -> list[str]:
    """Suggestions for a name that cannot be had."""
    known: dict[str, Sequence[str]] = {}
    for id, name in choice.names.items():
        options = choice.options if id == choice.model else {}
        variants = ["auto"] if _is_auto(id, name) else _variants(id, {**options, **fixed_options(id)})
        known |= dict.fromkeys(variants, (name,))
    return nearest_names(wanted, known)


def _variants(id: str, options: Mapping[str, Option]) -> list[str]:
    base, fast = _base(id), options.get("fast")
    if fast is not None and "false" not in fast.values:
        return [f"{base}-fast"]
    return [base, *(f"{base}-{word}" for option in options.values() for word, _ in _spellings(option))]


def _base(id: str) -> str:
    return id.partition("[")[0]


def _named(name: str, options: Mapping[str, Option]) -> Option | None:
    same = _THINKING_LEVEL if name in _THINKING_LEVEL else {name}
    return next((option for option in options.values() if option.id in same), None)


def _spelled(words: str, options: list[Option]) -> dict[str, str] | None:
    """`high-fast` is effort=high, fast=true: every word must belong to a different option."""
    if not words:
        return {}
    for option in options:
        for word, value in _spellings(option):
            if f"{words}-".startswith(f"{word}-"):
                others = [other for other in options if other is not option]
                if (more := _spelled(words[len(word) + 1 :], others)) is not None:
                    return {option.id: value, **more}
    return None


def _spellings(option: Option) -> list[tuple[str, str]]:
    if option.is_switch:
        return [(option.id, "true")] if "true" in option.values else []
    return [(value, value) for value in option.values]
