//! The reference of the configuration, `docs/configuration.md`, says what the code does.

#![cfg(feature = "serde")]

#[allow(
    dead_code,
    unreachable_pub,
    reason = "every file of tests has it for itself"
)]
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::reference::rows;
use serde::de::DeserializeOwned;
use serde_json::json;
use tollgate::config::{
    BanConfig, BlockConfig, ClassesConfig, ClientAddressConfig, DirectionConfig, KeyConfig,
    LeaseConfig, LimiterConfig, MessagesConfig, OnceConfig, PolicyConfig, ProxiesConfig, Registry,
    ShedConfig, SignalConfig, TiersConfig,
};
use tollgate::key::{self, KeyList};
use tollgate::{
    Key, LimiterBuilder, NetworkList, OnFailure, OnMissing, PressureGauge, Quota, QuotaLookup,
    Tiers,
};
use toml::{Table, Value};

/// The words that serde expects in place of one that it does not know.
fn known<T: DeserializeOwned + Debug>(unknown: serde_json::Value) -> BTreeSet<String> {
    let error = serde_json::from_value::<T>(unknown)
        .unwrap_err()
        .to_string();
    let (_, expected) = error
        .split_once("expected ")
        .unwrap_or_else(|| panic!("{error}"));
    let words = expected.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

fn fields<T: DeserializeOwned + Debug>() -> BTreeSet<String> {
    known::<T>(json!({ "no-such-key": 0 }))
}

fn variants<T: DeserializeOwned + Debug>() -> BTreeSet<String> {
    known::<T>(json!("no-such-form"))
}

fn registry() -> Registry {
    let tenant = key::from_fn(|request| request.uri().host().map(str::to_owned));
    Registry::new()
        .register_condition("is-external", |_| true)
        .register_key("tenant", tenant)
        .register_cost("length", |_| 7)
        .register_count_if("failed-login", |response| response.status() == 401)
        .register_tiers("plans", Tiers::by(|_, _| Some("gold")))
        .register_quotas(
            "customers",
            QuotaLookup::new(Duration::from_secs(60), async |_: Key| {
                Ok::<_, String>(Quota::per_minute(250))
            }),
        )
        .register_key_list("partners", KeyList::new())
        .register_network_list("offices", NetworkList::default())
        .register_pressure("queue", PressureGauge::new())
        .without_measuring()
}

/// A table of the file, with what the lines in it need around them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Top,
    Shed,
    Policy,
    Tiers,
    Classes,
    BlockKeys,
    Ban,
    Once,
    Lease,
    PerMessage,
}

impl Place {
    /// A whole file, with these keys at this place.
    fn with(self, keys: &Table) -> Table {
        let mut policy: Table = "name = 'p'\nquotas = '10/s'".parse().unwrap();
        let mut file = Table::new();
        let nested = |base: &str| {
            let mut table: Table = base.parse().unwrap();
            table.extend(keys.clone());
            Value::Table(table)
        };
        match self {
            Self::Top => {}
            Self::Shed => {
                let base = "classes = ['user', 'normal', 'batch']\nby = 'method'\nsignals = ['cpu']\nat = ['batch 60%']";
                file.insert("shed".into(), nested(base));
            }
            Self::Policy => policy.extend(keys.clone()),
            Self::Tiers => {
                let base = "by = 'plans'\nquotas = { gold = '20/s' }";
                policy.insert("tiers".into(), nested(base));
            }
            Self::Classes => {
                let base = "by = 'method'\nkeep_for = ['critical 30%']";
                policy.insert("classes".into(), nested(base));
            }
            Self::BlockKeys => {
                policy.insert("block_keys".into(), nested(""));
            }
            Self::Ban => {
                policy.insert("ban".into(), nested("after = '5 in 10min'"));
            }
            Self::Once => {
                policy.insert("once".into(), nested(""));
            }
            Self::Lease => {
                policy.insert("lease".into(), nested("up_to = 5"));
            }
            Self::PerMessage => {
                policy.insert("per_message".into(), nested("of = 'received'"));
            }
        }
        file.insert("policies".into(), Value::Array(vec![Value::Table(policy)]));
        if self == Self::Top {
            file.extend(keys.clone());
        }
        file
    }

    /// A whole file without one of the keys that this place needs.
    fn without(self, key: &str) -> Table {
        let mut file = self.with(&Table::new());
        if self == Self::Shed {
            let shed = file["shed"].as_table_mut();
            shed.unwrap().remove(key).unwrap();
            return file;
        }
        let policy = &mut file["policies"].as_array_mut().unwrap()[0];
        let table = match self {
            Self::Top | Self::Shed | Self::Policy => policy,
            Self::Tiers => &mut policy["tiers"],
            Self::Classes => &mut policy["classes"],
            Self::BlockKeys => &mut policy["block_keys"],
            Self::Ban => &mut policy["ban"],
            Self::Once => &mut policy["once"],
            Self::Lease => &mut policy["lease"],
            Self::PerMessage => &mut policy["per_message"],
        };
        table.as_table_mut().unwrap().remove(key).unwrap();
        file
    }
}

fn read(file: &Table) -> Result<LimiterConfig, String> {
    file.clone().try_into().map_err(|error| error.to_string())
}

fn build(file: &Table) -> Result<LimiterBuilder, String> {
    let builder = read(file)?.build(&registry());
    builder.map_err(|error| error.to_string())
}

/// The content of the file, and the builder that is made of it.
fn read_and_built(file: &Table) -> (serde_json::Value, String) {
    let config = read(file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    let builder = build(file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    let built = format!("{builder:?}");
    builder
        .build()
        .unwrap_or_else(|error| panic!("{error}\n{file}"));
    (serde_json::to_value(config).unwrap(), built)
}

fn table(line: &str) -> Table {
    line.parse()
        .unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// TOML's names of the values that a type allows. Forms and quotas have sections of their own, which list them.
fn toml_types(told: &str) -> Option<BTreeSet<&'static str>> {
    let of_word = |word: &str| match word.trim_start_matches('[').split([' ', ',', ']']).next() {
        Some("boolean") => Some("boolean"),
        Some("number") => Some("integer"),
        Some("text") => Some("string"),
        Some("list") => Some("array"),
        Some("table") => Some("table"),
        Some("form" | "quotas") => None,
        _ => panic!("unknown type {told}"),
    };
    told.split(" or ").map(of_word).collect()
}

/// Holds the type of a key to the values that the code reads.
fn hold_type(place: Place, key: &str, told: &str, stated: &Value) {
    let Some(types) = toml_types(told) else {
        return;
    };
    assert!(types.contains(stated.type_str()), "{key}: {told}");
    let of = |value: Value| place.with(&Table::from_iter([(key.to_owned(), value)]));
    let probes = "[true, 7, 'x', ['x'], { x = 1 }]";
    let probes: Value = table(&format!("probes = {probes}"))["probes"].clone();
    for probe in probes.as_array().unwrap() {
        // A list is read as the values of a table's keys, in their order.
        let is_told =
            types.contains(probe.type_str()) || probe.is_array() && types.contains("table");
        assert!(
            is_told || read(&of(probe.clone())).is_err(),
            "{key}: {told}, {probe}"
        );
    }
    if told.starts_with("list of ") {
        assert!(
            read(&of(Value::Array(vec![7.into()]))).is_err(),
            "{key}: {told}"
        );
    }
    if let Some((_, range)) = told.split_once("number, ") {
        let (least, most) = range.split_once(" to ").unwrap();
        let (least, most): (i64, i64) = (least.parse().unwrap(), most.parse().unwrap());
        for (number, is_fine) in [
            (least - 1, false),
            (least, true),
            (most, true),
            (most + 1, false),
        ] {
            let built = build(&of(number.into()));
            assert_eq!(
                built.is_ok_and(|it| it.build().is_ok()),
                is_fine,
                "{key} = {number}"
            );
        }
    }
}

/// Holds a table of keys to the keys that the code reads.
fn hold_keys<T: DeserializeOwned + Debug>(heading: &str, place: Place) {
    let rows = rows(heading);
    let written: BTreeSet<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(written, fields::<T>(), "{heading}");
    assert_eq!(rows.len(), written.len(), "{heading} has a key twice");

    let as_it_comes = read_and_built(&place.with(&Table::new()));
    for row in rows {
        let [key, told, default, meaning, line] = &row[..] else {
            panic!("{heading}: five columns, not {row:?}");
        };
        assert!(meaning.ends_with('.'), "{heading}: {meaning}");
        let stated = table(line);
        assert!(
            stated.len() == 1 && stated.contains_key(key),
            "{key}: {line}"
        );
        hold_type(place, key, told, &stated[key]);
        let with_line = read_and_built(&place.with(&stated));
        match default.as_str() {
            "required" => {
                let without = place.without(key);
                let built = build(&without)
                    .and_then(|builder| builder.build().map_err(|error| error.to_string()));
                assert!(built.is_err(), "{key} is not required");
            }
            // Nothing that a line could say.
            "none" => {
                assert_ne!(as_it_comes.0, with_line.0, "{key}");
                let all: LimiterConfig = read(&place.with(&Table::new())).unwrap();
                let policy = serde_json::to_value(&all.policies[0]).unwrap();
                assert!(policy.get(key).is_none(), "{key} is there by default");
            }
            // The whole list of policies is what these files are about.
            "[]" if key == "policies" => {
                assert_eq!(LimiterConfig::default().policies, []);
            }
            default => {
                let stated = table(&format!("{key} = {default}"));
                if place == Place::Tiers {
                    // No tier has quotas then, and registered tiers need none.
                    assert_eq!(stated, table("quotas = {}"));
                    let without = place.without(key);
                    assert_eq!(read(&without), read(&place.with(&stated)));
                    continue;
                }
                let with_default = read_and_built(&place.with(&stated));
                let is_in_words = with_default.0 == as_it_comes.0;
                let is_built = with_default.1 == as_it_comes.1 && with_line.1 != as_it_comes.1;
                let is_usual_key = key == "key"
                    && serde_json::to_value(KeyConfig::default()).unwrap()
                        == serde_json::to_value(&stated["key"]).unwrap();
                assert!(
                    is_in_words || is_built || is_usual_key,
                    "{key}: {default} is not the default"
                );
            }
        }
    }
}

#[test]
fn each_key_that_the_code_reads_has_a_row_a_line_that_builds_and_its_default() {
    hold_keys::<LimiterConfig>("## Top level", Place::Top);
    hold_keys::<ShedConfig>("## `[shed]`", Place::Shed);
    hold_keys::<PolicyConfig>("## `[[policies]]`", Place::Policy);
    hold_keys::<TiersConfig>("## `[policies.tiers]`", Place::Tiers);
    hold_keys::<ClassesConfig>("## `[policies.classes]`", Place::Classes);
    hold_keys::<BlockConfig>("## `[policies.block_keys]`", Place::BlockKeys);
    hold_keys::<BanConfig>("## `[policies.ban]`", Place::Ban);
    hold_keys::<OnceConfig>("## `[policies.once]`", Place::Once);
    hold_keys::<LeaseConfig>("## `[policies.lease]`", Place::Lease);
    hold_keys::<MessagesConfig>("## `[policies.per_message]`", Place::PerMessage);
}

/// The forms of a key, out of the sentence that an unknown one is answered with.
fn forms_of_keys() -> BTreeSet<String> {
    let error = serde_json::from_value::<KeyConfig>(json!("no-such-form"))
        .unwrap_err()
        .to_string();
    let quoted = error.split('"').skip(1).step_by(2);
    let (_, maps) = error.split_once("a map of one of ").unwrap();
    let (maps, _) = maps.split_once(" to a name").unwrap();
    let maps = maps.replace(" (with the feature json)", "");
    let maps = maps
        .split([',', ' '])
        .filter(|word| !word.is_empty() && *word != "and");
    quoted.chain(maps).map(str::to_owned).collect()
}

#[test]
fn each_form_of_a_value_has_a_row_and_a_line_that_builds() {
    let code = [
        (
            "### `client_address`",
            Place::Top,
            Some(variants::<ClientAddressConfig>()),
        ),
        ("### Proxies", Place::Top, Some(variants::<ProxiesConfig>())),
        (
            "### `signals`",
            Place::Shed,
            Some(variants::<SignalConfig>()),
        ),
        ("### `key`", Place::Policy, Some(forms_of_keys())),
        (
            "### `on_missing`",
            Place::Policy,
            Some(variants::<OnMissing>()),
        ),
        (
            "### `on_failure`",
            Place::Policy,
            Some(variants::<OnFailure>()),
        ),
        (
            "### `of`",
            Place::Policy,
            Some(variants::<DirectionConfig>()),
        ),
        ("### Quotas", Place::Policy, None),
        ("### Entries of lists", Place::Policy, None),
    ];
    for (heading, place, forms) in code {
        let rows = rows(heading);
        if let Some(forms) = forms {
            let written: BTreeSet<_> = rows.iter().map(|row| row[0].clone()).collect();
            assert_eq!(written, forms, "{heading}");
        }
        for row in rows {
            let [form, _, line] = &row[..] else {
                panic!("{heading}: three columns, not {row:?}");
            };
            if form == "json-field" && !cfg!(feature = "json") {
                continue;
            }
            let config = read(&place.with(&table(line)));
            let config = config.unwrap_or_else(|error| panic!("{line}: {error}"));
            let builder = config.build(&registry());
            let _built = builder.unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}

#[test]
fn the_file_at_the_top_of_the_reference_builds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, file) = text.split_once("```toml\n").unwrap();
    let (file, _) = file.split_once("```").unwrap();

    let builder = build(&table(file)).unwrap();

    assert_eq!(builder.build().unwrap().policies().len(), 2);
}
