//! A file of limits, read by the library's own configuration.
//!
//! A configuration may name closures and lists that only the service can register. They are replaced by stand-ins here: enough to
//! say whether the file is valid, and never enough to decide a request.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate::config::{
    self, ConfigFile, CostConfig, EntryConfig, KeyConfig, LimiterConfig, PolicyConfig,
    QuotasConfig, Registry, ReloadError, SignalConfig, TierSource,
};
use tollgate::key::{self, KeyList};
use tollgate::{
    Key, Limiter, LimiterBuilder, NetworkList, PressureGauge, Quota, QuotaLookup, Tiers,
};

/// A file of limits and its limiter.
pub(crate) struct Limits {
    file: ConfigFile,
    limiter: Limiter,
    registered: Vec<Registered>,
}

/// The cost of a request, as its log has it. It stands in the request's extensions, and the stand-in for a registered cost finds it
/// there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedCost(pub(crate) u64);

/// A name that the service has to register, since the file cannot say what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Registered {
    /// The policy that names it, or nothing if the rule for requests under pressure does.
    pub(crate) policy: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// The kind of a registered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Condition,
    Cost,
    Key,
    KeyList,
    NetworkList,
    Outcome,
    Pressure,
    Quotas,
    Tiers,
}

impl Kind {
    /// The kind in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Cost => "cost",
            Self::Key => "key",
            Self::KeyList => "list of identities",
            Self::NetworkList => "list of networks",
            Self::Outcome => "outcome",
            Self::Pressure => "signal of pressure",
            Self::Quotas => "lookup of quotas",
            Self::Tiers => "tiers",
        }
    }
}

impl Registered {
    /// The assumption that its stand-in makes.
    pub(crate) fn assumption(&self) -> String {
        let assumed = match self.kind {
            Kind::Condition => "that it holds",
            Kind::Cost => "that it is what --cost says",
            Kind::Key => "that it finds \"stand-in\", and the budgets are those of this text",
            Kind::KeyList | Kind::NetworkList => "that it is empty",
            Kind::Outcome => "nothing: it matters to the response",
            Kind::Pressure => "that its level is 0",
            Kind::Quotas => "that it states no quotas of its own",
            Kind::Tiers => "that the caller is in none",
        };
        format!("of {}: {assumed}", self.words())
    }

    /// The name with its kind and the policy that needs it.
    pub(crate) fn words(&self) -> String {
        let (kind, name) = (self.kind.words(), &self.name);
        match &self.policy {
            Some(policy) => format!("the {kind} {name:?} of policy {policy}"),
            None => format!("the {kind} {name:?} of [shed]"),
        }
    }
}

impl Limits {
    /// Reads a file, and builds its limiter with what `finish` adds to it. `adjust` changes the configuration before it is built.
    pub(crate) fn read(
        path: &Path,
        adjust: impl Fn(&mut LimiterConfig) + Send + Sync + 'static,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Result<Self, ReloadError> {
        Self::read_by(parse, path, adjust, finish)
    }

    /// Reads the policies of a file that may be one of `tollgate serve`.
    pub(crate) fn of_fleet(
        path: &Path,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Result<Self, ReloadError> {
        Self::read_by(parse_policies, path, |_| {}, finish)
    }

    fn read_by(
        parse: fn(&str, &Path) -> Result<LimiterConfig, String>,
        path: &Path,
        adjust: impl Fn(&mut LimiterConfig) + Send + Sync + 'static,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Result<Self, ReloadError> {
        let named = path.to_owned();
        let read = move |text: &str| {
            let mut config = parse(text, &named)?;
            adjust(&mut config);
            Ok::<_, String>(config)
        };
        // A file that cannot be read, or whose content makes no sense, names nothing: its error comes from the reader below.
        let text = fs::read_to_string(path).unwrap_or_default();
        let registered = read(&text).map_or_else(|_| Vec::new(), |config| names_in(&config));
        let mut file = config::watch(path, read).registry(stand_ins(&registered));
        let limiter = file.start(finish)?;
        Ok(Self {
            file,
            limiter,
            registered,
        })
    }

    pub(crate) fn config(&self) -> &LimiterConfig {
        self.file.config()
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The names that the service has to register.
    pub(crate) fn registered(&self) -> &[Registered] {
        &self.registered
    }

    /// The changes if `next` replaces this file, in the words of the service's log.
    pub(crate) fn changes_to(&self, next: &Self) -> Vec<String> {
        self.file
            .changes_to(&self.limiter, &next.file, &next.limiter)
    }
}

/// The tables of `tollgate serve` that stand beside the policies in its files.
const OF_GATEWAYS: [&str; 2] = ["envoy", "forward_auth"];

/// As [`parse`], but for the tables of gateways, which no policy depends on.
fn parse_policies(text: &str, path: &Path) -> Result<LimiterConfig, String> {
    let Ok(mut file) = toml::from_str::<toml::Table>(text) else {
        return parse(text, path);
    };
    let length = file.len();
    file.retain(|table, _| !OF_GATEWAYS.contains(&table));
    if file.len() == length {
        return parse(text, path);
    }
    file.try_into()
        .map_err(|error: toml::de::Error| error.to_string())
}

fn parse(text: &str, path: &Path) -> Result<LimiterConfig, String> {
    let has_extension = |name: &str| path.extension().is_some_and(|extension| extension == name);
    if has_extension("json") {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    toml::from_str(text).map_err(|error| {
        let error = error.to_string();
        let tables = OF_GATEWAYS.map(|table| format!("unknown field `{table}`"));
        let is_of_gateways = has_extension("yaml")
            || has_extension("yml")
            || tables.iter().any(|unknown| error.contains(unknown));
        match is_of_gateways {
            true => format!("{}\n{}", error.trim_end(), instead(path)),
            false => error,
        }
    })
}

/// The verb that reads the files of gateways.
fn instead(path: &Path) -> String {
    let path = path.display();
    format!("a file of gateways is looked at by `tollgate serve {path} --check`")
}

/// Every name that the policies want registered, once for each policy and kind.
fn names_in(config: &LimiterConfig) -> Vec<Registered> {
    let mut names = BTreeSet::new();
    for policy in &config.policies {
        let mut add = |kind, name: &str| {
            names.insert(Registered {
                policy: Some(policy.name.clone()),
                kind,
                name: name.to_owned(),
            });
        };
        for name in &policy.when {
            add(Kind::Condition, name);
        }
        if let CostConfig::Registered(name) = &policy.cost {
            add(Kind::Cost, name);
        }
        for key in keys_of(policy) {
            add_keys(key, &mut add);
        }
        let blocked = &policy.block_keys;
        let lists = [
            &policy.exempt_keys,
            &blocked.forbidden,
            &blocked.too_many_requests,
        ];
        for entry in lists.into_iter().flatten() {
            if let EntryConfig::Registered { registered } = entry {
                add(Kind::KeyList, registered);
            }
        }
        for entry in &policy.exempt_networks {
            if let EntryConfig::Registered { registered } = entry {
                add(Kind::NetworkList, registered);
            }
        }
        let strike_if = policy.ban.as_ref().and_then(|ban| ban.strike_if.as_ref());
        for name in policy.outcome.iter().chain(strike_if) {
            add(Kind::Outcome, name);
        }
        if let Some(name) = &policy.quotas_by {
            add(Kind::Quotas, name);
        }
        if let Some(tiers) = &policy.tiers
            && let TierSource::Registered(name) = &tiers.by
        {
            add(Kind::Tiers, name);
        }
    }
    if let Some(shed) = &config.shed {
        let mut add = |kind, name: &str| {
            names.insert(Registered {
                policy: None,
                kind,
                name: name.to_owned(),
            });
        };
        add_keys(&shed.by, &mut add);
        for signal in &shed.signals {
            if let SignalConfig::Registered(name) = signal {
                add(Kind::Pressure, name);
            }
        }
    }
    names.into_iter().collect()
}

/// The quotas that a policy has, in whatever tier they are.
pub(crate) fn quotas_of(policy: &PolicyConfig) -> impl Iterator<Item = Quota> {
    let tiers = policy.tiers.iter().flat_map(|tiers| tiers.quotas.values());
    let texts = std::iter::once(&policy.quotas).chain(tiers);
    let texts = texts.flat_map(|quotas| match quotas {
        QuotasConfig::One(text) => vec![text],
        QuotasConfig::Many(texts) => texts.iter().collect(),
        QuotasConfig::Named(texts) => texts.values().collect(),
    });
    // The limiter has been built of them: other texts say that there is no quota.
    texts.flat_map(|text| Quota::parse_all(text).unwrap_or_default())
}

/// The keys that a policy has, whatever they are for.
fn keys_of(policy: &PolicyConfig) -> impl Iterator<Item = &KeyConfig> {
    let of_class = policy.classes.as_ref().map(|classes| &classes.by);
    let of_id = policy.once.as_ref().and_then(|once| once.by.as_ref());
    policy.key.iter().chain(of_class).chain(of_id)
}

fn add_keys(key: &KeyConfig, add: &mut impl FnMut(Kind, &str)) {
    match key {
        KeyConfig::ByRegistered(name) => add(Kind::Key, name),
        KeyConfig::All(parts) => {
            for part in parts {
                add_keys(part, add);
            }
        }
        _ => {}
    }
}

/// Stand-ins with these names. The signals of the machine on which the program runs say nothing about the service.
fn stand_ins(names: &[Registered]) -> Registry {
    let mut registry = Registry::new().without_measuring();
    for Registered { kind, name, .. } in names {
        registry = match kind {
            Kind::Condition => registry.register_condition(name, |_| true),
            Kind::Cost => registry.register_cost(name, |request| {
                let logged = request.extensions().get();
                logged.map_or(1, |LoggedCost(cost)| *cost)
            }),
            Kind::Key => registry.register_key(name, key::from_fn(|_| Some("stand-in"))),
            Kind::KeyList => registry.register_key_list(name, KeyList::new()),
            Kind::NetworkList => registry.register_network_list(name, NetworkList::default()),
            Kind::Outcome => registry.register_count_if(name, |_| true),
            Kind::Pressure => registry.register_pressure(name, PressureGauge::new()),
            Kind::Quotas => registry.register_quotas(name, no_quotas()),
            Kind::Tiers => registry.register_tiers(name, Tiers::by(|_, _| None::<String>)),
        };
    }
    registry
}

fn no_quotas() -> QuotaLookup {
    let none = async |_: Key| Ok::<Option<Quota>, std::io::Error>(None);
    QuotaLookup::new(Duration::from_secs(60), none)
}
