"""Defaults < file < environment < flags; what is unknown or wrong is refused, with what to do; secrets stay secret."""

import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from cursor_gateway.cluster.members import Timing
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import hash_key, new_key
from cursor_gateway.model.costs import Price
from cursor_gateway.settings import (
    _ADVANCED,
    Loaded,
    Settings,
    check_budgets,
    check_exposed,
    check_schedules,
    every_setting,
    is_loopback,
    load,
    subset,
)
from cursor_gateway.sources.acp.pool import PoolOptions

HASH = hash_key("cgw_one")
OTHER = hash_key("cgw_two")
BY_NAME = {setting.name: setting for setting in every_setting()}


def from_file(**values: object) -> Loaded:
    return load(values, {}, {}, path="/etc/gateway.toml")


def from_environment(**values: str) -> Loaded:
    return load({}, {f"CURSOR_GATEWAY_{name.upper()}": value for name, value in values.items()}, {})


def from_flags(**values: object) -> Loaded:
    return load({}, {}, values)


def refused(name: str, loading: Any, **values: object) -> str:
    with pytest.raises(SettingsError) as caught:
        loading(**values)
    assert caught.value.param == name
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


# --- which one wins ---------------------------------------------------------------------------------


def test_without_anything_all_are_defaults() -> None:
    loaded = load({}, {"PATH": "/bin", "CURSOR_API_KEY": "x", "GATEWAY_PORT": "1"}, {})
    assert loaded.settings == Settings()
    assert loaded.origins == dict.fromkeys(BY_NAME, "default")


def test_the_later_one_wins_and_says_where_it_came_from() -> None:
    file: dict[str, object] = {"port": 1, "model": "file", "max_runs": 3}
    environ = {"CURSOR_GATEWAY_PORT": "2", "CURSOR_GATEWAY_MODEL": "environment"}
    loaded = load(file, environ, {"port": 3, "host": None, "allowed_hosts": ()}, path="/x.toml")
    assert (loaded.settings.port, loaded.settings.model, loaded.settings.max_runs) == (3, "environment", 3)
    result = {name: origin for name, origin in loaded.origins.items() if origin != "default"}
    assert result == {"port": "--port", "model": "CURSOR_GATEWAY_MODEL", "max_runs": "file /x.toml"}


def test_a_flag_is_spelt_with_hyphens() -> None:
    assert from_flags(max_runs="4").origins["max_runs"] == "--max-runs"


def test_reserved_names_are_no_settings() -> None:
    environ = {"CURSOR_GATEWAY_CONFIG": "/x.toml", "CURSOR_GATEWAY_LIVE": "1", "CURSOR_GATEWAY_AGENT": "0.1"}
    assert load({}, environ, {}).settings == Settings()


# --- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "True", " ON "])
def test_words_for_true(word: str) -> None:
    assert from_environment(force=word).settings.force is True


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "FALSE"])
def test_words_for_false(word: str) -> None:
    assert from_environment(trust=word).settings.trust is False


def test_text_is_read_by_the_type_of_its_setting() -> None:
    settings = from_environment(
        port=" 9000 ",
        idle_seconds="1.5",
        mode="plan",
        workspace="",
        url=" as it is ",
        allowed_hosts="a.example, b.example,,",
        allowed_origins="",
        agent_headers="x-one=1, x-two=a=b",
    ).settings
    assert (settings.port, settings.idle_seconds, settings.mode) == (9000, 1.5, "plan")
    assert (settings.workspace, settings.url) == ("", " as it is ")
    assert settings.allowed_hosts == ["a.example", "b.example"]
    assert settings.allowed_origins == []
    assert settings.agent_headers == {"x-one": "1", "x-two": "a=b"}


def test_the_file_has_types_of_its_own() -> None:
    settings = from_file(
        port=0, idle_seconds=5, force=True, allowed_hosts=["a", "b"], agent_headers={"x": "a,b=c"}
    ).settings
    assert (settings.port, settings.idle_seconds, settings.force) == (0, 5.0, True)
    assert (settings.allowed_hosts, settings.agent_headers) == (["a", "b"], {"x": "a,b=c"})


def test_flags_are_text_values_or_repeated() -> None:
    settings = from_flags(
        port=1, max_runs="2", force=True, allowed_hosts=("a", "b,c"), agent_headers=("x=1", "y=2,3"), model="m"
    ).settings
    assert (settings.port, settings.max_runs, settings.force, settings.model) == (1, 2, True, "m")
    assert settings.allowed_hosts == ["a", "b,c"]
    assert settings.agent_headers == {"x": "1", "y": "2,3"}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_default_can_be_written_into_the_file_and_back(name: str) -> None:
    default = msgspec.json.decode(msgspec.json.encode(BY_NAME[name].default))
    assert getattr(from_file(**{name: default}).settings, name) == BY_NAME[name].default


# --- what is unknown --------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "nearest"), [("prot", "port"), ("api_kyes", "api_keys"), ("max_run", "max_runs")])
def test_an_unknown_name_is_refused_with_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=rf"unknown setting '{wrong}' \(file /etc/gateway.toml\).* `{nearest}`"):
        from_file(**{wrong: "secret"})
    with pytest.raises(SettingsError, match=rf"'CURSOR_GATEWAY_{wrong.upper()}'.* `CURSOR_GATEWAY_{nearest.upper()}`"):
        from_environment(**{wrong: "secret"})
    with pytest.raises(SettingsError, match=rf"'{wrong}' \(flags\).* `{nearest}`") as caught:
        from_flags(**{wrong: "secret"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["CURSOR_GATEWAY_", "CURSOR_GATEWAY_ö\n", "CURSOR_GATEWAY_port"])
def test_a_strange_name_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(SettingsError, match=r"^unknown setting .*$") as caught:
        load({}, {name: "1"}, {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["SERVICE_HOST", "SERVICE_PORT", "PORT_8787_TCP_ADDR"])
def test_what_kubernetes_sets_for_a_service_is_explained(name: str) -> None:
    with pytest.raises(SettingsError, match="enableServiceLinks: false"):
        from_environment(**{name: "10.0.0.1"})


def test_the_port_that_kubernetes_sets_is_explained() -> None:
    assert "enableServiceLinks: false" in refused("port", from_environment, port="tcp://10.0.0.1:8787")


# --- what is wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("port", "eighty", "a whole number, at least 0 and at most 65535"),
        ("port", "", "a whole number"),
        ("port", "65536", "a whole number"),
        ("max_runs", "0", "a whole number, at least 1;"),
        ("idle_seconds", "0", "a number, above 0 and at most 2592000"),
        ("idle_seconds", "nan", "a number"),
        ("replay_speed", "inf", "a number, at least 0"),
        ("force", "perhaps", "true or false"),
        ("mode", "agnet", "one of `agent`, `ask`, `debug`, `plan`"),
        ("host", "", "a non-empty string"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(name: str, value: str, takes: str) -> None:
    result = refused(name, from_environment, **{name: value})
    assert f"`{name}` (CURSOR_GATEWAY_{name.upper()}) is {value!r}, but takes {takes}" in result
    assert "correct it, or remove it to use " in result
    assert f"({BY_NAME[name].flag}) is {value!r}" in refused(name, from_flags, **{name: value})


def test_a_type_of_the_file_is_not_guessed() -> None:
    for name, value, takes in (
        ("port", "8787", "a whole number, at least 0 and at most 65535, without quotes"),
        ("force", "true", "true or false, without quotes"),
        ("port", True, "a whole number"),
        ("port", 1.5, "a whole number"),
        ("host", 1, "a non-empty string"),
        ("url", [], "a string"),
        ("allowed_hosts", "a,b", "a list of strings"),
        ("allowed_hosts", [1], "a list of strings"),
    ):
        assert f"(file /etc/gateway.toml) is {value!r}, but takes {takes}" in refused(name, from_file, **{name: value})


def test_a_value_nested_absurdly_is_refused() -> None:
    """Found by fuzzing: TOML writes a table within a table within a table on one line."""
    deep: object = 1
    for _ in range(5000):
        deep = {"a": deep}
    assert "is nested too deeply, but takes a whole number" in refused("port", from_file, port=deep)
    assert "is nested too deeply" in refused("allowed_hosts", from_file, allowed_hosts=deep)


def test_a_long_value_is_cut() -> None:
    assert len(refused("port", from_environment, port="9" * 10_000)) < 300


def test_text_for_lists_and_tables_is_explained_as_text() -> None:
    assert "texts separated by commas" in refused("allowed_hosts", from_flags, allowed_hosts=7)
    for text in ("a", "a=1,a=2", "a=1,b"):
        assert "`name=value` pairs separated by commas" in refused(
            "agent_headers", from_environment, agent_headers=text
        )
    assert "`name=number` pairs separated by commas" in refused("priorities", from_environment, priorities="a=high")


def test_a_wrong_value_is_refused_also_where_another_one_wins() -> None:
    with pytest.raises(SettingsError, match=r"config\.toml"):
        load({"port": -1}, {"CURSOR_GATEWAY_PORT": "1"}, {"port": 2})


# --- keys -------------------------------------------------------------------------------------------


def test_keys_are_names_with_hashes() -> None:
    assert from_file(api_keys={"a.b": HASH, "c": OTHER}).settings.api_keys == {"a.b": HASH, "c": OTHER}
    assert from_environment(api_keys=f"a={HASH},b={OTHER}").settings.api_keys == {"a": HASH, "b": OTHER}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"a": HASH, "b": "secret"}, "entry 2 is not a hash"),
        ({"a": HASH.upper()}, "entry 1 is not a hash"),
        ({"": HASH}, "entry 1 has an invalid name"),
        ({"a": OTHER, "local": HASH}, "entry 2 is named `local`, which is reserved"),
        ({"secret secret": HASH}, "entry 1 has an invalid name"),
        ({"a": HASH, "b": OTHER, "c": HASH}, "entry 3 has the same key as entry 1"),
    ],
)
def test_what_is_no_name_with_a_hash_is_refused(keys: dict[str, str], expected: str) -> None:
    message = refused("api_keys", from_file, api_keys=keys)
    assert f"`api_keys` (file /etc/gateway.toml): {expected}" in message
    assert "`cursor-gateway key NAME`" in message
    assert "secret" not in message


def test_a_key_never_stands_in_an_error_however_it_was_mixed_up() -> None:
    key = new_key()
    for text in (key, f"{key}={key}", f"a={key}", f"{key}={HASH}", f"a={HASH},{key}", f"sk-{key}=x"):
        for loading in (from_environment, from_flags):
            assert key not in refused("api_keys", loading, api_keys=text)
    for value in (key, [key], {key: HASH}, {"a": key}, {"a": [key]}, 1):
        assert key not in refused("api_keys", from_file, api_keys=value)
    assert key not in refused("api_key", from_file, api_key=[key])
    assert key not in refused("agent_headers", from_file, agent_headers={"authorization": [key]})


def test_settings_that_slipped_into_a_table_are_reported() -> None:
    """TOML's tables end where the next one begins."""
    for value in ("0.0.0.0", 1):
        result = refused("api_keys", from_file, api_keys={"a": HASH, "host": value})
        assert "put `host` above all tables, not inside this one" in result
    assert "above all tables" not in refused("api_keys", from_file, api_keys={"a": 1})


def test_a_table_of_tables_is_json_in_the_environment() -> None:
    prices = {"auto": {"input": 1, "output": 2.5}}
    expected = {"auto": Price(input=1, output=2.5)}
    assert from_file(prices=prices).settings.prices == expected
    assert from_environment(prices=msgspec.json.encode(prices).decode()).settings.prices == expected
    assert from_flags(prices=msgspec.json.encode(prices).decode()).settings.prices == expected
    assert (BY_NAME["prices"].takes, BY_NAME["volumes"].takes) == ("a table of tables", "a table of strings")
    for wrong in ("auto=1", "[1]", '{"auto": 1}'):
        with pytest.raises(SettingsError, match=r"`prices` .*(takes a JSON object of objects|is wrong: Expected)"):
            from_environment(prices=wrong)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("prices", {"auto": {"input": 1}}, "missing required field `output`"),
        ("prices", {"auto": {"input": -1, "output": 1}}, ">= 0.0 (`input`);"),
        ("budgets", {"alice": {"usd_per_week": 1}}, "unknown field `usd_per_week`"),
        ("schedules", {"night": {"cron": "0 25 * * *", "message": "Tidy up."}}, "'25' is not within 0 and 23"),
        ("schedules", {"night": {"cron": "0 2 * * *", "message": " "}}, "matching regex"),
        ("webhooks", {"hook": {"url": "S3CRET"}}, "`url` must begin with https://"),
        ("webhooks", {"hook": {"url": "https://example.com", "secret": "S3CRET"}}, "`secret` must be `whsec_`"),
        ("webhooks", {"hook": {"url": "https://example.com", "port": 1}}, "unknown field `port`"),
    ],
)
def test_what_is_wrong_in_a_table_is_named_without_its_value(name: str, value: Any, reason: str) -> None:
    with pytest.raises(SettingsError, match=f"`{name}` .* is wrong: .*{re.escape(reason)}") as raised:
        from_file(**{name: value})
    assert "S3CRET" not in str(raised.value)
    assert "$" not in str(raised.value)


def test_schedules_need_the_queue_and_an_owner() -> None:
    night, keys = {"cron": "0 2 * * *", "message": "Tidy up."}, {"alice": hash_key("a")}
    check_schedules(from_file(schedules={"night": night}).settings)
    check_schedules(from_file(schedules={"night": {**night, "key": "alice"}}, api_keys=keys).settings)
    for settings, reason in (
        ({"schedules": {"night": night}, "queue_ttl_seconds": 0}, "needs the queue"),
        ({"schedules": {"every night": night}}, "invalid name"),
        ({"schedules": {"night": night}, "api_keys": keys}, "needs `key`"),
    ):
        with pytest.raises(SettingsError, match=reason):
            check_schedules(from_file(**settings).settings)


def test_a_budget_of_money_needs_prices() -> None:
    money = {"*": {"usd_per_day": 1}}
    with pytest.raises(SettingsError, match="set `prices`, or limit tokens"):
        check_budgets(from_file(budgets=money).settings)
    check_budgets(from_file(budgets=money, prices={"*": {"input": 1, "output": 1}}).settings)
    check_budgets(from_file(budgets={"*": {"tokens_per_month": 1}}).settings)


def test_the_addresses_of_webhooks_are_secret() -> None:
    settings = from_file(webhooks={"slack": {"url": "https://example.com/T0KEN"}}).settings
    assert BY_NAME["webhooks"].masked(settings.webhooks) == {"slack": "…"}
    assert "T0KEN" not in repr(settings)


def test_secrets_are_masked_but_names_stay() -> None:
    settings = Settings(api_key="cgw_s", api_keys={"a": HASH}, agent_headers={"x": "token"}, model="m")
    shown = {setting.name: setting.masked(getattr(settings, setting.name)) for setting in every_setting()}
    assert (shown["api_key"], shown["api_keys"], shown["agent_headers"]) == ("…", {"a": "…"}, {"x": "…"})
    assert shown["model"] == "m"
    assert BY_NAME["api_key"].masked("") == ""
    assert BY_NAME["api_keys"].masked({}) == {}


def test_settings_show_no_secret_when_printed() -> None:
    shown = repr(Settings(api_key="cgw_s", api_keys={"a": HASH}, agent_headers={"x": "token"}))
    assert shown.startswith("Settings(host='127.0.0.1', port=8787, api_keys={'a': '…'}, ")
    for secret in ("cgw_s", HASH, "token"):
        assert secret not in shown


# --- where it listens -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.255.0.7", "::1", "[::1]"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert is_loopback(host)
    check_exposed(Settings(host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "localhost.example", "127.1", "example.org", "128.0.0.1"]
)
def test_any_other_address_needs_keys(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SettingsError, match=r"refuses to listen on .* without API keys.*`cursor-gateway key NAME`"):
        check_exposed(Settings(host=host))
    check_exposed(Settings(host=host, api_keys={"a": HASH}))


# --- what there is to set ---------------------------------------------------------------------------


def test_every_setting_has_a_group_a_meaning_and_names() -> None:
    assert list(BY_NAME) == list(Settings.__struct_fields__)
    groups = [setting.group for setting in every_setting()]
    assert all(groups)
    assert sum(first != second for first, second in pairwise(groups)) == len(set(groups)) - 1
    for setting in every_setting():
        assert re.fullmatch(r"[A-Z].*\.", setting.meaning)
        assert setting.variable == f"CURSOR_GATEWAY_{setting.name.upper()}"
        assert setting.takes


def test_settings_that_few_need_are_listed_apart() -> None:

    usual = {setting.name for setting in every_setting() if not setting.is_advanced}
    assert usual | _ADVANCED == {setting.name for setting in every_setting()}
    assert {"host", "port", "api_keys", "workspace_roots", "allow", "force", "max_runs", "store"} <= usual


def test_tables_and_lists_have_words_for_what_they_take() -> None:
    assert BY_NAME["api_keys"].takes == "a table of strings"
    assert BY_NAME["allowed_hosts"].takes == "a list of strings"


def test_a_part_of_the_settings() -> None:
    settings = Settings(beat_seconds=1, lease_seconds=7)
    assert subset(settings, Timing) == Timing(beat_seconds=1, lease_seconds=7)


def test_a_field_that_is_no_setting_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="max_processes"):
        subset(Settings(), PoolOptions)


# --- lists and tables as text ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["Shell(git)", "Shell(npm test)"]', ["Shell(git)", "Shell(npm test)"]),
        ("Shell(git), Shell(npm)", ["Shell(git)", "Shell(npm)"]),
        (" [] ", []),
        ("", []),
        ("[::1]", ["[::1]"]),
    ],
)
def test_a_list_in_the_environment_is_json_or_has_commas(text: str, expected: list[str]) -> None:
    assert load({}, {"CURSOR_GATEWAY_ALLOW": text}, {}).settings.allow == expected


@pytest.mark.parametrize("text", ["['a']", "[a, b]", '["a", 1]', '["a"', '"a", "b"', "'a'", '{"a": "b"}', '[["a"]]'])
def test_a_list_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="or a JSON list"):
        load({}, {"CURSOR_GATEWAY_ALLOW": text}, {})


def test_a_table_in_the_environment_is_json_or_has_pairs() -> None:
    for text in ('{"data": "/srv/data"}', "data=/srv/data"):
        assert load({}, {"CURSOR_GATEWAY_VOLUMES": text}, {}).settings.volumes == {"data": "/srv/data"}
    for text in ('{"data": 1}', "{data: x}", '"data"=x', "[]"):
        with pytest.raises(SettingsError, match="or a JSON object"):
            load({}, {"CURSOR_GATEWAY_VOLUMES": text}, {})
    for text in ('{"ci": 3}', "ci=3"):
        assert load({}, {"CURSOR_GATEWAY_PRIORITIES": text}, {}).settings.priorities == {"ci": 3}
