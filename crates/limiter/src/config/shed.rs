//! The classes that are refused under pressure, as plain data.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{KeyConfig, Registry, is_default};
use crate::error::registered;
use crate::{ConfigError, LimiterBuilder, Pressure, PressureGauge, Shedding};

/// The classes that a limiter refuses under pressure, as plain data: see [`LimiterBuilder::shed`].
///
/// ```
/// use tollgate::config::{LimiterConfig, Registry, ShedConfig, SignalConfig};
/// use tollgate::PressureGauge;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config: LimiterConfig = toml::from_str(r#"
///     [shed]
///     classes = ["critical", "normal", "batch"]
///     by = { header = "x-class" }
///     signals = [{ registered = "queue" }]
///     at = ["batch 70%", "normal 90%"]
/// "#)?;
/// let shed: Option<&ShedConfig> = config.shed.as_ref();
/// assert_eq!(shed.map(|shed| &shed.signals[..]), Some(&[SignalConfig::Registered("queue".into())][..]));
///
/// let queue = PressureGauge::new();
/// let limiter = config.build(&Registry::new().register_pressure("queue", &queue))?.build()?;
/// queue.set(0.8);
/// assert!(limiter.is_shedding());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ShedConfig {
    /// The classes, the most important first: see [`LimiterBuilder::classes`].
    pub classes: Vec<String>,
    /// The part of a request that names its class, in the forms of a key.
    pub by: KeyConfig,
    /// The signals. The highest counts.
    pub signals: Vec<SignalConfig>,
    /// The classes that are refused, each with the level from which on it is: `"batch 70%"`. See [`Shedding::at`].
    pub at: Vec<String>,
    /// The margin of [`Shedding::margin`]: `"5%"`.
    #[serde(default = "usual_margin", skip_serializing_if = "is_usual_margin")]
    pub margin: String,
    /// The seconds that refused callers are told to wait: see [`Shedding::retry_after`].
    #[serde(default = "usual_wait", skip_serializing_if = "is_usual_wait")]
    pub retry_after: u64,
    /// True if shedding is on trial: see [`Shedding::shadow`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub shadow: bool,
}

/// A signal of pressure: `"cpu"`, `"memory"`, `{ lag-ms = 100 }` or `{ registered = "queue" }`.
///
/// ```
/// use tollgate::config::SignalConfig;
///
/// assert_eq!(serde_json::from_str::<SignalConfig>(r#""cpu""#)?, SignalConfig::Cpu);
/// assert_eq!(serde_json::from_str::<SignalConfig>(r#"{ "lag-ms": 100 }"#)?, SignalConfig::LagMs(100));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SignalConfig {
    /// The processor time of the control group: see [`Pressure::cpu`].
    Cpu,
    /// The memory of the control group: see [`Pressure::memory`].
    Memory,
    /// The lateness of the runtime's tasks, where the level is 1 at so many milliseconds: see [`Pressure::lag`].
    LagMs(u64),
    /// The signal that is [registered](Registry::register_pressure) under this name.
    Registered(String),
}

impl<'d> Deserialize<'d> for SignalConfig {
    fn deserialize<D: Deserializer<'d>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(AnySignal)
    }
}

struct AnySignal;

/// A signal that needs more than its name.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SignalTable {
    LagMs(u64),
    Registered(String),
}

impl<'d> Visitor<'d> for AnySignal {
    type Value = SignalConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a signal, such as \"cpu\" or { lag-ms = 100 }")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<SignalConfig, E> {
        match word {
            "cpu" => Ok(SignalConfig::Cpu),
            "memory" => Ok(SignalConfig::Memory),
            "lag-ms" => Err(E::custom(
                "the signal lag-ms needs the milliseconds at which its level is 1: { lag-ms = 100 }",
            )),
            "registered" => Err(E::custom(
                "a registered signal needs its name: { registered = \"queue\" }",
            )),
            word => Err(E::unknown_variant(
                word,
                &["cpu", "memory", "lag-ms", "registered"],
            )),
        }
    }

    fn visit_map<M: MapAccess<'d>>(self, map: M) -> Result<SignalConfig, M::Error> {
        let table = SignalTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(match table {
            SignalTable::LagMs(full) => SignalConfig::LagMs(full),
            SignalTable::Registered(name) => SignalConfig::Registered(name),
        })
    }
}

impl ShedConfig {
    pub(super) fn build(
        &self,
        builder: LimiterBuilder,
        registry: &Registry,
    ) -> Result<LimiterBuilder, ConfigError> {
        let class = self.by.build_class("", registry).map_err(in_shedding)?;
        let signals = self.signals(registry)?;
        Ok(builder
            .classes_by(self.classes.clone(), class)
            .shed_by(move || highest(signals), self.shedding()?))
    }

    fn shedding(&self) -> Result<Shedding, ConfigError> {
        let mut thresholds = Vec::new();
        for text in &self.at {
            let Some(threshold) = threshold(text) else {
                return Err(refused(format!(
                    "at {text:?}: expected a class and a level in whole percent, such as \"batch 70%\""
                )));
            };
            thresholds.push(threshold);
        }
        let Some(margin) = percentage(&self.margin).and_then(of_percent) else {
            let margin = &self.margin;
            return Err(refused(format!(
                "margin {margin:?}: expected whole percent, such as \"5%\""
            )));
        };
        let shedding = Shedding::at(thresholds)
            .margin(margin)
            .retry_after(Duration::from_secs(self.retry_after));
        Ok(if self.shadow {
            shedding.shadow()
        } else {
            shedding
        })
    }

    fn signals(&self, registry: &Registry) -> Result<Vec<OpenSignal>, ConfigError> {
        let signals = self.signals.iter().map(|signal| signal.build(registry));
        let signals: Vec<_> = signals.collect::<Result<_, _>>()?;
        if signals.is_empty() {
            return Err(refused("signals [] is a list of nothing"));
        }
        Ok(signals)
    }
}

/// Begins to measure a signal.
type OpenSignal = Box<dyn FnOnce() -> Result<Pressure, ConfigError> + Send + Sync>;

impl SignalConfig {
    fn build(&self, registry: &Registry) -> Result<OpenSignal, ConfigError> {
        let pressure = match self {
            Self::LagMs(0) => return Err(refused("signals lag-ms: every task is late by zero")),
            Self::Registered(name) => registry.pressure(name).map_err(in_shedding)?.clone(),
            // The level of a gauge that is gone is zero.
            _ if !registry.measures() => Pressure::from(PressureGauge::new()),
            Self::Cpu => return Ok(Box::new(Pressure::cpu)),
            Self::Memory => return Ok(Box::new(Pressure::memory)),
            Self::LagMs(full) => {
                let full = Duration::from_millis(*full);
                return Ok(Box::new(move || Pressure::lag(full)));
            }
        };
        Ok(Box::new(move || Ok(pressure)))
    }
}

/// The highest of several signals.
fn highest(signals: Vec<OpenSignal>) -> Result<Pressure, ConfigError> {
    let mut signals = signals.into_iter().map(|open| open());
    let Some(first) = signals.next() else {
        return Err(refused("there is no signal"));
    };
    signals.try_fold(first?, |highest, signal| Ok(highest.max(signal?)))
}

fn threshold(text: &str) -> Option<(String, f64)> {
    let (class, level) = percentage(text)?.rsplit_once(char::is_whitespace)?;
    Some((class.trim().to_owned(), of_percent(level)?))
}

/// The text before a percent sign.
fn percentage(text: &str) -> Option<&str> {
    Some(text.trim().strip_suffix('%')?.trim_end())
}

/// The field of this table that holds what a policy has in this one.
fn own_field(field: &'static str) -> &'static str {
    match field {
        "key" => "by",
        field => field,
    }
}

/// Whole percent as a part of 1.
#[expect(
    clippy::float_arithmetic,
    reason = "a level is stated as a part of 1 and counted in millionths, which are whole for each percentage"
)]
fn of_percent(text: &str) -> Option<f64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let percent: u32 = text.parse().ok()?;
    (percent <= 100).then(|| f64::from(percent) / 100.0)
}

fn refused(reason: impl Into<String>) -> ConfigError {
    ConfigError::Shedding {
        reason: reason.into(),
    }
}

/// The error of a field of this table, which belongs to no policy.
fn in_shedding(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Field {
            field,
            value,
            reason,
            ..
        } => refused(format!("{} {value:?}: {reason}", own_field(field))),
        ConfigError::NotRegistered {
            field, name, known, ..
        } => {
            let (field, known) = (own_field(field), registered(&known));
            refused(format!("{field} {name:?}: is not registered; {known}"))
        }
        error => error,
    }
}

fn usual_margin() -> String {
    "5%".to_owned()
}

fn is_usual_margin(margin: &str) -> bool {
    margin == usual_margin()
}

const fn usual_wait() -> u64 {
    5
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_usual_wait(wait: &u64) -> bool {
    *wait == usual_wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_left_out_have_the_defaults_of_the_code() {
        let config: ShedConfig = serde_json::from_value(serde_json::json!({
            "classes": ["all"], "by": "method", "signals": ["cpu"], "at": ["all 70%"],
        }))
        .unwrap();
        let written = format!("{:?}", config.shedding().unwrap());
        assert_eq!(written, format!("{:?}", Shedding::at([("all", 0.7)])));
    }
}
